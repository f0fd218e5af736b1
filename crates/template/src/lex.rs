//! Cuts a template into tokens. In: text. Out: tokens, the last of which is [`Kind::End`] or [`Kind::Bad`].
//!
//! The rules are those of Go's lexer, state by state; a token's text is its part of the template.

use crate::error::Fault;

/// Sorts of tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Outside of actions; blanks that a marker trims are gone.
    Text,
    LeftDelimiter,
    RightDelimiter,
    Space,
    /// `=`.
    Assign,
    /// `:=`.
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Dot,
    /// `.name`.
    Field,
    /// `$` or `$name`.
    Variable,
    /// A word, keywords included.
    Word,
    Number,
    /// `'c'`.
    Character,
    /// `"text"`.
    Quoted,
    /// Between backticks.
    Raw,
    /// Any other printable character.
    Other,
    /// End of the template.
    End,
    /// Nothing can be read from here on.
    Bad(String),
}

/// A token.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind,
    pub(crate) position: usize,
    pub(crate) text: &'t str,
}

/// What blanks are; also what trim markers trim.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Cuts a template into tokens.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, position: 0, start: 0, parens: 0, tokens: Vec::new() };
    let end = lexer.outside().err();
    let kind = end.map_or(Kind::End, |fault| Kind::Bad(fault.message));
    lexer.tokens.push(Token { kind, position: lexer.start.min(text.len()), text: "" });
    lexer.tokens
}

