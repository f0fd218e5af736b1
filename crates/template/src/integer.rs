//! Integers as `printf` writes them.

use crate::error::Fault;
use crate::format::{Bad, Flags, escaped, is_printable};
use crate::limits::{MAX_OUTPUT, Sink};

/// Writes a number, unless the verb is none for integers.
pub(crate) fn write(
    sink: &mut Sink<'_>,
    flags: Flags,
    verb: char,
    number: i128,
) -> Result<Result<(), Fault>, Bad> {
    let base = match verb {
        'v' | 'd' => 10,
        'b' => 2,
        'o' | 'O' => 8,
        'x' | 'X' => 16,
        'c' => return Ok(flags.pad(sink, character(number).encode_utf8(&mut [0; 4]))),
        'q' => {
            let inner = escaped(character(number), '\'', flags.plus);
            return Ok(flags.pad(sink, &format!("'{inner}'")));
        }
        'U' => return Ok(unicode(sink, flags, number)),
        _ => return Err(Bad),
    };
    Ok(in_base(sink, flags, verb, base, number))
}

/// Numbers that are no character become the replacement character.
fn character(number: i128) -> char {
    u32::try_from(number).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn in_base(sink: &mut Sink<'_>, flags: Flags, verb: char, base: u32, number: i128) -> Result<(), Fault> {
    let blanks = Flags { zero: false, ..flags };
    if flags.precision == Some(0) && number == 0 {
        return blanks.pad(sink, "");
    }
    let signed = number < 0 || flags.plus || flags.space;
    let least = match (flags.precision, flags.width) {
        (Some(precision), _) => precision,
        (None, Some(width)) if flags.zero => width.saturating_sub(usize::from(signed)),
        (None, _) => 0,
    };
    let size = number.unsigned_abs();
    let mut digits = match (base, verb) {
        (2, _) => format!("{size:b}"),
        (8, _) => format!("{size:o}"),
        (16, 'X') => format!("{size:X}"),
        (16, _) => format!("{size:x}"),
        _ => size.to_string(),
    };
    fill(sink, &mut digits, least)?;
    let sharp = match (flags.sharp, base, verb) {
        (true, 2, _) => "0b",
        (true, 8, _) if !digits.starts_with('0') => "0",
        (true, 16, 'X') => "0X",
        (true, 16, _) => "0x",
        _ => "",
    };
    let octal = if verb == 'O' { "0o" } else { "" };
    let sign = match number {
        ..0 => "-",
        _ if flags.plus => "+",
        _ if flags.space => " ",
        _ => "",
    };
    blanks.pad(sink, &format!("{sign}{octal}{sharp}{digits}"))
}

/// Puts zeros in front. No more than a message may hold and one: that one makes the sink refuse the whole.
fn fill(sink: &mut Sink<'_>, digits: &mut String, least: usize) -> Result<(), Fault> {
    let missing = least.min(MAX_OUTPUT + 1).saturating_sub(digits.len());
    sink.meter.spend(missing)?;
    digits.insert_str(0, &"0".repeat(missing));
    Ok(())
}

/// `U+0041`, with `#` also the character.
fn unicode(sink: &mut Sink<'_>, flags: Flags, number: i128) -> Result<(), Fault> {
    // Negative numbers appear as they lie in memory.
    let code = (number & i128::from(u64::MAX)).unsigned_abs();
    let mut digits = format!("{code:X}");
    fill(sink, &mut digits, flags.precision.unwrap_or(0).max(4))?;
    let mut written = format!("U+{digits}");
    let shown = u32::try_from(code).ok().and_then(char::from_u32).filter(|shown| is_printable(*shown));
    if let (true, Some(shown)) = (flags.sharp, shown) {
        written.push_str(&format!(" '{shown}'"));
    }
    Flags { zero: false, ..flags }.pad(sink, &written)
}
