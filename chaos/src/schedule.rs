//! What goes wrong in a cycle, and when?
//!
//! In: a seed, the number of the cycle, what there is to break. Out: a [`Cycle`], the same for the same input on every
//! machine, so a failing one can be run again alone. Every kind of fault comes up once before one comes up twice; a second
//! fault at a random moment of the first joins about every other cycle. Absent: doing it, see [`crate::faults`].

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use upriver_testkit::proxy::Trouble;

use crate::links::LINKS;

/// Edits go on for so long after the last fault.
const AFTERWARDS: Duration = Duration::from_millis(1500);

/// Kinds of faults, as `--only` and the report name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Kill,
    Freeze,
    Roll,
    ApiRestart,
    /// Of one link, by its place in [`LINKS`].
    Partition(usize),
    SlowLink,
    RedisFailover,
    RedisFlush,
    RedisFreeze,
    GitRefuse,
    GitCut,
    BranchMoved,
    Clock,
}

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Process,
    Link,
    Api,
    Redis,
    Git,
    People,
    Clock,
}

impl Kind {
    /// All of them.
    pub(crate) fn all() -> Vec<Self> {
        let mut kinds = vec![Self::Kill, Self::Freeze, Self::Roll, Self::ApiRestart];
        kinds.extend((0..LINKS.len()).map(Self::Partition));
        kinds.extend([Self::SlowLink, Self::RedisFailover, Self::RedisFlush, Self::RedisFreeze]);
        kinds.extend([Self::GitRefuse, Self::GitCut, Self::BranchMoved, Self::Clock]);
        kinds
    }

    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::Partition(link) => return format!("partition-{}", LINKS[link].name),
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Roll => "roll",
            Self::ApiRestart => "api-restart",
            Self::SlowLink => "slow-link",
            Self::RedisFailover => "redis-failover",
            Self::RedisFlush => "redis-flush",
            Self::RedisFreeze => "redis-freeze",
            Self::GitRefuse => "git-refuse",
            Self::GitCut => "git-cut",
            Self::BranchMoved => "branch-moved",
            Self::Clock => "clock",
        };
        name.to_owned()
    }

    fn group(self) -> Group {
        match self {
            Self::Kill | Self::Freeze | Self::Roll => Group::Process,
            Self::Partition(_) | Self::SlowLink => Group::Link,
            Self::ApiRestart => Group::Api,
            Self::RedisFailover | Self::RedisFlush | Self::RedisFreeze => Group::Redis,
            Self::GitRefuse | Self::GitCut => Group::Git,
            Self::BranchMoved => Group::People,
            Self::Clock => Group::Clock,
        }
    }

    /// Two faults of one server at once would be one larger fault that no fleet survives, and two of one link would undo
    /// each other.
    fn may_join(self, first: Self) -> bool {
        let both_cut = matches!((self, first), (Self::Partition(_), Self::Partition(_)));
        self != first && (self.group() != first.group() || self.group() == Group::Process || both_cut)
    }

    /// Shortest and longest time until it is healed, milliseconds.
    fn lasts(self) -> (u64, u64) {
        match self {
            // Shorter and longer than the session of a replica that is silent.
            Self::Kill => (500, 13_000),
            Self::Freeze => (12_000, 20_000),
            Self::Roll => (300, 2_000),
            Self::ApiRestart => (500, 4_000),
            Self::Partition(_) => (3_000, 14_000),
            Self::SlowLink => (3_000, 8_000),
            Self::RedisFailover => (4_000, 7_000),
            Self::RedisFlush | Self::BranchMoved => (0, 0),
            // Below and above what Sentinels wait for.
            Self::RedisFreeze => (500, 6_000),
            // The third failure in a row is waited out for 15 s, and the time of a run is bounded.
            Self::GitRefuse => (1_000, 3_500),
            Self::GitCut => (3_000, 3_000),
            Self::Clock => (5_000, 10_000),
        }
    }
}

/// Who is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The replica that owns this branch at that moment.
    OwnerOf(usize),
    /// This one.
    Replica(usize),
}

/// When a push is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    BeforeItLands,
    AfterItLanded,
}

/// Where a person commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a folder that no target has.
    Beside,
    /// A file of ours gets another value.
    EditsOurs,
    /// A file of ours is removed.
    RemovesOurs,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Kill(Victim),
    Freeze(Victim),
    Roll(Victim),
    ApiRestart,
    Trouble { victim: Victim, link: usize, trouble: Trouble },
    RedisFailover,
    RedisFlush,
    RedisFreeze,
    GitRefuse,
    GitCut(Cut),
    BranchMoved { branch: usize, place: Place },
    Clock { seconds: i64 },
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) act: Act,
    /// After the first edit of the cycle.
    pub(crate) at: Duration,
    /// Until it is healed.
    pub(crate) lasts: Duration,
}

