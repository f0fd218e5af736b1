//! Pipes, commands and their words: what stands between braces besides keywords.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::ast::{Binding, Command, Number, Operand, Pipe, Term};
use crate::error::{At, Fault};
use crate::function::Function;
use crate::lex::Kind;
use crate::literal;

impl Parser<'_> {
    pub(super) fn pipe(&mut self, context: &str, end: &Kind) -> Parsed<Pipe> {
        self.peek_behind_space();
        let mut pipe = Pipe {
            position: self.position(),
            variables: Vec::new(),
            binding: Binding::Declare,
            commands: Vec::new(),
        };
        self.variables(context, &mut pipe)?;
        while self.peek_behind_space().kind != *end {
            if !self.begins_command() {
                return self.unexpected(context);
            }
            pipe.commands.push(self.command()?);
        }
        self.check_pipe(&pipe, context)?;
        self.next += 1;
        Ok(pipe)
    }

    fn begins_command(&self) -> bool {
        matches!(
            self.peek().kind,
            Kind::Character
                | Kind::Dot
                | Kind::Field
                | Kind::Word
                | Kind::Number
                | Kind::Raw
                | Kind::Quoted
                | Kind::Variable
                | Kind::LeftParen
        )
    }

    /// `$a, $b :=` in front of a pipe.
    fn variables(&mut self, context: &str, pipe: &mut Pipe) -> Parsed<()> {
        while self.peek_behind_space().kind == Kind::Variable {
            let (start, name) = (self.next, Arc::from(self.peek().text));
            self.next += 1;
            let token = self.peek_behind_space();
            if matches!(token.kind, Kind::Assign | Kind::Declare) {
                let assigns = token.kind == Kind::Assign;
                pipe.binding = if assigns { Binding::Assign } else { Binding::Declare };
                self.declare(pipe, name);
                return Ok(());
            }
            if token.text != "," {
                self.next = start;
                return Ok(());
            }
            self.declare(pipe, name);
            if context != "range" || pipe.variables.len() > 1 {
                return self.fail(Fault::syntax(format!("too many variables in {context}")));
            }
            let next = &self.peek_behind_space().kind;
            if !matches!(next, Kind::Variable | Kind::RightDelimiter | Kind::RightParen) {
                return self.fail(Fault::syntax("a range declares variables and nothing else"));
            }
        }
        Ok(())
    }

    fn declare(&mut self, pipe: &mut Pipe, name: Arc<str>) {
        self.next += 1;
        pipe.variables.push(Arc::clone(&name));
        self.scope.variables.push(name);
    }

    fn check_pipe(&self, pipe: &Pipe, context: &str) -> Parsed<()> {
        let Some((_, later)) = pipe.commands.split_first() else {
            return self.fail(Fault::syntax(format!("a value is missing in {context}")));
        };
        let constant = |command: &&Command| match command.first.term {
            Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::Text(_) => true,
            Term::Field | Term::Variable(_) | Term::Function(_) | Term::Paren(_) => false,
        };
        match later.iter().find(constant) {
            None => Ok(()),
            Some(command) => {
                Err(Fault::syntax("only a function can stand behind a |")).at(command.first.position)
            }
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        let mut operands = Vec::new();
        loop {
            self.peek_behind_space();
            operands.extend(self.operand()?);
            if self.peek().kind == Kind::Space {
                continue;
            }
            if self.peek().kind == Kind::Pipe {
                self.next += 1;
                break;
            }
            if matches!(self.peek().kind, Kind::RightDelimiter | Kind::RightParen) {
                break;
            }
            return self.unexpected("a command");
        }
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(first) => Ok(Command { first, rest: operands.collect() }),
            None => self.fail(Fault::syntax("a command is empty")),
        }
    }

    /// A term with the fields behind it. None if the next token begins no term.
    fn operand(&mut self) -> Parsed<Option<Operand>> {
        self.peek_behind_space();
        let position = self.position();
        let Some(term) = self.term()? else { return Ok(None) };
        let mut fields = Vec::new();
        if matches!(term, Term::Field) {
            self.next -= 1;
        } else if self.peek().kind == Kind::Field
            && matches!(term, Term::Bool(_) | Term::Text(_) | Term::Number(_) | Term::Nil | Term::Dot)
        {
            return self.fail(Fault::syntax("a constant has no fields"));
        }
        while self.peek().kind == Kind::Field {
            fields.push(self.peek().text[1..].into());
            self.next += 1;
        }
        Ok(Some(Operand { position, term, fields }))
    }

    fn term(&mut self) -> Parsed<Option<Term>> {
        let token = self.peek();
        let (position, text) = (token.position, token.text);
        let term = match token.kind {
            Kind::Dot => Term::Dot,
            Kind::Field => Term::Field,
            Kind::Number => Term::Number(literal::number(text).at(position)?),
            Kind::Character => Term::Number(Number::Int(literal::character(text).at(position)?)),
            Kind::Quoted | Kind::Raw => Term::Text(literal::text(text).at(position)?.into()),
            Kind::Variable => self.variable(text)?,
            Kind::LeftParen => {
                self.next += 1;
                let pipe = self.deeper(|parser| parser.pipe("parentheses", &Kind::RightParen))?;
                return Ok(Some(Term::Paren(Box::new(pipe))));
            }
            Kind::Word => match text {
                "nil" => Term::Nil,
                "true" => Term::Bool(true),
                "false" => Term::Bool(false),
                "block" | "break" | "continue" | "define" | "else" | "end" | "if" | "range" | "template"
                | "with" => return Ok(None),
                name => Term::Function(Function::named(name).at(position)?),
            },
            Kind::Text
            | Kind::LeftDelimiter
            | Kind::RightDelimiter
            | Kind::Space
            | Kind::Assign
            | Kind::Declare
            | Kind::Pipe
            | Kind::RightParen
            | Kind::Other
            | Kind::End
            | Kind::Bad(_) => return Ok(None),
        };
        self.next += 1;
        Ok(Some(term))
    }

    fn variable(&self, name: &str) -> Parsed<Term> {
        match self.scope.variables.iter().find(|known| &***known == name) {
            Some(known) => Ok(Term::Variable(Arc::clone(known))),
            None => self
                .fail(Fault::syntax(format!("the variable {name} is not declared; write {name} := first"))),
        }
    }
}
