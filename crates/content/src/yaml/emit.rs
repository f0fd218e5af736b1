//! Writes a document in its one spelling (C3.11). In: a value. Out: YAML text.
//!
//! Top-level order `apiVersion`, `kind`, `metadata`, then the rest; every map sorted by [`compare_keys`]; two blanks per
//! level, list items indented below their key; lines are never folded; no document marker; a final newline. Numbers have
//! one spelling per value: integral ones that fit 64 bits as integers, others with a dot, and an exponent only if they
//! are very large or small (`1.0e+30`: YAML 1.1 wants the dot and the sign). Depth is that of the value: the JSON parser
//! stops at 128.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::order::compare_keys;
use super::scalar::{Place, Style, is_printable, style};
use crate::equality::Canonical;

/// A key of more bytes than this, quotes and escapes included, is written in the explicit form `? key`: readers look
/// only 1024 characters ahead for the colon of a simple key.
const SIMPLE_KEY_LIMIT: usize = 1000;

/// The document's one spelling.
#[must_use]
pub fn to_yaml(document: &Value) -> String {
    let mut out = String::with_capacity(1024);
    write_yaml(document, &mut out);
    out
}

/// Appends the document's one spelling to a buffer, for callers that write many.
pub fn write_yaml(document: &Value, out: &mut String) {
    let mut emitter = Emitter { out, pending: Vec::new() };
    match document {
        Value::Object(map) if !map.is_empty() => emitter.map(map, 0, Head::Root),
        Value::Array(items) if !items.is_empty() => emitter.list(items, 0, Head::Root),
        Value::String(text) => {
            emitter.one_line(text);
            emitter.out.push('\n');
        }
        other => {
            emitter.leaf(other, 0);
            emitter.out.push('\n');
        }
    }
}

/// Where a map or list begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// It is the document.
    Root,
    /// On a line of its own.
    OwnLine,
    /// Behind the dash of a list item.
    Inline,
}

struct Emitter<'v, 'o> {
    out: &'o mut String,
    /// Sorted entries of the maps that are being written, one stretch per level: one allocation for all of them.
    pending: Vec<(&'v str, &'v Value)>,
}

