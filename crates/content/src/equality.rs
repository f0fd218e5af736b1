//! Are two documents the same content? In: two parsed values. Out: yes or no (C3.12).
//!
//! Key order never counts, list order does, and a number is its value: `1` equals `1.0`, exactly and not by rounding.
//! Absent: defaults and schemas. A field that one side lacks is a difference, even if its value is null or empty.
//! Two values are equal exactly if [`crate::yaml::to_yaml`] writes the same bytes for both.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Deep comparison of two JSON values.
#[must_use]
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => Canonical::of(left) == Canonical::of(right),
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((left_key, left), (right_key, right))| {
                    left_key.cmp(right_key) == Ordering::Equal && equal(left, right)
                })
        }
        _ => false,
    }
}

/// A number in the one form that the emitter writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Canonical {
    /// An integer that fits 64 bits, signed or unsigned, no matter how it was spelled.
    Integer(i128),
    /// Anything else.
    Float(f64),
}

impl Canonical {
    /// The value of a JSON number. Minus zero is zero, because no API server tells them apart.
    pub(crate) fn of(number: &Number) -> Self {
        if let Some(integer) = number.as_i64() {
            return Self::Integer(integer.into());
        }
        if let Some(integer) = number.as_u64() {
            return Self::Integer(integer.into());
        }
        let float = number.as_f64().unwrap_or(f64::NAN);
        // Both bounds are powers of two, so they are exact as floats, and a float in between converts without loss.
        let fits = (-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&float);
        if fits && float.fract() == 0.0 { Self::Integer(float as i128) } else { Self::Float(float) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_equal_integral_floats_and_nothing_near_them() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("a number");
        assert!(equal(&parse("1"), &parse("1.0")));
        assert!(equal(&parse("-0.0"), &parse("0")));
        assert!(equal(&parse("1e3"), &parse("1000")));
        assert!(equal(&parse("9007199254740992"), &parse("9007199254740992.0")));
        assert!(!equal(&parse("9007199254740993"), &parse("9007199254740992.0")));
        assert!(!equal(&parse("18446744073709551615"), &parse("18446744073709551616")));
        assert!(!equal(&parse("0.1"), &parse("0.10000000000000002")));
        assert!(!equal(&parse("1"), &json!("1")));
    }

    #[test]
    fn key_order_is_ignored_and_list_order_counts() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert!(equal(&parse(r#"{"a":1,"b":[1,2]}"#), &parse(r#"{"b":[1,2.0],"a":1.0}"#)));
        assert!(!equal(&json!([1, 2]), &json!([2, 1])));
    }

    #[test]
    fn absence_and_emptiness_differ() {
        for other in [json!({"a": {}}), json!({"a": []}), json!({"a": null}), json!({"a": ""})] {
            assert!(!equal(&json!({}), &other), "{other}");
        }
        assert!(!equal(&json!({}), &json!([])));
        assert!(!equal(&json!([{}]), &json!([])));
    }
}