struct Lexer<'t> {
    text: &'t str,
    position: usize,
    start: usize,
    parens: usize,
    tokens: Vec<Token<'t>>,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    fn accept(&mut self, set: &str) -> bool {
        let found = self.peek().is_some_and(|character| set.contains(character));
        if found {
            self.next();
        }
        found
    }

    fn accept_all(&mut self, set: &str) {
        while self.accept(set) {}
    }

    fn emit(&mut self, kind: Kind) {
        self.tokens.push(Token { kind, position: self.start, text: &self.text[self.start..self.position] });
        self.start = self.position;
    }

    fn skip(&mut self, bytes: usize) {
        self.position += bytes;
        self.start = self.position;
    }

    fn outside(&mut self) -> Result<(), Fault> {
        while let Some(length) = self.rest().find("{{") {
            let piece = &self.rest()[..length];
            let trims = begins_with_left_marker(&self.rest()[length + 2..]);
            let kept = if trims { piece.trim_end_matches(BLANKS).len() } else { length };
            self.position += kept;
            if kept > 0 {
                self.emit(Kind::Text);
            }
            self.skip(length - kept);
            self.delimiter(if trims { 2 } else { 0 })?;
        }
        self.position = self.text.len();
        if self.position > self.start {
            self.emit(Kind::Text);
        }
        Ok(())
    }

    fn delimiter(&mut self, marker: usize) -> Result<(), Fault> {
        if self.rest()[2 + marker..].starts_with("/*") {
            self.skip(2 + marker);
            return self.comment();
        }
        self.position += 2;
        self.emit(Kind::LeftDelimiter);
        self.skip(marker);
        self.parens = 0;
        self.inside()
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let Some(length) = self.rest()[2..].find("*/") else {
            return Err(Fault::syntax("this comment has no end: close it with */}}"));
        };
        self.skip(2 + length + 2);
        let Some(delimiter) = self.right_delimiter() else {
            return Err(Fault::syntax("a comment has to fill its braces: }} must follow */ at once"));
        };
        self.skip(delimiter);
        self.trim_after(delimiter);
        Ok(())
    }

    /// Length of the right delimiter that stands here: 4 with a trim marker, 2 without.
    fn right_delimiter(&self) -> Option<usize> {
        let rest = self.rest();
        if rest.starts_with(BLANKS) && rest[1..].starts_with("-}}") {
            Some(4)
        } else {
            rest.starts_with("}}").then_some(2)
        }
    }

    fn trim_after(&mut self, delimiter: usize) {
        if delimiter == 4 {
            let trimmed = self.rest().trim_start_matches(BLANKS);
            self.skip(self.rest().len() - trimmed.len());
        }
    }

    /// Everything up to the right delimiter, this included.
    fn inside(&mut self) -> Result<(), Fault> {
        loop {
            if let Some(length) = self.right_delimiter() {
                if self.parens > 0 {
                    return Err(Fault::syntax("a parenthesis is not closed"));
                }
                self.skip(length - 2);
                self.position += 2;
                self.emit(Kind::RightDelimiter);
                self.trim_after(length);
                return Ok(());
            }
            self.token()?;
        }
    }

    fn token(&mut self) -> Result<(), Fault> {
        let Some(character) = self.next() else {
            return Err(Fault::syntax("these braces have no end: close them with }}"));
        };
        let kind = match character {
            ' ' | '\t' | '\r' | '\n' => self.space(),
            '=' => Kind::Assign,
            ':' if self.accept("=") => Kind::Declare,
            ':' => return Err(Fault::syntax("a colon must be part of :=")),
            '|' => Kind::Pipe,
            '"' => self.quoted('"', Kind::Quoted)?,
            '\'' => self.quoted('\'', Kind::Character)?,
            '`' => self.raw()?,
            '$' => self.name(Kind::Variable, Kind::Variable)?,
            '.' if !self.peek().is_some_and(|next| next.is_ascii_digit()) => {
                self.name(Kind::Dot, Kind::Field)?
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.position -= 1;
                self.number()?
            }
            '(' => {
                self.parens += 1;
                Kind::LeftParen
            }
            ')' => {
                let Some(left) = self.parens.checked_sub(1) else {
                    return Err(Fault::syntax("a closing parenthesis without an opening one"));
                };
                self.parens = left;
                Kind::RightParen
            }
            letter if is_alphanumeric(letter) => self.name(Kind::Word, Kind::Word)?,
            '!'..='~' => Kind::Other,
            other => {
                return Err(Fault::syntax(format!("the character {other:?} means nothing between braces")));
            }
        };
        if self.position > self.start {
            self.emit(kind);
        }
        Ok(())
    }

    /// A row of blanks, without the one that belongs to a trimming delimiter.
    fn space(&mut self) -> Kind {
        while self.peek().is_some_and(|next| BLANKS.contains(&next)) {
            self.next();
        }
        if self.rest().starts_with("-}}") {
            self.position -= 1;
        }
        Kind::Space
    }

    /// A word, field or variable. `bare` is what it is if no name follows.
    fn name(&mut self, bare: Kind, named: Kind) -> Result<Kind, Fault> {
        if self.at_end_of_name() && !matches!(bare, Kind::Word) {
            return Ok(bare);
        }
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        match self.peek() {
            Some(character) if !self.at_end_of_name() => Err(Fault::syntax(format!(
                "the character {character:?} cannot stand in a name: put a blank before it"
            ))),
            _ => Ok(named),
        }
    }

    fn at_end_of_name(&self) -> bool {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(_) => self.rest().starts_with("}}"),
        }
    }

    fn quoted(&mut self, end: char, kind: Kind) -> Result<Kind, Fault> {
        loop {
            match self.next() {
                Some('\\') if self.peek().is_some_and(|next| next != '\n') => {
                    self.next();
                }
                None | Some('\n' | '\\') => {
                    return Err(Fault::syntax(format!("a {end} is missing at the end of this text")));
                }
                Some(character) if character == end => return Ok(kind),
                Some(_) => {}
            }
        }
    }

    fn raw(&mut self) -> Result<Kind, Fault> {
        let length =
            self.rest().find('`').ok_or_else(|| Fault::syntax("a ` is missing at the end of this text"))?;
        self.position += length + 1;
        Ok(Kind::Raw)
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        if !self.scan_number() {
            return Err(Fault::syntax(
                "this is not a number; put a blank behind it if something else follows",
            ));
        }
        if self.peek().is_some_and(|next| next == '+' || next == '-') {
            return Err(Fault::syntax("this is not a number; templates cannot add or subtract"));
        }
        Ok(Kind::Number)
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_all(digits);
        if self.accept(".") {
            self.accept_all(digits);
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_all("0123456789_");
        }
        self.accept("i");
        !self.peek().is_some_and(is_alphanumeric)
    }
}

fn begins_with_left_marker(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(BLANKS))
}

fn is_alphanumeric(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}
