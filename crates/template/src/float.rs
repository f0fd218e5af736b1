//! Floats as `printf` writes them.

use crate::error::Fault;
use crate::format::{Bad, Flags};
use crate::limits::Sink;

/// Digits beyond this are zeros in any 64-bit float.
const LONGEST: usize = 1100;

/// Writes a number, unless the verb is none for floats.
pub(crate) fn write(
    sink: &mut Sink<'_>,
    flags: Flags,
    verb: char,
    number: f64,
) -> Result<Result<(), Fault>, Bad> {
    if !matches!(verb, 'v' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'b' | 'x' | 'X') {
        return Err(Bad);
    }
    let precision = flags.precision;
    if matches!(verb, 'b' | 'x' | 'X') || flags.sharp {
        return Ok(Err(Fault::unsupported("floats cannot be written like this here: use %v, %g, %e or %f")));
    }
    if precision.is_some_and(|precision| precision > LONGEST) {
        return Ok(Err(Fault::limit("a float with more than 1100 digits")));
    }
    let size = number.abs();
    let digits = match verb {
        'f' | 'F' => format!("{size:.*}", precision.unwrap_or(6)),
        'e' | 'E' => exponent(&format!("{size:.*e}", precision.unwrap_or(6))),
        _ => general(size, precision),
    };
    let digits = if matches!(verb, 'E' | 'G') { digits.to_uppercase() } else { digits };
    let sign = match number.is_sign_negative() {
        true => "-",
        false if flags.plus => "+",
        false if flags.space => " ",
        false => "",
    };
    Ok(signed(sink, flags, sign, &digits))
}

/// Zeros stand behind the sign, blanks before it.
fn signed(sink: &mut Sink<'_>, flags: Flags, sign: &str, digits: &str) -> Result<(), Fault> {
    let width = flags.width.unwrap_or(0);
    if flags.zero && !sign.is_empty() && width > sign.len() + digits.len() {
        sink.put(sign)?;
        let rest = Flags { width: Some(width - sign.len()), ..flags };
        return rest.pad(sink, digits);
    }
    flags.pad(sink, &format!("{sign}{digits}"))
}

/// `1.5e-7` as Rust writes it becomes `1.5e-07`.
fn exponent(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%g`: the shortest digits, or so many, with an exponent if the number is very large or small.
fn general(size: f64, precision: Option<usize>) -> String {
    let text = match precision {
        None => format!("{size:e}"),
        Some(precision) => format!("{size:.*e}", precision.max(1) - 1),
    };
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let significant = digits.trim_end_matches('0');
    let significant = if significant.is_empty() { "0" } else { significant };
    let count = i32::try_from(significant.len()).unwrap_or(i32::MAX);
    let limit = match precision {
        None => 6,
        Some(precision) => {
            let wanted = i32::try_from(precision.max(1)).unwrap_or(i32::MAX);
            if wanted > count && count > power { count } else { wanted }
        }
    };
    if power < -4 || power >= limit {
        let (first, rest) = significant.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        return exponent(&format!("{first}{dot}{rest}e{power}"));
    }
    if power < 0 {
        let zeros = usize::try_from(-power - 1).unwrap_or(0);
        return format!("0.{}{significant}", "0".repeat(zeros));
    }
    let whole = usize::try_from(power + 1).unwrap_or(1);
    if significant.len() <= whole {
        return format!("{significant:0<whole$}");
    }
    let (before, behind) = significant.split_at(whole);
    format!("{before}.{behind}")
}
