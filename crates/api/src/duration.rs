//! How long is a Go duration text such as `300ms` or `1h2.5m`?
//!
//! In: the text. Out: nanoseconds, signed, or why it is none. The grammar is Go's `time.ParseDuration`, which users
//! know from Kubernetes manifests: no spaces, no days, a unit after every number except for a bare `0`.

/// Why a text is no Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing, a lone sign, or something that is no number where one is needed.
    #[error("{text:?} is no duration: a number is missing, write for example 5s or 1m30s")]
    NoNumber {
        /// The whole text.
        text: Box<str>,
    },
    /// A number without unit.
    #[error("{text:?} is no duration: a unit is missing, use ns, us, ms, s, m or h")]
    NoUnit {
        /// The whole text.
        text: Box<str>,
    },
    /// A unit that Go does not know, days for example.
    #[error("{text:?} is no duration: unit {unit:?} is unknown, use ns, us, ms, s, m or h")]
    UnknownUnit {
        /// The whole text.
        text: Box<str>,
        /// The unit.
        unit: Box<str>,
    },
    /// More than about 292 years.
    #[error("{text:?} is too long a duration")]
    TooLong {
        /// The whole text.
        text: Box<str>,
    },
    /// Zero or negative where only a positive duration makes sense.
    #[error("{text:?} is not positive")]
    NotPositive {
        /// The whole text.
        text: Box<str>,
    },
}

/// Nanoseconds of a Go duration text.
///
/// # Errors
/// If the text does not follow Go's grammar or is out of range.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let whole: Box<str> = text.into();
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::NoNumber { text: whole });
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = step(rest, &whole)?;
        rest = after;
        total += nanos;
        // Checked each time, so that the sum cannot overflow however long the text is.
        if total > u128::from(i64::MIN.unsigned_abs()) {
            return Err(DurationError::TooLong { text: whole });
        }
    }
    let total = i128::try_from(total).expect("bounded above by 2^63");
    i64::try_from(if negative { -total } else { total }).map_err(|_| DurationError::TooLong { text: whole })
}

/// One number with its unit, and what follows.
fn step<'a>(rest: &'a str, whole: &str) -> Result<(u128, &'a str), DurationError> {
    let (integer, after) = split_digits(rest);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => split_digits(after),
        None => ("", after),
    };
    if integer.is_empty() && fraction.is_empty() {
        return Err(DurationError::NoNumber { text: whole.into() });
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(end);
    let scale: u128 = match unit {
        "" => return Err(DurationError::NoUnit { text: whole.into() }),
        "ns" => 1,
        // U+00B5 micro sign and U+03BC Greek mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        unknown => return Err(DurationError::UnknownUnit { text: whole.into(), unit: unknown.into() }),
    };
    let too_long = || DurationError::TooLong { text: whole.into() };
    let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| too_long())? };
    let nanos = u128::from(integer) * scale + u128::from(fraction_of(fraction, scale));
    Ok((nanos, after))
}

/// Nanoseconds of the digits after a point. Floating point on purpose: Go computes it so, and rounds so.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fraction_of(digits: &str, unit: u128) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        // Like Go: digits that no longer fit in 63 bits are dropped.
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next <= i64::MIN.unsigned_abs()) else { break };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;

    #[test]
    fn texts_that_go_accepts_give_the_same_number() {
        let vectors = [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("5s", 5 * SECOND),
            ("+5s", 5 * SECOND),
            ("-5s", -5 * SECOND),
            ("300ms", 300_000_000),
            ("1h2.5m", HOUR + 150 * SECOND),
            ("1.5h", 90 * MINUTE),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("2h45m", 2 * HOUR + 45 * MINUTE),
            ("10ns", 10),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s34ns", 12_034),
            ("12us", 12_000),
            ("3h30s", 3 * HOUR + 30 * SECOND),
            ("1m1m", 2 * MINUTE),
            ("0.3333333333333333333h", 20 * MINUTE),
            ("0.100000000000000000000h", 6 * MINUTE),
            ("52763797000ns", 52_763_797_000),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, nanos) in vectors {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn texts_that_go_refuses_are_refused_with_the_reason() {
        type Make = fn(Box<str>) -> DurationError;
        let number: Make = |text| DurationError::NoNumber { text };
        let unit: Make = |text| DurationError::NoUnit { text };
        let long: Make = |text| DurationError::TooLong { text };
        let vectors = [
            ("", number),
            ("-", number),
            ("+", number),
            ("s", number),
            (".", number),
            (".s", number),
            ("-.s", number),
            (" 5s", number),
            ("3", unit),
            ("5s7", unit),
            ("9223372036854775808ns", long),
            ("-9223372036854775809ns", long),
            ("3000000h", long),
            ("99999999999999999999s", long),
        ];
        for (text, make) in vectors {
            assert_eq!(parse(text), Err(make(text.into())), "{text}");
        }
        for (text, unit) in [("5 s", " s"), ("1d", "d"), ("5S", "S"), ("5s ", "s "), ("1e3s", "e")] {
            assert_eq!(parse(text), Err(DurationError::UnknownUnit { text: text.into(), unit: unit.into() }));
        }
    }
}
