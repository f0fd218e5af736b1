//! What the crate promises, proven against a real Git server and with the real `git` as an oracle.

mod content;
mod deep;
mod failures;
mod fetching;
mod names;
mod oracle;
mod pushing;
mod support;
mod tracing;
