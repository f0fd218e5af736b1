//! The scripts, loaded by SHA and reloaded when Redis forgot them; and how their answers are read.

use std::sync::LazyLock;

use redis::{Script, Value};
use upriver_store::StoreError;

use crate::errors::protocol;

macro_rules! guarded {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("lua/guard.lua"), include_str!(concat!("lua/", $file)))));)+
    };
}

/// Without the guard: it makes what the guard checks.
pub(crate) static ADOPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/adopt.lua")));

/// See [`crate::rights`].
pub(crate) static RIGHTS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/rights.lua")));

guarded! {
    OPEN = "open.lua",
    APPEND = "append.lua",
    RESERVE = "reserve.lua",
    INTEND = "intend.lua",
    SETTLE = "settle.lua",
    RAISE = "raise.lua",
    CLEAR = "clear.lua",
    FORGET = "forget.lua",
    NOTE = "note.lua",
    DROP_CURSOR = "drop_cursor.lua",
}

/// A script's answer: a status word and its operands.
pub(crate) struct Answer {
    pub(crate) status: String,
    pub(crate) rest: Vec<Value>,
}

impl Answer {
    /// Reads `{status, ...}`; `FENCED` and `LOST` become errors here, so no caller can overlook them.
    pub(crate) fn read(value: Value) -> Result<Self, StoreError> {
        let Value::Array(mut rest) = value else {
            return Err(protocol("a script did not answer with a list"));
        };
        if rest.is_empty() {
            return Err(protocol("a script answered with an empty list"));
        }
        let status = text(&rest.remove(0))?;
        let answer = Self { status, rest };
        match answer.status.as_str() {
            "FENCED" => Err(StoreError::Fenced { stored: answer.number(0)? }),
            "LOST" => Err(StoreError::Lost { what: answer.text(0)? }),
            _ => Ok(answer),
        }
    }

    pub(crate) fn text(&self, index: usize) -> Result<String, StoreError> {
        self.rest.get(index).map_or_else(|| Err(protocol("an answer is too short")), text)
    }

    pub(crate) fn number(&self, index: usize) -> Result<u64, StoreError> {
        match self.rest.get(index) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| protocol("a negative number")),
            Some(other) => text(other)?.parse().map_err(|_| protocol("not a number")),
            None => Err(protocol("an answer is too short")),
        }
    }

    /// The status is none that this release knows.
    pub(crate) fn unexpected(&self) -> StoreError {
        protocol(&format!("unexpected status {}", self.status))
    }
}

pub(crate) fn text(value: &Value) -> Result<String, StoreError> {
    redis::from_redis_value_ref(value).map_err(|_| protocol("an answer holds no text"))
}
