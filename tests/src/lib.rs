//! What does a newcomer see in the first minute? The demo: real servers, real people, a real repository.
//!
//! [`demo::story`] is what alice and bob do; [`demo::keep`] leaves it all running for `make up` and ends it for
//! `make down`. Tests against real servers use the same stack, `upriver_testkit::stack`.

pub mod demo;
