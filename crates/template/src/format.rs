//! Go's package fmt, as far as templates reach it. In: values. Out: text.
//!
//! Not known: `%p`, `%b` and `%x` of floats, and `#` with `%v` and floats. A template that uses them is refused. Texts are
//! UTF-8 here, so no byte needs an escape that is not part of a character.

use crate::error::Fault;
use crate::float;
use crate::integer;
use crate::limits::Sink;
use crate::value::Value;

type Written = Result<(), Fault>;

/// What stands between `%` and the verb.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) sharp: bool,
    pub(crate) zero: bool,
    pub(crate) plus: bool,
    pub(crate) minus: bool,
    pub(crate) space: bool,
    /// `%+v`: fields with their names.
    pub(crate) names: bool,
    pub(crate) width: Option<usize>,
    pub(crate) precision: Option<usize>,
}

impl Flags {
    /// Writes the text with blanks, or zeros on its left, up to the width.
    pub(crate) fn pad(&self, sink: &mut Sink<'_>, text: &str) -> Written {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        if missing == 0 {
            return sink.put(text);
        }
        if self.minus {
            sink.put(text)?;
            return sink.repeat(' ', missing);
        }
        sink.repeat(if self.zero { '0' } else { ' ' }, missing)?;
        sink.put(text)
    }
}

/// A value on its own, in the middle of a template.
pub(crate) fn action(sink: &mut Sink<'_>, value: &Value) -> Written {
    if *value == Value::Nil { sink.put("<no value>") } else { top(sink, Flags::default(), 'v', value) }
}

/// Values with a blank between two that are no texts.
pub(crate) fn print(sink: &mut Sink<'_>, values: &[Value]) -> Written {
    let mut after_text = true;
    for (index, value) in values.iter().enumerate() {
        let text = matches!(value, Value::Text(_));
        if index > 0 && !text && !after_text {
            sink.put(" ")?;
        }
        top(sink, Flags::default(), 'v', value)?;
        after_text = text;
    }
    Ok(())
}

/// Values with blanks between them and a line break behind them.
pub(crate) fn println(sink: &mut Sink<'_>, values: &[Value]) -> Written {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            sink.put(" ")?;
        }
        top(sink, Flags::default(), 'v', value)?;
    }
    sink.put("\n")
}

/// A value that is an argument itself.
pub(crate) fn top(sink: &mut Sink<'_>, flags: Flags, verb: char, value: &Value) -> Written {
    match (value, verb) {
        (Value::Nil, 'v' | 'T') => flags.pad(sink, "<nil>"),
        (Value::Nil, _) => sink.put(&format!("%!{verb}(<nil>)")),
        // `%w` is for errors; of everything else Go complains as a whole.
        (Value::List(_) | Value::Map(_) | Value::Record(_), 'w') => Err(Bad).or_bad(sink, flags, verb, value),
        (_, 'T') => text(sink, flags, 's', value.type_name()),
        _ => nested(sink, flags, verb, value),
    }
}

/// A value in a list, map or record.
fn nested(sink: &mut Sink<'_>, flags: Flags, verb: char, value: &Value) -> Written {
    sink.meter.spend(1)?;
    match value {
        Value::Nil => sink.put("<nil>"),
        Value::Bool(value) => match verb {
            't' | 'v' => flags.pad(sink, if *value { "true" } else { "false" }),
            _ => Err(Bad).or_bad(sink, flags, verb, &Value::Bool(*value)),
        },
        Value::Int(number) => {
            integer::write(sink, flags, verb, (*number).into()).or_bad(sink, flags, verb, value)
        }
        Value::Byte(number) => {
            integer::write(sink, flags, verb, (*number).into()).or_bad(sink, flags, verb, value)
        }
        Value::Float(number) => float::write(sink, flags, verb, *number).or_bad(sink, flags, verb, value),
        Value::Text(content) => match verb {
            'v' | 's' | 'q' | 'x' | 'X' => text(sink, flags, verb, content),
            _ => Err(Bad).or_bad(sink, flags, verb, value),
        },
        Value::List(items) => {
            sink.put("[")?;
            for (index, item) in items.iter().enumerate() {
                separate(sink, index)?;
                nested(sink, flags, verb, item)?;
            }
            sink.put("]")
        }
        Value::Map(map) => {
            sink.put("map[")?;
            for (index, (key, item)) in map.entries.iter().enumerate() {
                separate(sink, index)?;
                nested(sink, flags, verb, &Value::Text(key.clone()))?;
                sink.put(":")?;
                nested(sink, flags, verb, item)?;
            }
            sink.put("]")
        }
        Value::Record(record) => {
            sink.put("{")?;
            for (index, (name, item)) in record.fields.iter().enumerate() {
                separate(sink, index)?;
                if flags.names {
                    sink.put(name)?;
                    sink.put(":")?;
                }
                nested(sink, flags, verb, item)?;
            }
            sink.put("}")
        }
    }
}

