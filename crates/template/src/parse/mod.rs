//! Builds the tree of a template from its tokens. In: text. Out: the named templates in it, the main one included.
//!
//! What is accepted is what Go's parser accepts, quirks included (`{{1 |}}` is one of them), less what limits and
//! unsupported features forbid.

mod pipe;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Branch, Dot, Node};
use crate::error::{At, Fault, Placed, TemplateError};
use crate::lex::{Kind, Token, tokens};
use crate::limits::{MAX_NESTING, MAX_TEMPLATE};
use crate::literal;

/// Name of the main template, for those that define one of this name, too.
pub(crate) const MAIN: &str = "message";

/// The named templates of a text.
pub(crate) type Templates = BTreeMap<Arc<str>, Vec<Node>>;

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<Templates, TemplateError> {
    if text.len() > MAX_TEMPLATE {
        let fault = Fault::limit(format!("the template is longer than {MAX_TEMPLATE} bytes"));
        return Err(fault.at(text, 0));
    }
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
        nesting: 0,
        scope: Scope::new(),
        templates: Templates::new(),
    };
    let main = parser.main().and_then(|nodes| parser.add(MAIN.into(), nodes, 0));
    main.map_err(|placed| placed.fault.at(text, placed.position))?;
    Ok(parser.templates)
}

type Parsed<T> = Result<T, Placed>;

/// What is visible; a named template begins anew.
struct Scope {
    variables: Vec<Arc<str>>,
    ranges: usize,
}

impl Scope {
    fn new() -> Self {
        Self { variables: vec!["$".into()], ranges: 0 }
    }
}

/// What ended a list of nodes.
#[derive(PartialEq, Eq)]
enum Stop {
    End,
    /// Braces and all.
    Else,
    /// The word behind `else` comes next.
    ElseWord,
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    next: usize,
    nesting: usize,
    scope: Scope,
    templates: Templates,
}

impl<'t> Parser<'t> {
    /// The lexer always ends with a token, and reading stays there.
    fn peek(&self) -> &Token<'t> {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn peek_behind_space(&mut self) -> &Token<'t> {
        while self.peek().kind == Kind::Space {
            self.next += 1;
        }
        self.peek()
    }

    fn position(&self) -> usize {
        self.peek().position
    }

    fn is_word(&self, word: &str) -> bool {
        self.peek().kind == Kind::Word && self.peek().text == word
    }

    fn fail<T>(&self, fault: Fault) -> Parsed<T> {
        Err(fault).at(self.position())
    }

    /// The next token does not belong here.
    fn unexpected<T>(&self, context: &str) -> Parsed<T> {
        let token = self.peek();
        match &token.kind {
            Kind::Bad(message) => self.fail(Fault::syntax(message.clone())),
            Kind::End => self.fail(Fault::syntax("the template ends too early: an {{end}} is missing")),
            _ => self.fail(Fault::syntax(format!("{:?} cannot stand in {context}", token.text))),
        }
    }

