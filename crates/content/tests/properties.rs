//! What holds for every object, not only for those somebody thought of.

mod common;

use common::{nasty_text, object, shuffled_json, value};
use proptest::prelude::*;
use serde_json::Value;
use upriver_content::sanitize::sanitize_value;
use upriver_content::yaml::{read_document, to_yaml};
use upriver_content::{
    DocumentIdentity, FileVerdict, ForeignReason, ObjectMeta, SanitizeRules, equal, judge, sanitize,
};

fn has_null_in_map(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(|value| value.is_null() || has_null_in_map(value)),
        Value::Array(items) => items.iter().any(has_null_in_map),
        _ => false,
    }
}

proptest! {


    #[test]
    fn what_is_written_reads_back_as_an_equal_value(document in value()) {
        let yaml = to_yaml(&document);
        let read = read_document(&yaml);
        match (&document, read) {
            // The reader takes a text that is only `null` for no document; no object is one.
            (Value::Null, Err(_)) => {}
            (_, Ok(read)) => {
                prop_assert!(equal(&read, &document), "{}\n{:?}", yaml, read);
                prop_assert_eq!(to_yaml(&read), yaml);
            }
            (_, Err(error)) => prop_assert!(false, "{}\n{}", error, yaml),
        }
    }

    #[test]
    fn equal_values_and_only_those_have_equal_bytes(left in value(), right in value()) {
        prop_assert_eq!(equal(&left, &right), to_yaml(&left) == to_yaml(&right));
        prop_assert!(equal(&left, &left));
    }

    #[test]
    fn strings_read_back_exactly_as_value_key_and_list_item(text in nasty_text()) {
        let document = serde_json::json!({"a": {"b": text.as_str()}, "c": [text.as_str(), [text.as_str()]],
            "d": [{text.as_str(): {text.as_str(): text.as_str()}}], text.as_str(): [{text.as_str(): 1}]});
        let yaml = to_yaml(&document);
        prop_assert_eq!(read_document(&yaml).map_err(|error| error.to_string()), Ok(document), "{}", yaml);
    }

    #[test]
    fn sanitising_is_idempotent_and_blind_to_key_order(object in object(), seed in any::<u64>()) {
        let rules = SanitizeRules::default();
        let once = sanitize(&object.to_string(), &rules).expect("complete");
        prop_assert_eq!(&sanitize_value(&once.document, &rules).expect("complete"), &once);
        prop_assert_eq!(&sanitize(&once.document.to_string(), &rules).expect("complete"), &once);
        let shuffled = sanitize(&shuffled_json(&object, seed), &rules).expect("complete");
        prop_assert_eq!(shuffled.to_yaml(), once.to_yaml());
        prop_assert!(!has_null_in_map(&once.document), "{}", once.document);
        prop_assert_eq!(once.document.get("status"), None);
        prop_assert_eq!(Some(once.identity), DocumentIdentity::of(&once.document));
    }

    #[test]
    fn peek_agrees_with_the_full_parse(object in object(), seed in any::<u64>()) {
        let json = shuffled_json(&object, seed);
        let meta = ObjectMeta::peek(&json).expect("an object");
        let sanitized = sanitize(&json, &SanitizeRules::default()).expect("complete");
        prop_assert_eq!(meta.identity(), sanitized.identity);
        prop_assert_eq!(&*meta.uid, "00000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn what_we_write_is_ours_and_no_changed_byte_is_taken_for_it(
        object in object(), position in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..3
    ) {
        let sanitized = sanitize(&object.to_string(), &SanitizeRules::default()).expect("complete");
        prop_assume!(sanitized.document.get("sops").is_none());
        let yaml = sanitized.to_yaml();
        let verdict = judge(yaml.as_bytes(), &sanitized.identity);
        prop_assert_eq!(verdict, FileVerdict::Ours, "{}", yaml);

        let mut bytes = yaml.clone().into_bytes();
        let at = position.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => { bytes.remove(at); }
        }
        if judge(&bytes, &sanitized.identity) == FileVerdict::Ours {
            let text = String::from_utf8(bytes).expect("ours is text");
            let document = read_document(&text).expect("ours is YAML");
            prop_assert_eq!(DocumentIdentity::of(&document), Some(sanitized.identity));
            prop_assert_eq!(to_yaml(&document), &*text);
            prop_assert_eq!(equal(&document, &sanitized.document), text == yaml);
        }
    }

    #[test]
    fn bytes_from_anywhere_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), text in nasty_text()) {
        let expected = DocumentIdentity::new("", "ConfigMap", "a", "b");
        prop_assert_ne!(judge(&bytes, &expected), FileVerdict::Ours);
        prop_assert_ne!(judge(text.as_bytes(), &expected), FileVerdict::Ours);
    }

    #[test]
    fn another_objects_file_is_never_ours(object in object()) {
        let sanitized = sanitize(&object.to_string(), &SanitizeRules::default()).expect("complete");
        prop_assume!(sanitized.document.get("sops").is_none());
        let expected = DocumentIdentity { name: format!("{}x", sanitized.identity.name).into(), ..sanitized.identity.clone() };
        let verdict = FileVerdict::Foreign(ForeignReason::OtherIdentity { found: sanitized.identity.clone() });
        prop_assert_eq!(judge(sanitized.to_yaml().as_bytes(), &expected), verdict);
    }
}
