//! Texts, characters and numbers as Go writes them. In: a token's text, quotes included. Out: its value.

use crate::ast::Number;
use crate::error::Fault;

/// The value of a text in double quotes or backticks.
pub(crate) fn text(token: &str) -> Result<String, Fault> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if token.starts_with('`') {
        return Ok(inner.replace('\r', ""));
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        let (piece, behind) = piece(rest, '"')?;
        match piece {
            Piece::Character(character) => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
            Piece::Byte(byte) => bytes.push(byte),
        }
        rest = behind;
    }
    String::from_utf8(bytes)
        .map_err(|_| Fault::unsupported("these bytes are no UTF-8, and a commit message has to be"))
}

/// The value of a character constant.
pub(crate) fn character(token: &str) -> Result<i64, Fault> {
    let malformed =
        || Fault::syntax("a character constant holds one character, texts stand in double quotes");
    let inner = token.strip_prefix('\'').ok_or_else(malformed)?;
    if inner.starts_with('\'') {
        return Err(malformed());
    }
    match piece(inner, '\'')? {
        (piece, "'") => Ok(match piece {
            Piece::Character(character) => u32::from(character).into(),
            Piece::Byte(byte) => byte.into(),
        }),
        _ => Err(malformed()),
    }
}

enum Piece {
    Character(char),
    Byte(u8),
}

/// One character or escape, and what stands behind it.
fn piece(text: &str, quote: char) -> Result<(Piece, &str), Fault> {
    let wrong = || Fault::syntax("an escape that does not exist; write \\\\ for a backslash");
    let mut characters = text.chars();
    let first = characters.next().ok_or_else(wrong)?;
    if first != '\\' {
        return Ok((Piece::Character(first), characters.as_str()));
    }
    let code = characters.next().ok_or_else(wrong)?;
    let behind = characters.as_str();
    let simple = match code {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        '\'' | '"' if code == quote => code,
        'x' => return digits(behind, 2, 16).ok_or_else(wrong).and_then(|(value, rest)| byte(value, rest)),
        '0'..='7' => {
            let octal = &text[1..];
            return digits(octal, 3, 8).ok_or_else(wrong).and_then(|(value, rest)| byte(value, rest));
        }
        'u' | 'U' => {
            let length = if code == 'u' { 4 } else { 8 };
            let (value, rest) = digits(behind, length, 16).ok_or_else(wrong)?;
            return Ok((Piece::Character(char::from_u32(value).ok_or_else(wrong)?), rest));
        }
        _ => return Err(wrong()),
    };
    Ok((Piece::Character(simple), behind))
}

fn byte(value: u32, rest: &str) -> Result<(Piece, &str), Fault> {
    let byte = u8::try_from(value).map_err(|_| Fault::syntax("an octal escape above \\377"))?;
    Ok((Piece::Byte(byte), rest))
}

fn digits(text: &str, count: usize, base: u32) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    if !number.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    Some((u32::from_str_radix(number, base).ok()?, rest))
}

/// The value of a number.
pub(crate) fn number(token: &str) -> Result<Number, Fault> {
    let wrong = || Fault::syntax(format!("{token} is not a number"));
    if token.ends_with('i') {
        return Err(Fault::unsupported("complex numbers are not known here"));
    }
    let (negative, unsigned) = match token.strip_prefix(['+', '-']) {
        Some(unsigned) => (token.starts_with('-'), unsigned),
        None => (false, token),
    };
    if token.contains('_') && !underscores_are_right(unsigned) {
        return Err(wrong());
    }
    let plain = unsigned.replace('_', "");
    if let Some(value) = integer(&plain) {
        let signed = if negative { -value } else { value };
        if let Ok(small) = i64::try_from(signed) {
            // Go takes the digit E for an exponent, if a sign keeps it from seeing that the base is 16.
            let looks_like_float = token.starts_with(['+', '-']) && token.contains(['e', 'E']);
            return Ok(if looks_like_float { Number::Float(small as f64) } else { Number::Int(small) });
        }
        if signed <= u64::MAX.into() && signed > 0 && !token.starts_with('+') {
            return Ok(Number::TooLarge);
        }
        return Err(Fault::syntax(format!("{token} does not fit 64 bits")));
    }
    let lower = plain.to_ascii_lowercase();
    if lower.starts_with("0x") && lower.contains('p') {
        return Err(Fault::unsupported("floats in base 16 are not known here"));
    }
    if lower.starts_with("0x") || !lower.contains(['.', 'e']) {
        return Err(wrong());
    }
    match lower.parse::<f64>() {
        Ok(float) if float.is_finite() => Ok(Number::Float(if negative { -float } else { float })),
        _ => Err(wrong()),
    }
}

/// An integer of any base without its sign. More than 64 bits come out as something larger than these.
fn integer(text: &str) -> Option<i128> {
    let lower = text.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.starts_with('0') && lower.len() > 1 => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    Some(i128::from_str_radix(digits, base).unwrap_or(i128::MAX))
}

/// Underscores stand between digits, or between a base prefix and a digit.
fn underscores_are_right(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| lower.starts_with(prefix));
    let hex = lower.starts_with("0x");
    let (mut last, body) = if prefixed { ('0', &lower[2..]) } else { ('^', &*lower) };
    for character in body.chars() {
        let digit = character.is_ascii_digit() || (hex && character.is_ascii_hexdigit());
        last = match character {
            _ if digit => '0',
            '_' if last != '0' => return false,
            '_' => '_',
            _ if last == '_' => return false,
            _ => '!',
        };
    }
    last != '_'
}
