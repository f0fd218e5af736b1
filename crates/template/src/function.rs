//! The functions that templates can call. In: arguments. Out: a value.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::Fault;
use crate::escape;
use crate::format;
use crate::limits::{Meter, Sink};
use crate::value::Value;

/// A function by its name in templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    And,
    Or,
    Not,
    Len,
    Index,
    Slice,
    Print,
    Printf,
    Println,
    Html,
    Js,
    Urlquery,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Function {
    const ALL: [(&'static str, Self); 18] = [
        ("and", Self::And),
        ("or", Self::Or),
        ("not", Self::Not),
        ("len", Self::Len),
        ("index", Self::Index),
        ("slice", Self::Slice),
        ("print", Self::Print),
        ("printf", Self::Printf),
        ("println", Self::Println),
        ("html", Self::Html),
        ("js", Self::Js),
        ("urlquery", Self::Urlquery),
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("le", Self::Le),
        ("gt", Self::Gt),
        ("ge", Self::Ge),
    ];

    /// The function of this name.
    pub(crate) fn named(name: &str) -> Result<Self, Fault> {
        if name == "call" {
            return Err(Fault::unsupported("call is not known here: no value in a message is a function"));
        }
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, function)| *function).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(known, _)| *known).collect();
            Fault::syntax(format!("there is no function {name}; there are {}", names.join(", ")))
        })
    }

    /// How many arguments it wants at least, and at most.
    fn arity(self) -> (usize, usize) {
        match self {
            Self::Not | Self::Len => (1, 1),
            Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => (2, 2),
            Self::And | Self::Or | Self::Index | Self::Slice | Self::Printf | Self::Eq => (1, usize::MAX),
            Self::Print | Self::Println | Self::Html | Self::Js | Self::Urlquery => (0, usize::MAX),
        }
    }

    /// Whether it can be called with so many.
    pub(crate) fn check_count(self, count: usize) -> Result<(), Fault> {
        let (least, most) = self.arity();
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let name = Self::ALL.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| *name);
        let plural = if least == 1 { "" } else { "s" };
        let more = if most > least { " or more" } else { "" };
        Err(Fault::data(format!("{name} wants {least} argument{plural}{more}, but gets {count}")))
    }

    /// Calls it. `and` and `or` do not evaluate all of their arguments and are not called here.
    pub(crate) fn call(self, arguments: &[Value], meter: &mut Meter) -> Result<Value, Fault> {
        let first = arguments.first().unwrap_or(&Value::Nil);
        let rest = arguments.get(1..).unwrap_or_default();
        let second = rest.first().unwrap_or(&Value::Nil);
        Ok(match self {
            Self::And | Self::Or => arguments.last().cloned().unwrap_or(Value::Nil),
            Self::Not => Value::Bool(!first.is_true()),
            Self::Len => Value::Int(count(first)?),
            Self::Index => index(first, rest)?,
            Self::Slice => slice(first, rest, meter)?,
            Self::Print => written(meter, |sink| format::print(sink, arguments))?,
            Self::Println => written(meter, |sink| format::println(sink, arguments))?,
            Self::Printf => printf(first, rest, meter)?,
            Self::Html => escaped(arguments, meter, escape::html)?,
            Self::Js => escaped(arguments, meter, escape::js)?,
            Self::Urlquery => escaped(arguments, meter, escape::urlquery)?,
            Self::Eq => Value::Bool(equals_any(first, rest, meter)?),
            Self::Ne => Value::Bool(!equals_any(first, rest, meter)?),
            Self::Lt => Value::Bool(order(first, second, meter)? == Some(Ordering::Less)),
            Self::Ge => Value::Bool(order(first, second, meter)? != Some(Ordering::Less)),
            Self::Le => Value::Bool(!is_greater(first, second, meter)?),
            Self::Gt => Value::Bool(is_greater(first, second, meter)?),
        })
    }
}

