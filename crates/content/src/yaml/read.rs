//! Reads one YAML document as JSON values. In: text. Out: a value, or why there is none.
//!
//! Comments, quoting and flow style are read, since foreign files are looked at too, to say whose they are. What could
//! read as another value elsewhere is refused rather than guessed at: equal keys, anchors that are used, tags, keys that
//! are no scalars, merge keys. Plain text is null, a bool or a number only where readers of every YAML version agree, else a string.
//! Whether a file is ours is not decided here but by writing it again. Nesting costs no stack while reading, so a hostile
//! file cannot end the process.

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span};

/// More than the JSON parser allows (128), so every object of the API can be read back; little enough for the recursion
/// of whoever walks the value later.
const MAX_DEPTH: usize = 200;

/// Why a text is not one document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not YAML, or something that is refused.
    #[error("{problem} at line {line}, column {column}")]
    NotYaml {
        /// What is wrong; never a part of the text, which may be a Secret.
        problem: YamlProblem,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// Nothing but comments.
    #[error("holds no document")]
    Empty,
    /// More than one document.
    #[error("holds {count} documents")]
    SeveralDocuments {
        /// How many.
        count: usize,
    },
}

/// What keeps a text from being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlProblem {
    /// Not YAML.
    #[error("wrong syntax")]
    Syntax,
    /// A map has two equal keys.
    #[error("a key stands twice")]
    DuplicateKey,
    /// A map or list, or nothing, in place of a key.
    #[error("a key that is no text")]
    KeyNotText,
    /// A bare `<<`: most readers put what it holds into the map around it, those of strict YAML 1.2 do not.
    #[error("a merge key")]
    MergeKey,
    /// `*name`.
    #[error("an alias")]
    Alias,
    /// `!name`.
    #[error("a tag")]
    Tag,
    /// Deeper than any object.
    #[error("nesting deeper than 200")]
    TooDeep,
}

/// Reads the text's only document.
///
/// # Errors
/// If the text is not YAML, holds something that is refused, or does not hold exactly one document.
pub fn read_document(text: &str) -> Result<Value, ReadError> {
    let mut builder = Builder::default();
    // A block that ends the text without a line break ends without one, as for kubectl and everybody else.
    let mut options = Options::default();
    options.block_scalar_eof_without_line_feed = true;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error: ScanError| syntax(&error))?;
        builder.take(event).map_err(|problem| at(problem, &span))?;
    }
    match (builder.count, builder.document) {
        (1, Some(document)) => Ok(document),
        (0 | 1, _) => Err(ReadError::Empty),
        (count, _) => Err(ReadError::SeveralDocuments { count }),
    }
}

fn syntax(error: &ScanError) -> ReadError {
    let place = error.marker();
    ReadError::NotYaml { problem: YamlProblem::Syntax, line: place.line(), column: place.col() + 1 }
}

fn at(problem: YamlProblem, span: &Span) -> ReadError {
    ReadError::NotYaml { problem, line: span.start.line(), column: span.start.col() + 1 }
}

/// An open collection.
enum Open {
    List(Vec<Value>),
    Map { entries: Map<String, Value>, key: Option<String> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    /// The last document that was not empty.
    document: Option<Value>,
    /// How many documents were not empty.
    count: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), YamlProblem> {
        if event.tag().is_some() {
            return Err(YamlProblem::Tag);
        }
        match event {
            Event::Scalar(text, style, _, _) => self.scalar(text.into_owned(), style),
            Event::SequenceStart(..) => self.start(Open::List(Vec::new())),
            Event::MappingStart(..) => self.start(Open::Map { entries: Map::new(), key: None }),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(_) | Event::UnresolvedAlias(_) => Err(YamlProblem::Alias),
            // Where documents begin and end, comments, and other matters of presentation.
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, text: String, style: ScalarStyle) -> Result<(), YamlProblem> {
        let plain = style == ScalarStyle::Plain;
        if let Some(Open::Map { entries, key: key @ None }) = self.open.last_mut() {
            if plain && text.is_empty() {
                return Err(YamlProblem::KeyNotText);
            }
            if plain && text == "<<" {
                return Err(YamlProblem::MergeKey);
            }
            if entries.contains_key(&text) {
                return Err(YamlProblem::DuplicateKey);
            }
            *key = Some(text);
            return Ok(());
        }
        self.add(if plain { resolve(text) } else { Value::String(text) })
    }

    fn start(&mut self, collection: Open) -> Result<(), YamlProblem> {
        if matches!(self.open.last(), Some(Open::Map { key: None, .. })) {
            return Err(YamlProblem::KeyNotText);
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlProblem::TooDeep);
        }
        self.open.push(collection);
        Ok(())
    }

