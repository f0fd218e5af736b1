//! How is a string spelled? In: a string and where it stands. Out: its style. One rule each, first hit wins:
//!
//! 1. holds what must be escaped (controls, tab outside a block, CR, NEL, LS, PS, BOM, noncharacters), or has several
//!    lines and is a key or the root, or begins with a line break or ends in a line of blanks (some readers lose these
//!    in a block): double quotes;
//! 2. has several lines or a final line break: literal block;
//! 3. some reader of YAML 1.1 or 1.2 might take the plain text for something else than a string: double quotes;
//! 4. the plain text would be wrong syntax: single quotes;
//! 5. else plain.
//!
//! Rule 3 takes in more than any one reader: sloppy spellings cost a pair of quotes, a missed one costs the value.

/// How a string is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As it is.
    Plain,
    /// In single quotes.
    Single,
    /// In double quotes with escapes.
    Double,
    /// As a literal block.
    Literal,
}

/// Where a string stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A value below some key or list: may be a block.
    Value,
    /// A key, or the whole document: one line only.
    OneLine,
}

/// Chooses the style of a string.
pub(super) fn style(text: &str, place: Place) -> Style {
    let seen = look(text);
    if seen.escape {
        return Style::Double;
    }
    if seen.newline {
        let block = place == Place::Value && block_holds(text);
        return if block { Style::Literal } else { Style::Double };
    }
    if seen.tab || looks_like_another_type(text) {
        return Style::Double;
    }
    if seen.syntax || bad_start(text) || bad_end(text) { Style::Single } else { Style::Plain }
}

/// Go's YAML library loses a line break at the start of a block, the JavaScript one a line of blanks at its end.
fn block_holds(text: &str) -> bool {
    let last = text.trim_end_matches('\n').rsplit('\n').next().unwrap_or_default();
    !text.starts_with('\n') && last.contains(|character| character != ' ' && character != '\t')
}

#[derive(Default)]
struct Seen {
    newline: bool,
    tab: bool,
    /// A character that only an escape can carry.
    escape: bool,
    /// `: ` or ` #`.
    syntax: bool,
}

/// Nearly all text is ASCII, and a ConfigMap may hold a megabyte of it, so bytes are looked at first.
fn look(text: &str) -> Seen {
    let mut seen = Seen::default();
    let mut ascii = true;
    let mut before = 0;
    for byte in text.bytes() {
        match byte {
            b' ' => seen.syntax |= before == b':',
            b'#' => seen.syntax |= before == b' ',
            b'!'..=b'~' => {}
            b'\n' => seen.newline = true,
            b'\t' => seen.tab = true,
            0x80.. => ascii = false,
            _ => seen.escape = true,
        }
        before = byte;
    }
    if !ascii && !seen.escape {
        seen.escape = text.chars().any(|character| !character.is_ascii() && !is_printable(character));
    }
    seen
}

/// True if readers of both versions accept the character unescaped and none takes it for a line break.
pub(super) fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        _ => character >= '\u{a0}',
    }
}

/// An indicator, or a document marker, which is one in the first column only; but `---x` is confusing anywhere.
fn bad_start(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    match first {
        None => true,
        Some('-') => matches!(characters.next(), None | Some(' ')) || text.starts_with("---"),
        Some('.') => text.starts_with("..."),
        Some(
            '?' | ':' | ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
            | '@' | '`',
        ) => true,
        Some(other) => other.is_whitespace(),
    }
}

fn bad_end(text: &str) -> bool {
    text.chars().next_back().is_some_and(|last| last == ':' || last.is_whitespace())
}

/// True if a reader of any YAML version might resolve the plain text to null, bool, number, time, merge or default key.
pub(super) fn looks_like_another_type(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return true };
    match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' => looks_numeric(text) || looks_like_time(text),
        b'~' | b'=' | b'<' => matches!(text, "~" | "=" | "<<"),
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'i' | b'I' => {
            text.len() <= 8 && is_word(text)
        }
        _ => false,
    }
}

/// `inf` and `nan` without a dot are strings in YAML, but not to readers that try a float first.
fn is_word(text: &str) -> bool {
    const WORDS: [&str; 12] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan", "infinity"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Go's YAML library takes every `_` out first, so `0_x4` is 4 there.
fn looks_numeric(text: &str) -> bool {
    looks_numeric_as_is(text) || (text.contains('_') && looks_numeric_as_is(&text.replace('_', "")))
}

/// Integers of any base, floats, base 60, with `_` or `,` between digits, and the special floats.
fn looks_numeric_as_is(text: &str) -> bool {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let bytes = bare.as_bytes();
    if let [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', digits @ ..] = bytes {
        // Go's library accepts a sign here, too.
        return digits.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'_' | b'+' | b'-'));
    }
    if is_word(bare.strip_prefix('.').unwrap_or(bare)) {
        return true;
    }
    let mantissa =
        bytes.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'_' | b',' | b':' | b'.')).count();
    let dots = bytes[..mantissa].iter().filter(|byte| **byte == b'.').count();
    if dots > 1 {
        return false;
    }
    match &bytes[mantissa..] {
        [] => mantissa > 0,
        // One reader of YAML 1.1 takes `e1` for a float without a mantissa.
        [b'e' | b'E', exponent @ ..] => {
            let digits = match exponent {
                [b'+' | b'-', digits @ ..] => digits,
                digits => digits,
            };
            (mantissa > 0 || !digits.is_empty())
                && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'_')
        }
        _ => false,
    }
}