fn written(
    meter: &mut Meter,
    write: impl FnOnce(&mut Sink<'_>) -> Result<(), Fault>,
) -> Result<Value, Fault> {
    let mut sink = Sink::new(meter);
    write(&mut sink)?;
    Ok(sink.text.into())
}

fn printf(first: &Value, rest: &[Value], meter: &mut Meter) -> Result<Value, Fault> {
    let Value::Text(pattern) = first else {
        return Err(Fault::data(format!("printf wants a text first, but gets a {}", first.type_name())));
    };
    written(meter, |sink| format::printf(sink, pattern, rest))
}

fn escaped(
    arguments: &[Value],
    meter: &mut Meter,
    escape: impl FnOnce(&mut Sink<'_>, &str) -> Result<(), Fault>,
) -> Result<Value, Fault> {
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|argument| if *argument == Value::Nil { Value::from("<no value>") } else { argument.clone() })
        .collect();
    let mut plain = Sink::new(meter);
    format::print(&mut plain, &arguments)?;
    let plain = plain.text;
    written(meter, |sink| escape(sink, &plain))
}

fn count(value: &Value) -> Result<i64, Fault> {
    let length = match value {
        Value::Text(text) => text.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.entries.len(),
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Byte(_) | Value::Float(_) | Value::Record(_) => {
            return Err(Fault::data(format!("a {} has no len", value.type_name())));
        }
    };
    Ok(i64::try_from(length).unwrap_or(i64::MAX))
}

fn index(value: &Value, keys: &[Value]) -> Result<Value, Fault> {
    if *value == Value::Nil {
        return Err(Fault::data("nothing cannot be indexed"));
    }
    let mut value = value.clone();
    for key in keys {
        value = match &value {
            Value::List(items) => {
                let at = position(key, items.len())?;
                items.get(at).cloned().ok_or_else(|| out_of_range(at))?
            }
            Value::Text(text) => {
                let at = position(key, text.len())?;
                text.as_bytes().get(at).copied().map(Value::Byte).ok_or_else(|| out_of_range(at))?
            }
            Value::Map(map) => match key {
                Value::Text(key) => map.entries.get(key).unwrap_or(&map.zero).clone(),
                other => {
                    return Err(Fault::data(format!(
                        "a map has texts for keys, not a {}",
                        other.type_name()
                    )));
                }
            },
            Value::Nil
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Byte(_)
            | Value::Float(_)
            | Value::Record(_) => {
                return Err(Fault::data(format!("a {} cannot be indexed", value.type_name())));
            }
        };
    }
    Ok(value)
}

fn position(key: &Value, length: usize) -> Result<usize, Fault> {
    let number = match key {
        Value::Int(number) => *number,
        Value::Byte(number) => i64::from(*number),
        other => return Err(Fault::data(format!("a {} is no place in a list", other.type_name()))),
    };
    match usize::try_from(number) {
        Ok(at) if at <= length => Ok(at),
        _ => Err(Fault::data(format!("{number} is outside of 0 to {length}"))),
    }
}

fn out_of_range(at: usize) -> Fault {
    Fault::data(format!("there is nothing at {at}, counted from 0"))
}

fn slice(value: &Value, bounds: &[Value], meter: &mut Meter) -> Result<Value, Fault> {
    match value {
        Value::Text(_) if bounds.len() > 2 => Err(Fault::data("a text takes two numbers at most")),
        Value::Text(text) => {
            let (from, to) = slice_bounds(bounds, text.len())?;
            meter.spend(to - from)?;
            text.get(from..to).map(Value::from).ok_or_else(|| {
                Fault::unsupported("the slice cuts a character in half; a commit message has to be UTF-8")
            })
        }
        Value::List(items) => {
            let (from, to) = slice_bounds(bounds, items.len())?;
            meter.spend(to - from)?;
            Ok(Value::List(items[from..to].into()))
        }
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Byte(_)
        | Value::Float(_)
        | Value::Map(_)
        | Value::Record(_) => Err(Fault::data(format!("a {} cannot be sliced", value.type_name()))),
    }
}

/// First and last place of a slice; Go's third number only has to lie behind them.
fn slice_bounds(bounds: &[Value], length: usize) -> Result<(usize, usize), Fault> {
    if bounds.len() > 3 {
        return Err(Fault::data("slice takes three numbers at most"));
    }
    let bounds: Vec<usize> = bounds.iter().map(|bound| position(bound, length)).collect::<Result<_, _>>()?;
    let bound = |index: usize, missing: usize| bounds.get(index).copied().unwrap_or(missing);
    let (from, to, most) = (bound(0, 0), bound(1, length), bound(2, length));
    if from > to || to > most {
        return Err(Fault::data("the numbers of a slice have to rise"));
    }
    Ok((from, to))
}

fn equals_any(first: &Value, others: &[Value], meter: &mut Meter) -> Result<bool, Fault> {
    if others.is_empty() {
        return Err(Fault::data("eq needs something to compare with"));
    }
    for other in others {
        if equals(first, other, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equals(left: &Value, right: &Value, meter: &mut Meter) -> Result<bool, Fault> {
    Ok(match (left, right) {
        (Value::Nil, Value::Nil) => true,
        (Value::Nil, _) | (_, Value::Nil) => false,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Float(left), Value::Float(right)) => left == right,
        (Value::Text(left), Value::Text(right)) => {
            meter.spend(left.len().min(right.len()) / 16)?;
            left == right
        }
        (Value::Int(_) | Value::Byte(_), Value::Int(_) | Value::Byte(_)) => integer(left) == integer(right),
        (Value::Record(one), Value::Record(other)) if is_comparable(other) => {
            meter.spend(64)?;
            Arc::ptr_eq(one, other) || one == other
        }
        _ => return Err(incomparable(left, right)),
    })
}

/// Go compares structs only if all of their fields can be compared.
fn is_comparable(record: &crate::value::Record) -> bool {
    record.fields.iter().all(|(_, value)| match value {
        Value::List(_) | Value::Map(_) => false,
        Value::Record(inner) => is_comparable(inner),
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Byte(_) | Value::Float(_) | Value::Text(_) => {
            true
        }
    })
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Byte(number) => Some(i64::from(*number)),
        Value::Nil
        | Value::Bool(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Record(_) => None,
    }
}

fn is_greater(left: &Value, right: &Value, meter: &mut Meter) -> Result<bool, Fault> {
    // Like Go, not "less or equal": that makes a difference for floats that are no numbers, which JSON lacks anyway.
    Ok(!matches!(order(left, right, meter)?, Some(Ordering::Less | Ordering::Equal)))
}

fn order(left: &Value, right: &Value, meter: &mut Meter) -> Result<Option<Ordering>, Fault> {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => Ok(left.partial_cmp(right)),
        (Value::Text(left), Value::Text(right)) => {
            meter.spend(left.len().min(right.len()) / 16)?;
            Ok(Some(left.cmp(right)))
        }
        _ => match (integer(left), integer(right)) {
            (Some(left), Some(right)) => Ok(Some(left.cmp(&right))),
            _ => Err(incomparable(left, right)),
        },
    }
}

fn incomparable(left: &Value, right: &Value) -> Fault {
    Fault::data(format!("a {} cannot be compared with a {}", left.type_name(), right.type_name()))
}
