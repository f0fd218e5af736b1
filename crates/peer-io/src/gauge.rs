//! A part of a gauge that is given back when it is dropped.

/// One more, as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted {
    name: &'static str,
    label: (&'static str, &'static str),
}

impl Counted {
    pub(crate) fn new(name: &'static str, key: &'static str, value: &'static str) -> Self {
        metrics::gauge!(name, key => value).increment(1.0);
        Self { name, label: (key, value) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (key, value) = self.label;
        metrics::gauge!(self.name, key => value).decrement(1.0);
    }
}
