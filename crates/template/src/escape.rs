//! `html`, `js` and `urlquery`. In: text. Out: text that is harmless there.

use crate::error::Fault;
use crate::format::is_printable;
use crate::limits::Sink;

pub(crate) fn html(sink: &mut Sink<'_>, text: &str) -> Result<(), Fault> {
    for character in text.chars() {
        match character {
            '\0' => sink.put("\u{fffd}")?,
            '"' => sink.put("&#34;")?,
            '\'' => sink.put("&#39;")?,
            '&' => sink.put("&amp;")?,
            '<' => sink.put("&lt;")?,
            '>' => sink.put("&gt;")?,
            other => sink.put_char(other)?,
        }
    }
    Ok(())
}

pub(crate) fn js(sink: &mut Sink<'_>, text: &str) -> Result<(), Fault> {
    for character in text.chars() {
        match character {
            '\\' => sink.put("\\\\")?,
            '\'' => sink.put("\\'")?,
            '"' => sink.put("\\\"")?,
            '<' | '>' | '&' | '=' | '\0'..='\u{1f}' => unicode(sink, character)?,
            other if other.is_ascii() || is_printable(other) => sink.put_char(other)?,
            other => unicode(sink, other)?,
        }
    }
    Ok(())
}

fn unicode(sink: &mut Sink<'_>, character: char) -> Result<(), Fault> {
    sink.put(&format!("\\u{:04X}", u32::from(character)))
}

pub(crate) fn urlquery(sink: &mut Sink<'_>, text: &str) -> Result<(), Fault> {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                sink.put_char(byte.into())?
            }
            b' ' => sink.put("+")?,
            other => sink.put(&format!("%{other:02X}"))?,
        }
    }
    Ok(())
}
