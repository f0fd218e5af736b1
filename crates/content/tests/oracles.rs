//! What others make of our YAML, and we of theirs. The others are those who read a mirror: `gopkg.in/yaml.v3` (most Go
//! programs), `sigs.k8s.io/yaml` (kubectl, Flux), and PyYAML, which knows all of YAML 1.1, with both of its scanners.
//!
//! Numbers are compared by value and by type. Kubernetes holds signed integers of 64 bits and floats of 64 bits; unsigned
//! ones of 64 bits are held here, too. JSON integers beyond that are floats from the moment they are parsed, in Go as
//! in `serde_json`, so there is nothing to compare. A float with an integral value is written as an integer if 64 bits
//! hold it, and then read as one: they are the same value by C3.12.

mod common;
#[path = "../../../tests/tools/oracle/client.rs"]
mod oracle;

use std::cell::RefCell;

use common::{nasty, shared, yaml_files};
use oracle::{Oracle, search};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};
use upriver_content::equal;
use upriver_content::yaml::{read_document, to_yaml};

/// All readers but ours.
struct Readers {
    go: RefCell<Oracle>,
    pyyaml: RefCell<Oracle>,
}

impl Readers {
    fn start() -> Self {
        Self { go: RefCell::new(Oracle::go("yaml")), pyyaml: RefCell::new(Oracle::pyyaml()) }
    }

    /// Answers of both programs: objects with `name`, and `value` (JSON text) or `error`.
    fn ask(&self, question: &Value) -> Vec<Value> {
        let mut answers = Vec::new();
        for oracle in [&self.go, &self.pyyaml] {
            match oracle.borrow_mut().ask(question) {
                Value::Array(items) => answers.extend(items),
                other => panic!("not a list: {other}"),
            }
        }
        answers
    }

    /// Whether every reader takes our spelling of the document for just this document.
    fn check(&self, document: &Value) -> Result<(), TestCaseError> {
        let yaml = to_yaml(document);
        let expected = canonical(document);
        for answer in self.ask(&json!({"op": "read", "text": yaml})) {
            prop_assert!(answer.get("error").is_none(), "{answer}\n{}", shown(&yaml));
            let read = value_of(&answer);
            let name = &answer["name"];
            // JSON has one sort of numbers only.
            let read = if name == "sigs.k8s.io/yaml" { canonical(&read) } else { read };
            prop_assert!(read == expected, "{name} read {read}\ninstead of {expected}\nin {}", shown(&yaml));
        }
        let read = read_document(&yaml).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(canonical(&read), expected);
        Ok(())
    }
}

fn shown(yaml: &str) -> &str {
    yaml.get(..4000).unwrap_or(yaml)
}