    fn expect(&mut self, kind: &Kind, context: &str) -> Parsed<()> {
        if self.peek_behind_space().kind != *kind {
            return self.unexpected(context);
        }
        self.next += 1;
        Ok(())
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= MAX_NESTING {
            return self.fail(Fault::limit(format!("nested deeper than {MAX_NESTING} levels")));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn main(&mut self) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        while self.peek().kind != Kind::End {
            if self.peek().kind != Kind::LeftDelimiter {
                nodes.push(self.text()?);
                continue;
            }
            let position = self.position();
            self.next += 1;
            self.peek_behind_space();
            if self.is_word("define") {
                self.next += 1;
                self.define(position)?;
                continue;
            }
            match self.action()? {
                Ok(node) => nodes.push(node),
                Err(_) => return Err(stray()).at(position),
            }
        }
        Ok(nodes)
    }

    fn text(&mut self) -> Parsed<Node> {
        let token = self.peek();
        if token.kind != Kind::Text {
            return self.unexpected("the text");
        }
        let node = Node::Text(token.text.into());
        self.next += 1;
        Ok(node)
    }

    fn define(&mut self, position: usize) -> Parsed<()> {
        let name = self.template_name("define")?;
        self.expect(&Kind::RightDelimiter, "define")?;
        let nodes = self.body_of_its_own(position)?;
        self.add(name, nodes, position)
    }

    /// The nodes of `define` or `block`, with nothing of the scope around them.
    fn body_of_its_own(&mut self, position: usize) -> Parsed<Vec<Node>> {
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        let (nodes, stop) = self.deeper(Self::nodes)?;
        self.scope = outer;
        if stop == Stop::End { Ok(nodes) } else { Err(stray()).at(position) }
    }

    /// A template may be defined again only if one of the two is blank.
    fn add(&mut self, name: Arc<str>, nodes: Vec<Node>, position: usize) -> Parsed<()> {
        match self.templates.get(&name) {
            Some(known) if !is_blank(known) => {
                if !is_blank(&nodes) {
                    return Err(Fault::syntax(format!("the template {name:?} is defined twice")))
                        .at(position);
                }
            }
            _ => {
                self.templates.insert(name, nodes);
            }
        }
        Ok(())
    }

    /// Nodes up to `end` or `else`.
    fn nodes(&mut self) -> Parsed<(Vec<Node>, Stop)> {
        let mut nodes = Vec::new();
        loop {
            if self.peek().kind != Kind::LeftDelimiter {
                nodes.push(self.text()?);
                continue;
            }
            self.next += 1;
            self.peek_behind_space();
            match self.action()? {
                Ok(node) => nodes.push(node),
                Err(stop) => return Ok((nodes, stop)),
            }
        }
    }

    /// What stands between braces. The inner error is no fault, but the end of a list.
    fn action(&mut self) -> Parsed<Result<Node, Stop>> {
        let word = if self.peek().kind == Kind::Word { self.peek().text } else { "" };
        let keyword = self.next + 1;
        let node = match word {
            "if" => self.control(keyword, Dot::Kept, word),
            "with" => self.control(keyword, Dot::Changed, word),
            "range" => self.range(keyword),
            "template" => self.template(keyword),
            "block" => self.block(keyword),
            "break" | "continue" => self.leave_loop(word),
            "end" => {
                self.next = keyword;
                self.expect(&Kind::RightDelimiter, "end")?;
                return Ok(Err(Stop::End));
            }
            "else" => {
                self.next = keyword;
                self.peek_behind_space();
                if self.is_word("if") || self.is_word("with") {
                    return Ok(Err(Stop::ElseWord));
                }
                self.expect(&Kind::RightDelimiter, "else")?;
                return Ok(Err(Stop::Else));
            }
            _ => self.pipe("an action", &Kind::RightDelimiter).map(Node::Action),
        };
        node.map(Ok)
    }

    fn leave_loop(&mut self, word: &str) -> Parsed<Node> {
        if self.scope.ranges == 0 {
            return self.fail(Fault::syntax(format!("{{{{{word}}}}} stands outside of any range")));
        }
        self.next += 1;
        self.expect(&Kind::RightDelimiter, word)?;
        Ok(if word == "break" { Node::Break } else { Node::Continue })
    }

    /// `if` and `with`: a chain of `else if` is one node, so that its length costs no depth.
    fn control(&mut self, start: usize, with: Dot, word: &'t str) -> Parsed<Node> {
        self.next = start;
        let visible = self.scope.variables.len();
        let mut branches = Vec::new();
        loop {
            let pipe = self.pipe(word, &Kind::RightDelimiter)?;
            let (body, stop) = self.deeper(Self::nodes)?;
            branches.push(Branch { pipe, body });
            if stop == Stop::ElseWord && self.is_word(word) {
                self.next += 1;
                continue;
            }
            let otherwise = self.otherwise(&stop)?;
            self.scope.variables.truncate(visible);
            return Ok(Node::Choice { with, branches, otherwise });
        }
    }

    fn range(&mut self, start: usize) -> Parsed<Node> {
        self.next = start;
        let visible = self.scope.variables.len();
        let pipe = self.pipe("range", &Kind::RightDelimiter)?;
        self.scope.ranges += 1;
        let (body, stop) = self.deeper(Self::nodes)?;
        self.scope.ranges -= 1;
        let otherwise = self.otherwise(&stop)?;
        self.scope.variables.truncate(visible);
        Ok(Node::Range { pipe, body, otherwise })
    }

    /// What follows a plain `else`, with the `end` behind it.
    fn otherwise(&mut self, stop: &Stop) -> Parsed<Vec<Node>> {
        match stop {
            Stop::End => Ok(Vec::new()),
            Stop::ElseWord => self.unexpected("this else"),
            Stop::Else => {
                let position = self.position();
                let (nodes, stop) = self.deeper(Self::nodes)?;
                if stop == Stop::End {
                    Ok(nodes)
                } else {
                    Err(Fault::syntax("a second else; only the last may lack a condition")).at(position)
                }
            }
        }
    }

    fn template(&mut self, start: usize) -> Parsed<Node> {
        self.next = start;
        let position = self.position();
        let name = self.template_name("template")?;
        if self.peek_behind_space().kind == Kind::RightDelimiter {
            self.next += 1;
            return Ok(Node::Template { position, name, pipe: None });
        }
        let pipe = self.pipe("template", &Kind::RightDelimiter)?;
        Ok(Node::Template { position, name, pipe: Some(pipe) })
    }

    fn block(&mut self, start: usize) -> Parsed<Node> {
        self.next = start;
        let position = self.position();
        let name = self.template_name("block")?;
        let pipe = self.pipe("block", &Kind::RightDelimiter)?;
        let nodes = self.body_of_its_own(position)?;
        self.add(Arc::clone(&name), nodes, position)?;
        Ok(Node::Template { position, name, pipe: Some(pipe) })
    }

    fn template_name(&mut self, context: &str) -> Parsed<Arc<str>> {
        let token = self.peek_behind_space();
        if !matches!(token.kind, Kind::Quoted | Kind::Raw) {
            return self.unexpected(context);
        }
        let name = literal::text(token.text).at(token.position)?;
        self.next += 1;
        Ok(name.into())
    }
}

fn stray() -> Fault {
    Fault::syntax("an else or end without its if, with or range")
}

fn is_blank(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Text(text) => text.trim().is_empty(),
        Node::Action(_)
        | Node::Choice { .. }
        | Node::Range { .. }
        | Node::Template { .. }
        | Node::Break
        | Node::Continue => false,
    })
}
