//! A part of a world that most steps leave alone: shared until it is changed, hashed once.

use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What decides whether two values are the same for the search.
pub(crate) trait Digest: Clone {
    fn digest(&self, state: &mut impl Hasher);
}

#[derive(Clone)]
pub(crate) struct Part<T> {
    value: Arc<T>,
    /// Hash of the value; `None` since it was changed.
    hash: Option<u64>,
}

impl<T: Digest> Part<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Arc::new(value), hash: None }
    }

    pub(crate) fn edit(&mut self) -> &mut T {
        self.hash = None;
        Arc::make_mut(&mut self.value)
    }

    /// Has to be called after the last change of a step.
    pub(crate) fn seal(&mut self) {
        if self.hash.is_none() {
            // Texts come in very small pieces.
            let mut bytes = Bytes(Vec::with_capacity(16 << 10));
            self.value.digest(&mut bytes);
            self.hash = Some(bytes.finish());
        }
    }
}

impl<T> std::ops::Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.expect("a world is hashed between two steps").hash(state);
    }
}

struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        hasher.finish()
    }
}

struct TextHasher<'a, H>(&'a mut H);

impl<H: Hasher> fmt::Write for TextHasher<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Hashes the text of a value without keeping it.
pub(crate) fn hash_text(value: &impl Debug, state: &mut impl Hasher) {
    // Writing into a hasher cannot fail.
    let _ = write!(TextHasher(state), "{value:?}");
}