fn separate(sink: &mut Sink<'_>, index: usize) -> Written {
    if index > 0 { sink.put(" ") } else { Ok(()) }
}

/// The verb does not fit the value; Go says so in the text.
#[derive(Debug)]
pub(crate) struct Bad;

/// Writes Go's complaint about a verb.
trait OrBad {
    fn or_bad(self, sink: &mut Sink<'_>, flags: Flags, verb: char, value: &Value) -> Written;
}

impl OrBad for Result<Written, Bad> {
    fn or_bad(self, sink: &mut Sink<'_>, flags: Flags, verb: char, value: &Value) -> Written {
        match self {
            Ok(written) => written,
            Err(Bad) if verb == 'v' => Ok(()),
            Err(Bad) => {
                sink.put(&format!("%!{verb}({}=", value.type_name()))?;
                nested(sink, flags, 'v', value)?;
                sink.put(")")
            }
        }
    }
}

fn text(sink: &mut Sink<'_>, flags: Flags, verb: char, content: &str) -> Written {
    if matches!(verb, 'x' | 'X') {
        return hex(sink, flags, verb, content);
    }
    let content = match flags.precision {
        Some(limit) => content.char_indices().nth(limit).map_or(content, |(end, _)| &content[..end]),
        None => content,
    };
    if verb != 'q' {
        return flags.pad(sink, content);
    }
    if flags.sharp && can_stand_in_backticks(content) {
        return flags.pad(sink, &format!("`{content}`"));
    }
    sink.meter.spend(content.len())?;
    let mut quoted = String::from("\"");
    for character in content.chars() {
        quoted.push_str(&escaped(character, '"', flags.plus));
    }
    quoted.push('"');
    flags.pad(sink, &quoted)
}

fn can_stand_in_backticks(content: &str) -> bool {
    content.chars().all(|character| match character {
        '\t' => true,
        '`' | '\u{7f}' | '\u{feff}' => false,
        other => other >= ' ',
    })
}

/// A character as it stands between quotes in Go.
pub(crate) fn escaped(character: char, quote: char, ascii: bool) -> String {
    let simple = match character {
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        '\\' => "\\\\",
        other if other == quote => return format!("\\{quote}"),
        other if if ascii { matches!(other, ' '..='~') } else { is_printable(other) } => return other.into(),
        other => {
            let code = u32::from(other);
            return match code {
                0..0x20 | 0x7f => format!("\\x{code:02x}"),
                0..0x10000 => format!("\\u{code:04x}"),
                _ => format!("\\U{code:08x}"),
            };
        }
    };
    simple.to_owned()
}

/// Whether Go shows a character as it is: letters, marks, numbers, punctuation, symbols and the ASCII blank. Rust's own
/// table is the same one, but it is told only by what it escapes, and marks are escaped at the start of a text only.
pub(crate) fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{a0}' => false,
        other => {
            let mut shown = String::from("a");
            shown.push(other);
            shown.escape_debug().count() == 2
        }
    }
}

fn hex(sink: &mut Sink<'_>, flags: Flags, verb: char, content: &str) -> Written {
    let bytes = &content.as_bytes()[..content.len().min(flags.precision.unwrap_or(usize::MAX))];
    sink.meter.spend(bytes.len().saturating_mul(5))?;
    let prefix = match (flags.sharp, verb) {
        (true, 'x') => "0x",
        (true, _) => "0X",
        (false, _) => "",
    };
    let mut written = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 && flags.space {
            written.push(' ');
        }
        if index == 0 || flags.space {
            written.push_str(prefix);
        }
        written.push_str(&if verb == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") });
    }
    flags.pad(sink, &written)
}

/// Go's Sprintf.
pub(crate) fn printf(sink: &mut Sink<'_>, pattern: &str, values: &[Value]) -> Written {
    crate::pattern::Pattern::new(pattern, values).write(sink)
}