fn value_of(answer: &Value) -> Value {
    let text = answer["value"].as_str().unwrap_or_else(|| panic!("no value in {answer}"));
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The value with integral floats as integers where 64 bits hold them. Not taken from the crate, which has to prove it.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().expect("a float");
            let text = format!("{float:.0}");
            let integral = float.fract() == 0.0;
            match (text.parse::<i64>(), text.parse::<u64>()) {
                (Ok(integer), _) if integral => integer.into(),
                (_, Ok(integer)) if integral => integer.into(),
                _ => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), canonical(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn every_reader_reads_any_object_as_it_is() {
    let readers = Readers::start();
    search(800, &nasty::object(), |object| readers.check(&object));
}

#[test]
fn every_reader_reads_any_text_in_any_place_as_this_text() {
    let readers = Readers::start();
    search(1000, &nasty::text(), |text| {
        let text = text.as_str();
        readers.check(&json!({"a": text, "b": {"c": [text, [text]]}, text: [{text: text}], "d": [{"e": text, "f": 1}, text]}))
    });
}

#[test]
fn every_reader_takes_every_lookalike_for_a_text() {
    let readers = Readers::start();
    let mut all = serde_json::Map::new();
    for word in nasty::lookalikes() {
        for text in [word.to_owned(), word.to_lowercase(), word.to_uppercase(), format!("{word}\n")] {
            readers.check(&json!({text.as_str(): text.as_str()})).unwrap_or_else(|error| panic!("{error}"));
            all.insert(text.clone(), text.into());
        }
    }
    readers.check(&Value::Object(all)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn recorded_cases_pass_every_reader_exactly() {
    let Some(inputs) = shared("cases/inputs") else { return };
    let readers = Readers::start();
    let mut documents = Vec::new();
    for case in ["YML-01", "YML-04"] {
        let json = std::fs::read_to_string(inputs.join(case).join("object.json")).expect("a case's input");
        documents.push(serde_json::from_str(&json).expect("JSON"));
    }
    let text = std::fs::read_to_string(inputs.join("CON-03/objects.yaml")).expect("a case's input");
    documents.extend(text.split("\n---\n").map(|text| read_document(text).expect("a document")));
    assert!(documents.len() > 3, "found {}", documents.len());
    for document in &documents {
        readers.check(document).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn size_and_depth_change_nothing() {
    let readers = Readers::start();
    let mut deep = json!({"": [{}, [], "", null]});
    for level in 0..60 {
        deep = if level % 3 == 0 { json!([deep, level]) } else { json!({"k": deep, "no": [[]]}) };
    }
    let prose = "A line of everyday length: with a colon, # a hash and a 'quote'.\n".repeat(16_000);
    let documents = [
        deep,
        json!({"block": prose, "line": "x y: z # ".repeat(120_000), "word": "x".repeat(1_000_000)}),
        json!({"escaped": format!("{}\u{7f}", "\t\u{feff}é🚀 \\\"\n".repeat(60_000))}),
        json!({"k".repeat(100_000): {"k k: ".repeat(500): ["\n".repeat(3000), " ".repeat(3000)]}}),
    ];
    for document in &documents {
        readers.check(document).unwrap_or_else(|error| panic!("{error}"));
    }
    // The colon of a key is looked for in 1024 characters; quotes and escapes count.
    for length in 990..1030 {
        for text in ["k", "'", "\"", "é", "🚀", ": ", "\t"] {
            let key = text.repeat(length / text.chars().count());
            readers
                .check(&json!({"a": [{key.as_str(): 1}], key: {}}))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// A pair that is equal about half the time, and nearly so otherwise.
fn pair() -> impl Strategy<Value = (Value, Value)> {
    let respelled = (nasty::value(), any::<u64>()).prop_map(|(value, mut seed)| {
        let other = respell(&value, &mut seed);
        (value, other)
    });
    prop_oneof![4 => respelled, 1 => (nasty::value(), nasty::value()), 2 => (common::number(), common::number())]
}

/// The same value with numbers in their other type where there is one; now and then something is a little off.
fn respell(value: &Value, seed: &mut u64) -> Value {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let dice = *seed >> 59;
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) if dice == 0 => integer.wrapping_add(1).into(),
            (_, Some(float)) if dice == 1 => float.next_up().into(),
            (_, Some(float)) if dice < 16 => float.into(),
            _ => value.clone(),
        },
        Value::Array(items) if dice > 1 => items.iter().map(|item| respell(item, seed)).collect(),
        Value::Array(items) => items.iter().rev().cloned().collect(),
        Value::Object(map) if dice > 0 => {
            map.iter().rev().map(|(key, value)| (key.clone(), respell(value, seed))).collect()
        }
        Value::Object(map) => map.iter().skip(1).map(|(key, value)| (key.clone(), value.clone())).collect(),
        Value::Null if dice == 0 => json!({}),
        Value::Bool(yes) if dice < 2 => i32::from(*yes).into(),
        Value::String(text) if dice == 0 => format!("{text} ").into(),
        other => other.clone(),
    }
}

#[test]
fn equality_is_that_of_exact_arithmetic() {
    let pyyaml = RefCell::new(Oracle::pyyaml());
    let counts = RefCell::new([0, 0]);
    search(1500, &pair(), |(left, right)| {
        let question = json!({"op": "equal", "left": left.to_string(), "right": right.to_string()});
        let theirs = pyyaml.borrow_mut().ask(&question) == Value::Bool(true);
        counts.borrow_mut()[usize::from(theirs)] += 1;
        prop_assert_eq!(equal(&left, &right), theirs);
        prop_assert_eq!(canonical(&left) == canonical(&right), theirs);
        prop_assert_eq!(to_yaml(&left) == to_yaml(&right), theirs);
        Ok(())
    });
    assert!(counts.borrow().iter().all(|count| *count > 300), "one-sided: {counts:?}");
}

/// NEL, LS and PS break lines in YAML 1.1 and are plain characters in 1.2, so an unescaped one is read in two ways. Ours
/// are escaped.
const LINE_BREAKS_OF_1_1: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Whether our reading is theirs, but for what the two versions of YAML see differently.
fn alike(ours: &Value, theirs: &Value, writer: &str) -> bool {
    match (ours, theirs) {
        (Value::Number(_), Value::String(text)) => writer.starts_with("PyYAML") && is_float_of_1_2_only(text),
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| alike(ours, theirs, writer))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.keys().eq(theirs.keys())
                && ours.values().zip(theirs.values()).all(|(ours, theirs)| alike(ours, theirs, writer))
        }
        // It hands its floats on as JSON, where the shortest digits of 1e18 and more look like an integer that is not
        // quite the float.
        (Value::Number(ours), Value::Number(theirs)) if writer == "sigs.k8s.io/yaml" && ours.is_f64() => {
            ours.as_f64() == theirs.as_f64()
        }
        _ => canonical(ours) == canonical(theirs),
    }
}

/// PyYAML wants a dot in a float, a sign in its exponent, and none before a leading dot: `1e3` and `-.5` are texts there,
/// and written bare. To YAML 1.2 and to all of Go they are floats, so they are to us: a file in a Kubernetes repository
/// means what kubectl reads.
fn is_float_of_1_2_only(text: &str) -> bool {
    let lower = text.to_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "+"));
    let known_to_both = mantissa.contains('.')
        && !mantissa.starts_with("-.")
        && !mantissa.starts_with("+.")
        && exponent.starts_with(['+', '-']);
    text.parse::<f64>().is_ok() && !known_to_both
}

#[test]
fn a_float_that_json_shows_as_an_integer_is_the_same_number() {
    let (ours, theirs) = (json!([-1.090_077_472_992_752_8e18]), json!([-1_090_077_472_992_752_800_i64]));
    assert!(alike(&ours, &theirs, "sigs.k8s.io/yaml"));
    assert!(!alike(&ours, &theirs, "yaml.v3"));
    assert!(!alike(&ours, &json!([-1_090_077_472_992_753_800_i64]), "sigs.k8s.io/yaml"));
}

#[test]
fn we_read_what_others_write_as_they_do() {
    let readers = Readers::start();
    search(300, &nasty::object(), |object| {
        for answer in readers.ask(&json!({"op": "write", "json": object.to_string()})) {
            // A writer's bug: it cannot read its own text.
            if answer.get("error").is_some() {
                continue;
            }
            let yaml = answer["text"].as_str().expect("a text");
            if yaml.contains(LINE_BREAKS_OF_1_1) {
                continue;
            }
            let theirs = canonical(&value_of(&answer));
            match read_document(yaml) {
                Ok(ours) => {
                    let name = answer["name"].as_str().expect("a name");
                    prop_assert!(alike(&ours, &theirs, name), "{name}: {ours}\n{theirs}\n{}", shown(yaml));
                }
                // Other bugs of theirs, a line break that begins a block or a key `<<` written bare: what they read is not
                // what they wrote. Nothing is right there, and a refusal keeps such a file out of our hands.
                Err(_) if theirs != canonical(&object) => {}
                Err(error) => prop_assert!(false, "{}: {error}\n{}", answer["name"], shown(yaml)),
            }
        }
        Ok(())
    });
}

#[test]
fn a_file_without_its_last_line_break_is_read_as_others_do() {
    let readers = Readers::start();
    // Blocks in all spellings, and what may follow them.
    let block = "k: [|>][+-]?\\n(  [a-c #]{0,3}\\n){1,3}(  [a-c ]{0,2}| {0,4}|\t| # c|j: 1|\\.\\.\\.|---|)";
    let texts = prop_oneof![
        1 => nasty::object().prop_map(|object| to_yaml(&object).trim_end_matches('\n').to_owned()),
        1 => nasty::object().prop_map(|object| to_yaml(&object).strip_suffix('\n').unwrap_or_default().to_owned()),
        4 => block.prop_map(|text| text),
        2 => ("(- )?", block).prop_map(|(dash, text)| format!("x:\n  {dash}{}", text.replace('\n', if dash.is_empty() { "\n  " } else { "\n    " }))),
    ];
    search(700, &texts, |text| {
        let Ok(ours) = read_document(&text) else { return Ok(()) };
        for answer in readers.ask(&json!({"op": "read", "text": text})) {
            // Libraries made after libyaml refuse some tabs that YAML 1.2 allows.
            if answer.get("error").is_some() {
                continue;
            }
            let theirs = canonical(&value_of(&answer));
            prop_assert!(canonical(&ours) == theirs, "{}: {ours}\n{theirs}\n{text:?}", answer["name"]);
        }
        Ok(())
    });
}

#[test]
fn we_read_files_people_wrote_as_others_do() {
    let (Some(corpus), Some(inputs)) = (shared("corpus"), shared("cases/inputs")) else { return };
    let readers = Readers::start();
    let mut files = Vec::new();
    yaml_files(&corpus, &mut files);
    yaml_files(&inputs, &mut files);
    let mut compared = 0;
    for path in &files {
        let text = std::fs::read_to_string(path).expect("text");
        for text in text.split("\n---\n") {
            let Ok(ours) = read_document(text) else { continue };
            for answer in readers.ask(&json!({"op": "read", "text": text})) {
                let name = answer["name"].as_str().expect("a name");
                // A bare time is a text to YAML 1.2 and to kubectl, but a time to these two.
                if let Some(error) = answer["error"].as_str() {
                    let time = error.contains("a time.Time, which JSON lacks")
                        || error.contains("a datetime, which JSON lacks");
                    assert!(time && name != "sigs.k8s.io/yaml", "{}: {answer}", path.display());
                    continue;
                }
                let theirs = value_of(&answer);
                assert!(alike(&ours, &theirs, name), "{} {name}\n{ours}\n{theirs}", path.display());
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "the corpus has hundreds of documents, compared {compared}");
}
