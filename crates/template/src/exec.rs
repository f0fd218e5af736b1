//! Runs a template. In: its tree and a value. Out: text, or the first fault.

use std::sync::Arc;

use crate::ast::{Binding, Branch, Command, Dot, Node, Number, Operand, Pipe, Term};
use crate::error::{At, Fault, Placed};
use crate::format;
use crate::function::Function;
use crate::limits::{MAX_DEPTH, Meter, Sink};
use crate::parse::{MAIN, Templates};
use crate::value::Value;

type Done<T> = Result<T, Placed>;

/// Runs the main template.
pub(crate) fn render(templates: &Templates, data: &Value) -> Done<String> {
    let mut meter = Meter::new();
    let mut run = Run {
        templates,
        variables: vec![("$", data.clone())],
        visible_from: 0,
        out: Sink::new(&mut meter),
        depth: 0,
    };
    if let Some(nodes) = templates.get(MAIN) {
        run.nodes(nodes, data)?;
    }
    Ok(run.out.text)
}

/// What comes after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct Run<'t, 'm> {
    templates: &'t Templates,
    /// Declared later, found first.
    variables: Vec<(&'t str, Value)>,
    /// Where those of the running template begin: it sees none of its caller's.
    visible_from: usize,
    out: Sink<'m>,
    depth: usize,
}

