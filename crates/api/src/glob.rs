//! Does a branch match one of a GitProvider's patterns?
//!
//! In: pattern and text. Out: yes, no, or a malformed pattern. The rules are Go's `path.Match`: the whole text has to
//! match; `*` is a run of characters without `/`, `?` one such character, `[a-z]` and `[^a-z]` one character of a set
//! (any character, even `/`), and a backslash takes the next character as it is.

/// Why a pattern matches nothing at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("branch pattern {pattern:?} is malformed")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: Box<str>,
}

#[derive(Debug)]
enum Token {
    Star,
    AnyOne,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

/// True if any pattern matches. Malformed ones match nothing.
#[must_use]
pub fn any_matches<P: AsRef<str>>(patterns: &[P], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_ref(), text).unwrap_or(false))
}

/// True if `pattern` matches the whole of `text`.
///
/// # Errors
/// If the pattern is malformed, whatever the text.
pub fn matches(pattern: &str, text: &str) -> Result<bool, BadPattern> {
    let tokens = tokens(pattern).ok_or_else(|| BadPattern { pattern: pattern.into() })?;
    let text: Vec<char> = text.chars().collect();
    Ok(run(&tokens, &text))
}

/// Every place in the text that the tokens so far can reach, advanced token by token: linear in their product, where
/// backtracking over several stars would not be.
fn run(tokens: &[Token], text: &[char]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for token in tokens {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            if !reached[at] {
                continue;
            }
            match token {
                Token::Star => {
                    next[at] = true;
                    for end in at..text.len() {
                        if text[end] == '/' {
                            break;
                        }
                        next[end + 1] = true;
                    }
                }
                Token::AnyOne | Token::Literal(_) | Token::Class { .. } => {
                    if text.get(at).is_some_and(|c| takes(token, *c)) {
                        next[at + 1] = true;
                    }
                }
            }
        }
        reached = next;
    }
    reached[text.len()]
}

fn takes(token: &Token, c: char) -> bool {
    match token {
        Token::Star => false,
        Token::AnyOne => c != '/',
        Token::Literal(literal) => *literal == c,
        Token::Class { negated, ranges } => {
            ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
        }
    }
}

/// `None` if the pattern is malformed.
fn tokens(pattern: &str) -> Option<Vec<Token>> {
    let mut chars = pattern.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Star,
            '?' => Token::AnyOne,
            '\\' => Token::Literal(chars.next()?),
            '[' => class(&mut chars)?,
            literal => Token::Literal(literal),
        });
    }
    Some(tokens)
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Token> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
            return Some(Token::Class { negated, ranges });
        }
        let low = member(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { member(chars)? } else { low };
        ranges.push((low, high));
    }
}

/// One end of a range. `-` and `]` need a backslash, and something has to follow: at least the closing bracket.
fn member(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    let c = match chars.next()? {
        '-' | ']' => return None,
        '\\' => chars.next()?,
        plain => plain,
    };
    chars.peek().map(|_| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let vectors = [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*", "", true),
            ("*", "main", true),
            ("*", "team/x", false),
            ("*/x", "team/x", true),
            ("*/*", "team/x", true),
            ("*/*", "a/b/c", false),
            ("hotfix/*", "hotfix/1", true),
            ("hotfix/*", "hotfix/", true),
            ("hotfix/*", "hotfix/a/b", false),
            ("*c", "abc", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("release-?", "release-1", true),
            ("release-?", "release-12", false),
            ("a?b", "a/b", false),
            ("a?b", "a\u{263a}b", true),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a[^x]b", "a/b", true),
            ("[a-\u{3b6}]*", "\u{3b1}", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("[\\]a]", "]", true),
            ("[\\-]", "-", true),
            ("[x\\-]", "-", true),
            ("[\\-x]", "a", false),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, expected) in vectors {
            assert_eq!(matches(pattern, text), Ok(expected), "{pattern} on {text}");
        }
    }

    #[test]
    fn malformed_patterns_are_errors_whatever_the_text() {
        for pattern in
            ["[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "[", "[^", "[^bc", "a[", "a\\", "[a", "x[\\"]
        {
            for text in ["", "a", "main"] {
                assert_eq!(matches(pattern, text), Err(BadPattern { pattern: pattern.into() }), "{pattern}");
            }
        }
    }

    #[test]
    fn a_malformed_pattern_admits_nothing_and_spoils_nothing() {
        assert!(any_matches(&["[", "main"], "main"));
        assert!(!any_matches(&["["], "["));
        assert!(!any_matches::<&str>(&[], "main"));
    }
}
