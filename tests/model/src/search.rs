//! Breadth first, so the first violation has the shortest trace. Duplicates are known by a hash of 64 bits.
//!
//! A complete search also asks from where quiet can be reached: a state from which it cannot is a NOSTUCK violation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::moves::Action;
use crate::world::World;

/// An invariant that does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its number.
    pub rule: &'static str,
    /// How it broke.
    pub what: String,
    /// The steps to it, none of them superfluous.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.trace.iter().enumerate() {
            writeln!(f, "{:>3} {line}", number + 1)?;
        }
        write!(f, "{} after {} steps: {}", self.rule, self.trace.len(), self.what)
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// Steps to the farthest of them.
    pub depth: usize,
    /// False if a bound ended the search.
    pub complete: bool,
    /// States in which nothing is left to do.
    pub quiet: usize,
    /// How long it took.
    pub took: Duration,
    /// The first violation.
    pub violation: Option<Violation>,
}

struct Search {
    config: Config,
    known: HashMap<u64, u32>,
    /// The state before, and the step from it.
    came_from: Vec<Option<(u32, Action)>>,
    /// Backwards: (to, from).
    edges: Vec<(u32, u32)>,
    quiet: Vec<u32>,
}

/// Explores a configuration until a violation, a bound, or the end.
#[must_use]
pub fn search(config: Config) -> Outcome {
    let begun = Instant::now();
    let mut search =
        Search { config, known: HashMap::new(), came_from: Vec::new(), edges: Vec::new(), quiet: Vec::new() };
    let (depth, complete, found) = search.run();
    let violation = match found {
        Some((state, rule, what)) => Some(search.violation(state, rule, what)),
        None if complete => search.stuck(),
        None => None,
    };
    let (states, quiet) = (search.came_from.len(), search.quiet.len());
    Outcome { states, depth, complete, quiet, took: begun.elapsed(), violation }
}

fn hash_of(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

type Found = (u32, &'static str, String);

impl Search {
    fn run(&mut self) -> (usize, bool, Option<Found>) {
        let first = World::new(self.config);
        let mut level = Vec::new();
        if let Some(found) = self.visit(first, None, &mut level) {
            return (0, false, Some(found));
        }
        let mut depth = 0;
        while !level.is_empty() {
            if depth >= self.config.depth || self.came_from.len() >= self.config.states {
                return (depth, false, None);
            }
            let mut next = Vec::new();
            for (number, world) in level {
                for action in world.actions() {
                    let after = world.after(action);
                    if let Some(found) = self.visit(after, Some((number, action)), &mut next) {
                        return (depth + 1, false, Some(found));
                    }
                }
            }
            if !next.is_empty() {
                depth += 1;
            }
            level = next;
        }
        (depth, true, None)
    }

    fn visit(
        &mut self,
        world: World,
        from: Option<(u32, Action)>,
        level: &mut Vec<(u32, World)>,
    ) -> Option<Found> {
        let number = u32::try_from(self.came_from.len()).expect("fewer states than fit into memory");
        match self.known.entry(hash_of(&world)) {
            Entry::Occupied(known) => {
                self.edges.extend(from.map(|(from, _)| (*known.get(), from)));
                return None;
            }
            Entry::Vacant(place) => drop(place.insert(number)),
        }
        self.came_from.push(from);
        self.edges.extend(from.map(|(from, _)| (number, from)));
        if world.is_quiet() {
            self.quiet.push(number);
        }
        let found = world.violation().map(|(rule, what)| (number, rule, what.to_owned()));
        level.push((number, world));
        found
    }

    /// The nearest state from which quiet cannot be reached.
    fn stuck(&mut self) -> Option<Violation> {
        self.edges.sort_unstable();
        let mut live = vec![false; self.came_from.len()];
        let mut waiting = self.quiet.clone();
        while let Some(state) = waiting.pop() {
            if std::mem::replace(&mut live[state as usize], true) {
                continue;
            }
            let from = self.edges.partition_point(|(to, _)| *to < state);
            let here = self.edges[from..].iter().take_while(|(to, _)| *to == state);
            waiting.extend(here.map(|(_, before)| *before));
        }
        let stuck = live.iter().position(|live| !live)?;
        let state = u32::try_from(stuck).ok()?;
        Some(self.violation(state, "NOSTUCK", "nothing that may follow ever comes to rest".to_owned()))
    }

    fn violation(&self, state: u32, rule: &'static str, what: String) -> Violation {
        let mut actions = Vec::new();
        let mut at = state;
        while let Some((from, action)) = self.came_from[at as usize] {
            actions.push(action);
            at = from;
        }
        actions.reverse();
        let mut world = World::new(self.config);
        let mut trace = Vec::new();
        for action in actions {
            trace.push(world.tells(action));
            world.make(action);
            world.seal();
        }
        Violation { rule, what, trace }
    }
}