/// A date, alone or with anything that could be a time behind it.
fn looks_like_time(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let day = rest.bytes().take_while(u8::is_ascii_digit).count();
    let behind = rest.as_bytes().get(day);
    year.len() == 4
        && digits(year)
        && month.len() <= 2
        && digits(month)
        && (1..=2).contains(&day)
        && matches!(behind, None | Some(b'T' | b't' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_a_reader_could_take_for_another_type_is_double_quoted() {
        let lookalikes = "y Y n N yes Yes YES no No NO on On ON off Off OFF true True TRUE false False FALSE tRuE
            null Null NULL ~ 0 7 -1 +1 012 08 0o12 0O7 0x1F 0X1f -0x1 0b101 0b 0x 1_000 1,000 1__0 12:30 12:30:45
            -1:2:3.5 190:20:30.15 1e3 1E3 1e+3 1e-3 1e 1.e3 1. 1.0 .5 -.5 +.5 . .. ._ .inf -.Inf +.INF .nan .NaN nan
            NaN inf -inf infinity 2024-02-29 2024-2-9 2024-02-29T10:00:00Z 2024-02-29t1 = << 123456e789 +12 -_ -, 0_x4 0b+0 0b__-1 -0o+7 -0_o7 1e_+3 ._5 e3 E6 +e5"
            .split_whitespace()
            .filter(|text| *text != "..");
        for text in lookalikes.chain(["", "2024-02-29 10:00:00 +1"]) {
            assert_eq!(style(text, Place::Value), Style::Double, "{text:?}");
            assert_eq!(style(text, Place::OneLine), Style::Double, "{text:?}");
        }
    }

    #[test]
    fn everyday_strings_stay_plain() {
        let plain = "nginx 1.27.3 v1 10.0.0.1 10.0.0.0/8 100m 1Gi 5s 50% -rf --flag=x -c /bin/sh ~/x a:b
            http://x.test:80/y?q=1#f a#b None yesterday nothing off-peak truely e3x deadbeef1 1.2.3-rc.1 .git $(X) ${Y}
            \\d+ (a) ^x$ x=y =x <x e +e foo{bar} a,b +x -x 2024-02 2024-02-29-a 2024-02-30x .. 1:2.3.4 héllo 🚀 x@y _x
            system:node 0abc 5e3s"
            .split_whitespace();
        for text in plain.chain(["two words", "a - b", "it's", "say \"hi\""]) {
            assert_eq!(style(text, Place::Value), Style::Plain, "{text:?}");
        }
    }

    #[test]
    fn wrong_syntax_is_single_quoted() {
        let texts = [
            "- a",
            "-",
            "? a",
            ":x",
            ",",
            "[x]",
            "{x}",
            "# x",
            "&a",
            "*a",
            "!t",
            "|",
            ">",
            "'q'",
            "\"q\"",
            "%d",
            "@at",
            "`t`",
            "a: b",
            "a:",
            "a #b",
            " a",
            "a ",
            "   ",
            "---",
            "...",
            "--- a",
            "---a",
            "-----BEGIN X",
            "\u{a0}x",
            "x\u{3000}",
        ];
        for text in texts {
            assert_eq!(style(text, Place::Value), Style::Single, "{text:?}");
        }
    }

    #[test]
    fn lines_make_a_block_only_where_a_block_holds_them() {
        for text in
            ["a\n", "a\nb", "a\n\n\n", "a  \nb", "root:\n\tchild\n", "\ta\n", "  a\nb", "a\n   \nb", "a\nb "]
        {
            assert_eq!(style(text, Place::Value), Style::Literal, "{text:?}");
            assert_eq!(style(text, Place::OneLine), Style::Double, "{text:?}");
        }
        for text in [
            "\n",
            "\na",
            "a\n ",
            "a\n \t\n\n",
            " \n",
            "a\r\nb",
            "a\u{85}b\n",
            "a\u{2028}\n",
            "\u{feff}a\n",
            "a\u{7f}",
            "a\tb",
            "\u{1}",
        ] {
            assert_eq!(style(text, Place::Value), Style::Double, "{text:?}");
        }
    }
}