impl<'v> Emitter<'v, '_> {
    fn map(&mut self, map: &'v Map<String, Value>, indent: usize, head: Head) {
        let start = self.pending.len();
        self.pending.extend(map.iter().map(|(key, value)| (key.as_str(), value)));
        let rank = |key: &str| match (head, key) {
            (Head::Root, "apiVersion") => 0,
            (Head::Root, "kind") => 1,
            (Head::Root, "metadata") => 2,
            _ => 3,
        };
        self.pending[start..].sort_unstable_by(|(left, _), (right, _)| {
            rank(left).cmp(&rank(right)).then_with(|| compare_keys(left, right))
        });
        for index in start..start + map.len() {
            let (key, value) = self.pending[index];
            if index > start || head == Head::OwnLine {
                self.indent(indent);
            }
            self.key(key, indent);
            self.value(value, indent);
        }
        self.pending.truncate(start);
    }

    fn key(&mut self, key: &str, indent: usize) {
        let start = self.out.len();
        self.one_line(key);
        if self.out.len() - start > SIMPLE_KEY_LIMIT {
            self.out.insert_str(start, "? ");
            self.out.push('\n');
            self.indent(indent);
        }
        self.out.push(':');
    }

    /// What follows a key's colon, up to the end of its lines.
    fn value(&mut self, value: &'v Value, indent: usize) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                self.out.push('\n');
                self.map(map, indent + 2, Head::OwnLine);
            }
            Value::Array(items) if !items.is_empty() => {
                self.out.push('\n');
                self.list(items, indent + 2, Head::OwnLine);
            }
            leaf => {
                self.out.push(' ');
                self.leaf(leaf, indent + 2);
                self.out.push('\n');
            }
        }
    }

    fn list(&mut self, items: &'v [Value], indent: usize, head: Head) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 || head == Head::OwnLine {
                self.indent(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.map(map, indent + 2, Head::Inline),
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2, Head::Inline),
                leaf => {
                    self.leaf(leaf, indent + 2);
                    self.out.push('\n');
                }
            }
        }
    }

    /// A scalar or an empty collection, without the line break behind it.
    fn leaf(&mut self, leaf: &Value, block_indent: usize) {
        match leaf {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => match style(text, Place::Value) {
                Style::Plain => self.out.push_str(text),
                Style::Single => self.single(text),
                Style::Double => self.double(text),
                Style::Literal => self.literal(text, block_indent),
            },
            Value::Array(_) => self.out.push_str("[]"),
            Value::Object(_) => self.out.push_str("{}"),
        }
    }

    fn one_line(&mut self, text: &str) {
        match style(text, Place::OneLine) {
            Style::Plain => self.out.push_str(text),
            Style::Single => self.single(text),
            Style::Double | Style::Literal => self.double(text),
        }
    }

    fn single(&mut self, text: &str) {
        self.out.push('\'');
        for (index, part) in text.split('\'').enumerate() {
            if index > 0 {
                self.out.push_str("''");
            }
            self.out.push_str(part);
        }
        self.out.push('\'');
    }

    fn double(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\t' => self.out.push_str("\\t"),
                '\r' => self.out.push_str("\\r"),
                plain if is_printable(plain) => self.out.push(plain),
                other => self.escape(other),
            }
        }
        self.out.push('"');
    }

    /// Every character that needs this lies below U+10000, and both YAML versions know both forms.
    fn escape(&mut self, character: char) {
        let code = u32::from(character);
        let written =
            if code < 0x100 { write!(self.out, "\\x{code:02X}") } else { write!(self.out, "\\u{code:04X}") };
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }

    /// A block without its last line break. The indent is spelled out if the first line begins with a blank or tab,
    /// because readers would count those in.
    fn literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\t']) {
            self.out.push('2');
        }
        let body = match text.strip_suffix('\n') {
            None => {
                self.out.push('-');
                text
            }
            Some(body) => {
                if body.ends_with('\n') {
                    self.out.push('+');
                }
                body
            }
        };
        for line in body.split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
        }
    }

    fn number(&mut self, number: &Number) {
        let written = match Canonical::of(number) {
            Canonical::Integer(integer) => write!(self.out, "{integer}"),
            Canonical::Float(float) => self.float(float),
        };
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }

    /// The shortest digits that read back as the same float.
    fn float(&mut self, float: f64) -> std::fmt::Result {
        if (1e-5..1e15).contains(&float.abs()) {
            return write!(self.out, "{float}");
        }
        let digits = format!("{float:e}");
        let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
        let dot = if mantissa.contains('.') { "" } else { ".0" };
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        write!(self.out, "{mantissa}{dot}e{sign}{exponent}")
    }

    fn indent(&mut self, columns: usize) {
        const BLANKS: &str = "                                ";
        let mut left = columns;
        while left > BLANKS.len() {
            self.out.push_str(BLANKS);
            left -= BLANKS.len();
        }
        self.out.push_str(&BLANKS[..left]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_one_spelling_per_value() {
        let table = [
            ("1", "1"),
            ("1.0", "1"),
            ("-0.0", "0"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("9007199254740993", "9007199254740993"),
            ("0.5", "0.5"),
            ("0.1", "0.1"),
            ("1e30", "1.0e+30"),
            ("-1e30", "-1.0e+30"),
            ("1e-7", "1.0e-7"),
            ("1.5e-7", "1.5e-7"),
            ("0.00001", "0.00001"),
            ("5e-324", "5.0e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ];
        for (json, yaml) in table {
            let value: Value = serde_json::from_str(json).expect("a number");
            assert_eq!(to_yaml(&value), format!("{yaml}\n"), "{json}");
        }
    }

    #[test]
    fn nested_collections_are_indented_below_their_key() {
        let value = json!({"b": {"z": [], "x": {}}, "a": [[1, [2]], {"k": [3], "m": {"l": null}}, {}, "x"]});
        let expected = "a:\n  - - 1\n    - - 2\n  - k:\n      - 3\n    m:\n      l: null\n  - {}\n  - x\nb:\n  \
                        x: {}\n  z: []\n";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn only_the_top_level_has_the_customary_order() {
        let value = json!({"data": {"metadata": 1, "kind": 2, "a10": 3, "a2": 4}, "metadata": {}, "kind": "K",
            "apiVersion": "v1", "aa": 1});
        let expected = "apiVersion: v1\nkind: K\nmetadata: {}\naa: 1\ndata:\n  a2: 4\n  a10: 3\n  kind: 2\n  \
                        metadata: 1\n";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn blocks_keep_every_final_newline_and_every_blank() {
        let table = [
            ("a\nb", "k: |-\n  a\n  b\n"),
            ("a\n", "k: |\n  a\n"),
            ("a\n\n\n", "k: |+\n  a\n\n\n"),
            ("a  \n\tb\n   \nc", "k: |-\n  a  \n  \tb\n     \n  c\n"),
            ("  a\nb\n", "k: |2\n    a\n  b\n"),
            ("\ta\n", "k: |2\n  \ta\n"),
            ("\na", "k: \"\\na\"\n"),
            ("a\tb", "k: \"a\\tb\"\n"),
            ("\u{85}\u{2028}\u{7f}\u{0}", "k: \"\\x85\\u2028\\x7F\\x00\"\n"),
        ];
        for (text, yaml) in table {
            assert_eq!(to_yaml(&json!({"k": text})), yaml, "{text:?}");
        }
    }

    #[test]
    fn keys_follow_the_same_rules_on_one_line() {
        let long = "x".repeat(1001);
        let value = json!({"a: b": 1, "yes": 2, "c\nd": 3, "": 4, long.as_str(): {"e": [5]}});
        let expected = format!("\"\": 4\n'a: b': 1\n\"c\\nd\": 3\n? {long}\n:\n  e:\n    - 5\n\"yes\": 2\n");
        assert_eq!(to_yaml(&value), expected);
    }
}
