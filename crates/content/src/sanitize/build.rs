//! Builds the kept part of an object straight from its serialised form. In: a deserializer. Out: a value without
//! `status`, without unknown metadata, without nulls in maps. What is dropped is skipped, not built and thrown away:
//! `managedFields` alone is often half of an object. Absent: rules that need to know the type.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::rules::SanitizeRules;
use crate::text::Text;

/// A whole object.
pub(super) struct Root<'r> {
    pub(super) rules: &'r SanitizeRules,
}

impl<'de> DeserializeSeed<'de> for Root<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Root<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut root = Map::new();
        while let Some(key) = access.next_key::<Text<'de>>()? {
            match &*key.0 {
                "status" => {
                    access.next_value::<IgnoredAny>()?;
                }
                "metadata" => {
                    let metadata = access.next_value_seed(Metadata { rules: self.rules })?;
                    put(&mut root, key, metadata);
                }
                _ => {
                    let value = access.next_value_seed(Kept)?;
                    put(&mut root, key, value);
                }
            }
        }
        Ok(Value::Object(root))
    }
}

/// `metadata` of the object itself.
struct Metadata<'r> {
    rules: &'r SanitizeRules,
}

impl<'r> Metadata<'r> {
    fn names(&self, drops: Drops) -> Names<'r> {
        Names { rules: self.rules, drops }
    }
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(key) = access.next_key::<Text<'de>>()? {
            let value = match &*key.0 {
                "name" | "namespace" => access.next_value_seed(Kept)?,
                "labels" => access.next_value_seed(self.names(SanitizeRules::drops_label))?,
                "annotations" => access.next_value_seed(self.names(SanitizeRules::drops_annotation))?,
                _ => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            put(&mut metadata, key, value);
        }
        Ok(Value::Object(metadata))
    }
}

/// Labels or annotations: null if none is left, so that the empty map is omitted.
struct Names<'r> {
    rules: &'r SanitizeRules,
    drops: Drops,
}

type Drops = fn(&SanitizeRules, &str) -> bool;

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of names")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut names = Map::new();
        while let Some(key) = access.next_key::<Text<'de>>()? {
            if (self.drops)(self.rules, &key.0) {
                access.next_value::<IgnoredAny>()?;
            } else {
                let value = access.next_value_seed(Kept)?;
                put(&mut names, key, value);
            }
        }
        Ok(if names.is_empty() { Value::Null } else { Value::Object(names) })
    }
}

/// Any value that is kept, without the nulls in its maps.
struct Kept;

impl<'de> DeserializeSeed<'de> for Kept {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::with_capacity(access.size_hint().unwrap_or(0));
        while let Some(item) = access.next_element_seed(Self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<Text<'de>>()? {
            let value = access.next_value_seed(Self)?;
            put(&mut map, key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Inserts unless the value is null; of two equal keys the last one counts, even if it is null.
fn put(map: &mut Map<String, Value>, key: Text<'_>, value: Value) {
    if value.is_null() {
        map.remove(&*key.0);
    } else {
        map.insert(key.0.into_owned(), value);
    }
}