impl Fault {
    fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

/// What there is to break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) replicas: usize,
    pub(crate) branches: usize,
}

/// One cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    pub(crate) number: u64,
    pub(crate) faults: Vec<Fault>,
    /// Edits go on at least for so long.
    pub(crate) edits: Duration,
    /// For the edits.
    pub(crate) dice: u64,
}

impl Cycle {
    /// Cycle `number`, from 0, of the run with this seed.
    pub(crate) fn draw(seed: u64, number: u64, only: Option<Kind>, setup: &Setup) -> Self {
        let mut dice = dice(seed, 1, number);
        let kinds = only.map_or_else(Kind::all, |kind| vec![kind]);
        let first_kind = from_deck(seed, number, &kinds);
        let begins = Duration::from_millis(dice.random_range(500..2_500));
        let first = fault(first_kind, begins, setup, &mut dice);
        let mut faults = vec![first];
        // How long branches stand still is only measured where nothing else is wrong.
        let joined = dice.random_bool(0.5) && !matches!(first_kind, Kind::Kill | Kind::Roll);
        let fitting: Vec<Kind> = kinds.iter().filter(|kind| kind.may_join(first_kind)).copied().collect();
        if let Some(kind) = fitting.choose(&mut dice).filter(|_| joined) {
            let within = u64::try_from(first.lasts.as_millis()).unwrap_or(u64::MAX).max(1_000);
            let at = first.at + Duration::from_millis(dice.random_range(0..within));
            faults.push(fault(*kind, at, setup, &mut dice));
        }
        let end = faults.iter().map(Fault::end).max().unwrap_or_default();
        Self { number, faults, edits: end + AFTERWARDS, dice: dice.random() }
    }

    /// True if one of its faults has company: times are then not measured.
    pub(crate) fn overlaps(&self) -> bool {
        self.faults.len() > 1
    }
}

/// Every purpose has dice of its own, so that one more throw for one does not change the others.
fn dice(seed: u64, purpose: u64, number: u64) -> StdRng {
    let mut bytes = [0; 32];
    for (place, part) in bytes.chunks_exact_mut(8).zip([seed, purpose, number, 0]) {
        place.copy_from_slice(&part.to_le_bytes());
    }
    StdRng::from_seed(bytes)
}

/// Shuffled anew whenever all kinds have been through.
fn from_deck(seed: u64, number: u64, kinds: &[Kind]) -> Kind {
    let count = kinds.len() as u64;
    let mut deck = kinds.to_vec();
    deck.shuffle(&mut dice(seed, 0, number / count));
    deck[usize::try_from(number % count).unwrap_or(0)]
}