    fn end(&mut self) -> Result<(), YamlProblem> {
        match self.open.pop() {
            Some(Open::List(items)) => self.add(Value::Array(items)),
            Some(Open::Map { entries, .. }) => self.add(Value::Object(entries)),
            None => Err(YamlProblem::Syntax),
        }
    }

    fn add(&mut self, value: Value) -> Result<(), YamlProblem> {
        match self.open.last_mut() {
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map { entries, key }) => {
                let key = key.take().ok_or(YamlProblem::KeyNotText)?;
                entries.insert(key, value);
            }
            None if value.is_null() => {}
            None => {
                self.document = Some(value);
                self.count += 1;
            }
        }
        Ok(())
    }
}

/// The value of plain text.
fn resolve(text: String) -> Value {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        number => resolve_number(number).unwrap_or(Value::String(text)),
    }
}

/// A decimal number. One with a leading zero is octal to some readers, one that needs an infinite float is none.
fn resolve_number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let decimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || !digits.bytes().all(decimal)
    {
        return None;
    }
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Some(integer.into());
    }
    if let Ok(integer) = text.parse::<u64>() {
        return Some(integer.into());
    }
    let float: f64 = text.parse().ok()?;
    serde_json::Number::from_f64(float).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml::to_yaml;

    #[test]
    fn every_depth_that_json_allows_is_read_back() {
        let mut value = json!("leaf");
        for level in 0..126 {
            value = if level % 2 == 0 { json!({"k": value}) } else { json!([value]) };
        }
        assert_eq!(read_document(&to_yaml(&value)).as_ref(), Ok(&value));
    }

    #[test]
    fn texts_made_to_exhaust_a_reader_are_refused() {
        let bomb = {
            let mut text = "a0: &a0 [x, x]\n".to_owned();
            for level in 1..40 {
                text.push_str(&format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1));
            }
            text
        };
        for text in
            [bomb, "- ".repeat(50_000), "[".repeat(50_000), "{a: ".repeat(50_000), "? ".repeat(50_000)]
        {
            let refused = read_document(&text);
            assert!(matches!(refused, Err(ReadError::NotYaml { .. })), "{}", &text[..20]);
        }
    }

    #[test]
    fn a_problem_is_named_with_its_place_and_without_the_text() {
        let reason = |text: &str| read_document(text).expect_err(text).to_string();
        assert_eq!(reason("hunter2: 1\nhunter2: 2\n"), "a key stands twice at line 2, column 1");
        assert_eq!(reason("a: &hunter2 1\nb: *hunter2\n"), "an alias at line 2, column 4");
        assert_eq!(reason("a: *hunter2\n"), "wrong syntax at line 1, column 4");
        assert_eq!(reason("a:\n  <<: {b: 1}\n"), "a merge key at line 2, column 3");
        assert_eq!(reason("a: !!str 1\n"), "a tag at line 1, column 10");
        assert_eq!(reason("? [a]\n: b\n"), "a key that is no text at line 1, column 3");
        assert!(!reason("a: \"hunter2\nb: {hunter2").contains("hunter2"));
    }

    #[test]
    fn plain_text_is_typed_only_where_all_readers_agree() {
        let read = read_document(
            "a: yes\nb: off\nc: true\nd: y\n'<<': {e: <<}\n1: x\ne: 012\nf: 0x1F\ng: 1_000\nh: .inf\ni: 12:30\nj: -7\nk: 1.5e+3\n\
             l: ~\nm:\nn: 1e999\no: 2024-02-29\np: 1.2.3\nq: 0\n",
        );
        let expected = json!({"a": "yes", "b": "off", "c": true, "d": "y", "<<": {"e": "<<"}, "1": "x", "e": "012",
            "f": "0x1F", "g": "1_000", "h": ".inf", "i": "12:30", "j": -7, "k": 1500.0, "l": null, "m": null,
            "n": "1e999", "o": "2024-02-29", "p": "1.2.3", "q": 0});
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn a_block_that_ends_the_text_has_no_line_break_that_is_not_there() {
        for (text, value) in [
            ("|\n  b", "b"),
            ("|\n  b\n", "b\n"),
            (">\n  b\n  c", "b c"),
            ("|+\n  b\n\n", "b\n\n"),
            ("|-\n  b", "b"),
        ] {
            assert_eq!(read_document(&format!("a: {text}")), Ok(json!({"a": value})), "{text:?}");
        }
    }

    #[test]
    fn documents_are_counted() {
        assert_eq!(read_document("# only a comment\n"), Err(ReadError::Empty));
        assert_eq!(read_document("a: 1\n---\nb: 2\n"), Err(ReadError::SeveralDocuments { count: 2 }));
        assert_eq!(read_document("---\na: 1\n---\n# nothing\n"), Ok(json!({"a": 1})));
    }
}
