//! A parsed template. `position` is always a byte of the template's text, for error texts.

use std::sync::Arc;

use crate::function::Function;

/// A piece of a template.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Written as it is.
    Text(Arc<str>),
    /// Printed, unless it declares a variable.
    Action(Pipe),
    /// `if` and `with`, with all of their `else if` or `else with`.
    Choice { with: Dot, branches: Vec<Branch>, otherwise: Vec<Node> },
    /// `range`.
    Range { pipe: Pipe, body: Vec<Node>, otherwise: Vec<Node> },
    /// `template`, and `block` where it stands.
    Template { position: usize, name: Arc<str>, pipe: Option<Pipe> },
    /// `break`.
    Break,
    /// `continue`.
    Continue,
}

/// What the dot is inside a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dot {
    /// `if`: what it was.
    Kept,
    /// `with`: the value that was looked at.
    Changed,
}

/// One condition and what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipe,
    pub(crate) body: Vec<Node>,
}

/// `$a, $b := command | command`.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    pub(crate) position: usize,
    /// Names with their `$`.
    pub(crate) variables: Vec<Arc<str>>,
    pub(crate) binding: Binding,
    pub(crate) commands: Vec<Command>,
}

/// What happens to the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// `:=`, or no variables.
    Declare,
    /// `=`.
    Assign,
}

/// An operand and what it is given. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) first: Operand,
    pub(crate) rest: Vec<Operand>,
}

/// One word of a command.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) position: usize,
    pub(crate) term: Term,
    /// `.A.B` behind the term.
    pub(crate) fields: Vec<Arc<str>>,
}

/// What a word begins with.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    Text(Arc<str>),
    /// Only fields: they are those of the operand.
    Field,
    /// With its `$`.
    Variable(Arc<str>),
    Function(Function),
    Paren(Box<Pipe>),
}

/// A number in a template.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
    /// Fits 64 bits only without a sign; Go refuses it when it is used.
    TooLarge,
}