fn fault(kind: Kind, at: Duration, setup: &Setup, dice: &mut StdRng) -> Fault {
    let (shortest, longest) = kind.lasts();
    let lasts = Duration::from_millis(dice.random_range(shortest..=longest));
    let branch = dice.random_range(0..setup.branches);
    // An owner is more worth breaking than a standby, which is hit one time in four.
    let victim = match dice.random_range(0..4) {
        0 => Victim::Replica(dice.random_range(0..setup.replicas)),
        _ => Victim::OwnerOf(branch),
    };
    let act = match kind {
        Kind::Kill => Act::Kill(victim),
        Kind::Freeze => Act::Freeze(victim),
        Kind::Roll => Act::Roll(victim),
        Kind::ApiRestart => Act::ApiRestart,
        Kind::Partition(link) => {
            let trouble = if dice.random_bool(0.6) { Trouble::BlackHole } else { Trouble::Reset };
            Act::Trouble { victim, link, trouble }
        }
        Kind::SlowLink => {
            let latency = Trouble::Latency(Duration::from_millis(dice.random_range(100..600)));
            let slow = Trouble::Slow { bytes: dice.random_range(4_000..40_000) };
            let trouble = if dice.random_bool(0.5) { latency } else { slow };
            Act::Trouble { victim, link: dice.random_range(0..LINKS.len()), trouble }
        }
        Kind::RedisFailover => Act::RedisFailover,
        Kind::RedisFlush => Act::RedisFlush,
        Kind::RedisFreeze => Act::RedisFreeze,
        Kind::GitRefuse => Act::GitRefuse,
        Kind::GitCut => {
            Act::GitCut(if dice.random_bool(0.5) { Cut::BeforeItLands } else { Cut::AfterItLanded })
        }
        Kind::BranchMoved => {
            let places = [Place::Beside, Place::EditsOurs, Place::RemovesOurs];
            Act::BranchMoved { branch, place: places[dice.random_range(0..places.len())] }
        }
        Kind::Clock => {
            let seconds = dice.random_range(30..90);
            Act::Clock { seconds: if dice.random_bool(0.5) { seconds } else { -seconds } }
        }
    };
    Fault { kind, act, at, lasts }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnerOf(branch) => write!(f, "the owner of branch {branch}"),
            Self::Replica(index) => write!(f, "replica {index}"),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(victim) => write!(f, "{victim} is killed"),
            Self::Freeze(victim) => write!(f, "{victim} is frozen"),
            Self::Roll(victim) => write!(f, "{victim} is asked to end"),
            Self::ApiRestart => write!(f, "the API server is killed"),
            Self::Trouble { victim, link, trouble } => {
                write!(f, "{victim} has trouble on its way to {}: {trouble:?}", LINKS[*link].name)
            }
            Self::RedisFailover => write!(f, "the Redis master is killed"),
            Self::RedisFlush => write!(f, "Redis is emptied (FLUSHALL)"),
            Self::RedisFreeze => write!(f, "the Redis master is frozen"),
            Self::GitRefuse => write!(f, "the Git host answers 503"),
            Self::GitCut(cut) => write!(f, "the next push is cut, {cut:?}"),
            Self::BranchMoved { branch, place } => {
                write!(f, "a person commits to branch {branch}, {place:?}")
            }
            Self::Clock { seconds } => write!(f, "the clock of the last replica is off by {seconds} s"),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycle {}:", self.number)?;
        for (index, fault) in self.faults.iter().enumerate() {
            let (at, end) = (fault.at.as_secs_f64(), fault.end().as_secs_f64());
            let separator = if index == 0 { "" } else { ";" };
            write!(f, "{separator} after {at:.1} s {}", fault.act)?;
            if !fault.lasts.is_zero() {
                write!(f, ", until {end:.1} s")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SETUP: Setup = Setup { replicas: 3, branches: 3 };

    fn draw(seed: u64, number: u64) -> Cycle {
        Cycle::draw(seed, number, None, &SETUP)
    }

    #[test]
    fn a_cycle_depends_on_seed_and_number_alone() {
        assert_eq!(draw(7, 12), draw(7, 12));
        assert_ne!(draw(7, 12), draw(8, 12));
        assert_ne!(draw(7, 12), draw(7, 13));
    }

    #[test]
    fn every_kind_comes_up_before_one_comes_up_twice() {
        let kinds = Kind::all();
        let count = kinds.len() as u64;
        for round in 0..3 {
            let numbers = round * count..(round + 1) * count;
            let drawn: BTreeSet<Kind> = numbers.map(|number| draw(1, number).faults[0].kind).collect();
            assert_eq!(drawn, kinds.iter().copied().collect());
        }
    }

    #[test]
    fn a_second_fault_overlaps_the_first_and_servers_fail_one_way_at_a_time() {
        let cycles: Vec<Cycle> = (0..300).map(|number| draw(3, number)).collect();
        let pairs: Vec<&Cycle> = cycles.iter().filter(|cycle| cycle.overlaps()).collect();
        assert!((100..200).contains(&pairs.len()), "{} of 300", pairs.len());
        for cycle in pairs {
            let [first, second] = cycle.faults[..] else { panic!("two at most: {cycle}") };
            assert!(second.at >= first.at && second.at <= first.end() + Duration::from_secs(1), "{cycle}");
            let links = |fault: Fault| match fault.act {
                Act::Trouble { link, .. } => Some(link),
                _ => None,
            };
            assert!(links(first).is_none() || links(first) != links(second), "{cycle}");
            let servers = [Group::Api, Group::Redis, Group::Git, Group::People, Group::Clock];
            let group = first.kind.group();
            assert!(!servers.contains(&group) || group != second.kind.group(), "{cycle}");
        }
    }

    #[test]
    fn a_kill_and_an_orderly_end_have_cycles_of_their_own() {
        for cycle in (0..300).map(|number| draw(3, number)) {
            assert!(!matches!(cycle.faults[0].kind, Kind::Kill | Kind::Roll) || !cycle.overlaps(), "{cycle}");
        }
    }

    #[test]
    fn only_one_kind_means_that_one_alone() {
        let cycle = Cycle::draw(1, 5, Some(Kind::Freeze), &SETUP);
        assert_eq!(cycle.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [Kind::Freeze]);
        assert!(cycle.edits >= Duration::from_secs(12));
    }
}