impl<'t> Run<'t, '_> {
    fn spend(&mut self, steps: usize, position: usize) -> Done<()> {
        self.out.meter.spend(steps).at(position)
    }

    fn nodes(&mut self, nodes: &'t [Node], dot: &Value) -> Done<Flow> {
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &'t Node, dot: &Value) -> Done<Flow> {
        match node {
            Node::Text(text) => self.out.put(text).at(0)?,
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    format::action(&mut self.out, &value).at(pipe.position)?;
                }
            }
            Node::Choice { with, branches, otherwise } => {
                return self.choice(*with, branches, otherwise, dot);
            }
            Node::Range { pipe, body, otherwise } => return self.range(pipe, body, otherwise, dot),
            Node::Template { position, name, pipe } => self.template(*position, name, pipe.as_ref(), dot)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Everything that nests goes through here.
    fn deeper<T>(&mut self, position: usize, inner: impl FnOnce(&mut Self) -> Done<T>) -> Done<T> {
        self.spend(1, position)?;
        if self.depth >= MAX_DEPTH {
            return Err(Fault::limit(format!("more than {MAX_DEPTH} levels; does a template call itself?")))
                .at(position);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn choice(
        &mut self,
        with: Dot,
        branches: &'t [Branch],
        otherwise: &'t [Node],
        dot: &Value,
    ) -> Done<Flow> {
        let mark = self.variables.len();
        let mut chosen = (otherwise, dot.clone());
        for Branch { pipe, body } in branches {
            let value = self.pipe(pipe, dot)?;
            if value.is_true() {
                chosen = (body, if with == Dot::Changed { value } else { dot.clone() });
                break;
            }
        }
        let (nodes, dot) = chosen;
        let position = branches.first().map_or(0, |branch| branch.pipe.position);
        let flow = self.deeper(position, |run| run.nodes(nodes, &dot))?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn range(&mut self, pipe: &'t Pipe, body: &'t [Node], otherwise: &'t [Node], dot: &Value) -> Done<Flow> {
        let mark = self.variables.len();
        let value = self.pipe(pipe, dot)?;
        let mut turns = 0;
        let mut turn = |run: &mut Self, index: Value, item: Value| {
            turns += 1;
            run.turn(pipe, body, index, item)
        };
        match &value {
            Value::Nil => {}
            Value::List(items) => {
                for (index, item) in (0..).zip(items.iter()) {
                    if turn(self, Value::Int(index), item.clone())? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, item) in &map.entries {
                    if turn(self, Value::Text(Arc::clone(key)), item.clone())? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Int(_) | Value::Byte(_) if pipe.variables.len() > 1 => {
                return Err(Fault::data("a range over a number has one variable")).at(pipe.position);
            }
            Value::Int(count) => {
                for number in 0..*count {
                    if turn(self, Value::Nil, Value::Int(number))? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Byte(count) => {
                for number in 0..*count {
                    if turn(self, Value::Nil, Value::Byte(number))? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Record(_) => {
                let fault = Fault::data(format!("a {} holds nothing to range over", value.type_name()));
                return Err(fault).at(pipe.position);
            }
        }
        let flow = if turns == 0 {
            self.deeper(pipe.position, |run| run.nodes(otherwise, dot))?
        } else {
            Flow::Next
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn turn(&mut self, pipe: &'t Pipe, body: &'t [Node], index: Value, item: Value) -> Done<Flow> {
        let mark = self.variables.len();
        match (&pipe.variables[..], pipe.binding) {
            ([], _) => {}
            ([one], Binding::Assign) => self.assign(one, item.clone(), pipe.position)?,
            ([first, second, ..], Binding::Assign) => {
                self.assign(first, index, pipe.position)?;
                self.assign(second, item.clone(), pipe.position)?;
            }
            ([_], Binding::Declare) => self.set_from_top(1, item.clone()),
            ([_, _, ..], Binding::Declare) => {
                self.set_from_top(1, item.clone());
                self.set_from_top(2, index);
            }
        }
        let flow = self.deeper(pipe.position, |run| run.nodes(body, &item))?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn set_from_top(&mut self, place: usize, value: Value) {
        let place = self.variables.len().checked_sub(place);
        if let Some((_, slot)) = place.and_then(|place| self.variables.get_mut(place)) {
            *slot = value;
        }
    }

    fn template(&mut self, position: usize, name: &str, pipe: Option<&'t Pipe>, dot: &Value) -> Done<()> {
        let Some(nodes) = self.templates.get(name) else {
            return Err(Fault::data(format!("there is no template {name:?}"))).at(position);
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => Value::Nil,
        };
        let (mark, outer) = (self.variables.len(), self.visible_from);
        self.visible_from = mark;
        self.variables.push(("$", dot.clone()));
        self.deeper(position, |run| run.nodes(nodes, &dot))?;
        self.variables.truncate(mark);
        self.visible_from = outer;
        Ok(())
    }

    fn pipe(&mut self, pipe: &'t Pipe, dot: &Value) -> Done<Value> {
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.deeper(pipe.position, |run| run.command(command, dot, value))?);
        }
        let value = value.unwrap_or(Value::Nil);
        for name in &pipe.variables {
            match pipe.binding {
                Binding::Declare => self.variables.push((name, value.clone())),
                Binding::Assign => self.assign(name, value.clone(), pipe.position)?,
            }
        }
        Ok(value)
    }

    /// Place of the variable that is meant.
    fn find(&mut self, name: &str, position: usize) -> Done<usize> {
        let visible = &self.variables[self.visible_from..];
        let behind = visible.iter().rev().position(|(known, _)| *known == name);
        let seen = behind.unwrap_or(visible.len());
        let place = behind.map(|behind| self.variables.len() - 1 - behind);
        self.spend(seen / 16, position)?;
        place
            .ok_or_else(|| Fault::data(format!("the variable {name} was not declared on the way here")))
            .at(position)
    }

    fn assign(&mut self, name: &str, value: Value, position: usize) -> Done<()> {
        let place = self.find(name, position)?;
        self.variables[place].1 = value;
        Ok(())
    }

    /// `last` is what the command before the `|` yielded.
    fn command(&mut self, command: &'t Command, dot: &Value, last: Option<Value>) -> Done<Value> {
        let first = &command.first;
        if let (Term::Function(function), []) = (&first.term, &first.fields[..]) {
            return self.call(*function, first.position, &command.rest, dot, last);
        }
        if !command.rest.is_empty() || last.is_some() {
            return Err(Fault::data("only functions take arguments, and this is none")).at(first.position);
        }
        if matches!(first.term, Term::Nil) {
            return Err(Fault::data("nil alone is no value")).at(first.position);
        }
        self.operand(first, dot)
    }

    fn call(
        &mut self,
        function: Function,
        position: usize,
        words: &'t [Operand],
        dot: &Value,
        last: Option<Value>,
    ) -> Done<Value> {
        function.check_count(words.len() + usize::from(last.is_some())).at(position)?;
        let mut arguments = Vec::with_capacity(words.len() + 1);
        for word in words {
            let value = self.operand(word, dot)?;
            let decided = (function == Function::And && !value.is_true())
                || (function == Function::Or && value.is_true());
            if decided {
                return Ok(value);
            }
            arguments.push(value);
        }
        arguments.extend(last);
        function.call(&arguments, self.out.meter).at(position)
    }

    fn operand(&mut self, operand: &'t Operand, dot: &Value) -> Done<Value> {
        let position = operand.position;
        self.spend(1, position)?;
        let mut value = match &operand.term {
            Term::Dot | Term::Field => dot.clone(),
            Term::Nil => Value::Nil,
            Term::Bool(value) => Value::Bool(*value),
            Term::Number(Number::Int(number)) => Value::Int(*number),
            Term::Number(Number::Float(number)) => Value::Float(*number),
            Term::Number(Number::TooLarge) => {
                return Err(Fault::data("this number does not fit a signed integer of 64 bits")).at(position);
            }
            Term::Text(text) => Value::Text(Arc::clone(text)),
            Term::Variable(name) => {
                let place = self.find(name, position)?;
                self.variables[place].1.clone()
            }
            Term::Function(function) => self.call(*function, position, &[], dot, None)?,
            Term::Paren(pipe) => self.pipe(pipe, dot)?,
        };
        for name in &operand.fields {
            value = field(&value, name).at(position)?;
        }
        Ok(value)
    }
}

fn field(value: &Value, name: &Arc<str>) -> Result<Value, Fault> {
    let (found, known): (_, Vec<&str>) = match value {
        Value::Record(record) => {
            let found = record.fields.iter().find(|(known, _)| **known == **name).map(|(_, value)| value);
            (found, record.fields.iter().map(|(known, _)| *known).collect())
        }
        Value::Map(map) => {
            (map.entries.get(name), map.entries.keys().take(20).map(|known| &**known).collect())
        }
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Byte(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_) => {
            let what = if *value == Value::Nil { "nothing" } else { value.type_name() };
            return Err(Fault::data(format!("there is no .{name} in {what}")));
        }
    };
    found
        .cloned()
        .ok_or_else(|| Fault::data(format!("there is no .{name} here; there are {}", known.join(", "))))
}
