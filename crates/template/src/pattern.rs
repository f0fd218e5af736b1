//! Takes the pattern of `printf` apart, with widths, `*` and `[n]`. In: a pattern and values. Out: text.

use crate::error::Fault;
use crate::format::{Flags, top};
use crate::limits::Sink;
use crate::value::Value;

/// Widths and precisions above this are none, in Go too.
const LARGEST: usize = 1_000_000;

pub(crate) struct Pattern<'p> {
    pattern: &'p str,
    values: &'p [Value],
    /// The next value.
    next: usize,
    /// A `[n]` was used, so nobody counts the values.
    reordered: bool,
    /// This verb's `[n]` makes sense.
    good_index: bool,
    /// The last thing read was `[n]`.
    after_index: bool,
}

impl<'p> Pattern<'p> {
    pub(crate) fn new(pattern: &'p str, values: &'p [Value]) -> Self {
        Self { pattern, values, next: 0, reordered: false, good_index: true, after_index: false }
    }

    pub(crate) fn write(mut self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        while let Some(length) = self.pattern.find('%') {
            sink.put(&self.pattern[..length])?;
            self.pattern = &self.pattern[length + 1..];
            self.good_index = true;
            self.verb(sink)?;
        }
        sink.put(self.pattern)?;
        self.extra(sink)
    }

    fn verb(&mut self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        let mut flags = self.flags();
        let simple = self.pattern.chars().next().filter(char::is_ascii_lowercase);
        if let (Some(verb), true) = (simple, self.next < self.values.len()) {
            self.pattern = &self.pattern[1..];
            return self.value(sink, flags, verb);
        }
        self.index();
        self.width(sink, &mut flags)?;
        self.precision(sink, &mut flags)?;
        if !self.after_index {
            self.index();
        }
        let Some(verb) = self.pattern.chars().next() else { return sink.put("%!(NOVERB)") };
        self.pattern = &self.pattern[verb.len_utf8()..];
        if verb == '%' {
            sink.put("%")
        } else if !self.good_index {
            sink.put(&format!("%!{verb}(BADINDEX)"))
        } else if self.next >= self.values.len() {
            sink.put(&format!("%!{verb}(MISSING)"))
        } else {
            self.value(sink, flags, verb)
        }
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        while let Some(flag) = self.pattern.chars().next() {
            match flag {
                '#' => flags.sharp = true,
                '0' => flags.zero = true,
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                ' ' => flags.space = true,
                _ => break,
            }
            self.pattern = &self.pattern[1..];
        }
        flags
    }

    fn value(&mut self, sink: &mut Sink<'_>, mut flags: Flags, verb: char) -> Result<(), Fault> {
        let Some(value) = self.values.get(self.next) else { return Ok(()) };
        self.next += 1;
        // Zeros on the right would make another number of it.
        flags.zero &= !flags.minus;
        match verb {
            'p' => return Err(Fault::unsupported("%p is not known here: values have no address")),
            'v' | 'w' if flags.sharp => {
                return Err(Fault::unsupported("%#v is not known here: write %v or %q"));
            }
            'v' | 'w' => {
                flags.names = flags.plus;
                flags.plus = false;
            }
            _ => {}
        }
        top(sink, flags, verb, value)
    }

    /// `[n]` chooses the next value.
    fn index(&mut self) {
        self.after_index = false;
        let Some(behind) = self.pattern.strip_prefix('[') else { return };
        self.reordered = true;
        let end = behind.find(']').filter(|_| behind.len() > 1);
        let Some(length) = end else {
            self.good_index = false;
            self.pattern = behind;
            return;
        };
        let number = &behind[..length];
        self.pattern = &behind[length + 1..];
        let chosen = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<usize>().ok());
        match chosen.flatten() {
            Some(place) => {
                self.after_index = true;
                match place.checked_sub(1).filter(|place| *place < self.values.len()) {
                    Some(place) => self.next = place,
                    None => self.good_index = false,
                }
            }
            None => self.good_index = false,
        }
    }

    fn width(&mut self, sink: &mut Sink<'_>, flags: &mut Flags) -> Result<(), Fault> {
        if self.pattern.starts_with('*') {
            self.pattern = &self.pattern[1..];
            match self.star() {
                Some(width) => {
                    if width < 0 {
                        flags.minus = true;
                        flags.zero = false;
                    }
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => sink.put("%!(BADWIDTH)")?,
            }
            self.after_index = false;
            return Ok(());
        }
        flags.width = self.number();
        if self.after_index && flags.width.is_some() {
            self.good_index = false;
        }
        Ok(())
    }

    fn precision(&mut self, sink: &mut Sink<'_>, flags: &mut Flags) -> Result<(), Fault> {
        // A dot at the very end is a verb to Go.
        if !self.pattern.starts_with('.') || self.pattern.len() < 2 {
            return Ok(());
        }
        self.pattern = &self.pattern[1..];
        if self.after_index {
            self.good_index = false;
        }
        self.index();
        if self.pattern.starts_with('*') {
            self.pattern = &self.pattern[1..];
            flags.precision = self.star().and_then(|precision| usize::try_from(precision).ok());
            if flags.precision.is_none() {
                sink.put("%!(BADPREC)")?;
            }
            self.after_index = false;
        } else {
            flags.precision = Some(self.number().unwrap_or(0));
        }
        Ok(())
    }

    /// The next value as a width or precision.
    fn star(&mut self) -> Option<i64> {
        let value = self.values.get(self.next)?;
        self.next += 1;
        let number = match value {
            Value::Int(number) => *number,
            Value::Byte(number) => i64::from(*number),
            Value::Nil
            | Value::Bool(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Record(_) => return None,
        };
        (-1_000_000..=1_000_000).contains(&number).then_some(number)
    }

    /// Digits, if there are any. A number that is too large ends the whole pattern, as in Go.
    fn number(&mut self) -> Option<usize> {
        let mut number: Option<usize> = None;
        while let Some(digit) = self.pattern.chars().next().and_then(|digit| digit.to_digit(10)) {
            if number.is_some_and(|number| number > LARGEST) {
                self.pattern = "";
                return None;
            }
            number = Some(number.unwrap_or(0) * 10 + usize::try_from(digit).unwrap_or(0));
            self.pattern = &self.pattern[1..];
        }
        number
    }

    /// Go names the values that no verb asked for.
    fn extra(&self, sink: &mut Sink<'_>) -> Result<(), Fault> {
        if self.reordered || self.next >= self.values.len() {
            return Ok(());
        }
        sink.put("%!(EXTRA ")?;
        for (index, value) in self.values[self.next..].iter().enumerate() {
            if index > 0 {
                sink.put(", ")?;
            }
            if *value != Value::Nil {
                sink.put(&format!("{}=", value.type_name()))?;
            }
            top(sink, Flags::default(), 'v', value)?;
        }
        sink.put(")")
    }
}
