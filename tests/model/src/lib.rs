//! Every schedule of a small fleet, not a sample of them: the branch owner's engine and the embedded store, exhaustively.
//!
//! In: a script of cluster events, bounds, maybe a rule to remove. Out: nothing, or the shortest trace that breaks an
//! invariant. Real are `upriver_engine::branch::Branch` and the embedded store; cluster, remote and invariants are those of
//! the simulation. A process that stops is one that the search does not choose any more, and it may be chosen again at any
//! later step; so crash, freeze and thaw need no steps of their own. Steps that nobody else can see (a build, an answer to
//! a command that was just carried out, sending a push that lands whenever it likes) are part of the step before.
//! Absent: session silence, hand-over in good order, several targets or watches, people.

mod config;
mod moves;
mod owner;
mod part;
mod quiet;
mod search;
mod storing;
mod watch;
mod world;

pub use config::{Bug, Config, Script};
pub use moves::Action;
pub use search::{Outcome, Violation, search};
pub use world::World;
