//! A whole fleet of observers over one table of Leases: what their acts lead to. Every replica has a clock of its own.

use upriver_model::ReplicaId;

use super::*;
use crate::lease::{Directory, session_name};
use crate::time::Dice;

const TURN_MS: u64 = 2_000;
const MOVES_IN_A_TURN: usize = 4;
/// After a change of the fleet, every claim has a living owner again and nobody has too many.
const SETTLED_MS: u64 = 40_000;

struct Replica {
    observer: Observer,
    directory: Directory,
    /// Its clock began at another moment than everybody else's.
    skew: u64,
    claims: BTreeSet<String>,
}

/// The API server and everybody's processes.
struct World {
    table: Sighting,
    replicas: BTreeMap<String, Replica>,
    wanted: BTreeMap<String, ClaimKey>,
    rv: u64,
    now: u64,
    moves: usize,
    dice: Dice,
}

impl World {
    fn new(claims: usize, seed: u64) -> Self {
        let names: Vec<String> = (0..claims).map(|number| format!("c{number}")).collect();
        let wanted = named(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (table, replicas) = (Sighting::default(), BTreeMap::new());
        Self { table, replicas, wanted, rv: 0, now: 0, moves: 0, dice: Dice::new(seed) }
    }

    fn join(&mut self, name: &str) {
        let name = session_name(&ReplicaId::new(name));
        let replica = Replica {
            observer: observer(&name),
            directory: Directory::default(),
            skew: self.dice.between(0, 300_000),
            claims: BTreeSet::new(),
        };
        self.rv += 1;
        self.table.sessions.insert(name.clone(), lease(&name, self.rv, Some(&name), 0));
        self.replicas.insert(name, replica);
    }

    /// Stops at once, and says nothing.
    fn kill(&mut self, name: &str) {
        self.replicas.remove(&session_name(&ReplicaId::new(name))).expect("it lived");
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += TURN_MS;
            for name in self.replicas.keys().cloned().collect::<Vec<_>>() {
                self.turn(&name);
            }
        }
    }

    fn put(&mut self, record: LeaseRecord) {
        self.rv += 1;
        self.table.claims.insert(record.name.clone(), LeaseRecord { rv: self.rv.to_string(), ..record });
    }

    fn turn(&mut self, name: &str) {
        self.rv += 1;
        self.table.sessions.insert(name.to_owned(), lease(name, self.rv, Some(name), 0));
        let replica = self.replicas.get_mut(name).expect("it lives");
        let now = Tick(self.now + replica.skew);
        let look = Look { now, in_a_row: 9, wanted: &self.wanted, sighting: &self.table };
        let seen = replica.observer.observe(look);
        replica.directory = seen.directory;
        for act in seen.acts {
            self.act(name, now, act);
        }
        // Hand-overs take a while: so many of them end within a turn.
        for _ in 0..MOVES_IN_A_TURN {
            for act in self.replicas.get_mut(name).expect("it lives").observer.offers(now) {
                self.act(name, now, act);
            }
        }
    }

    fn act(&mut self, name: &str, now: Tick, act: ClaimAct) {
        match act {
            ClaimAct::Fence(record) => {
                self.rv += 1;
                let fenced = LeaseRecord { holder: None, rv: self.rv.to_string(), ..record };
                assert!(!self.replicas.contains_key(&fenced.name), "{} lives and is fenced", fenced.name);
                self.table.sessions.insert(fenced.name.clone(), fenced);
            }
            ClaimAct::Take { claim, record } => {
                let transitions = record.map_or(0, |record| record.transitions) + 1;
                self.put(lease(&claim, 0, Some(name), transitions));
            }
            ClaimAct::Held { claim, .. } => {
                let others = self.replicas.iter().filter(|(_, other)| other.claims.contains(&claim));
                let others: Vec<&String> = others.map(|(name, _)| name).collect();
                assert_eq!(others, Vec::<&String>::new(), "{claim} has two owners");
                self.replicas.get_mut(name).expect("it lives").claims.insert(claim);
            }
            ClaimAct::Gone { claim } => {
                self.replicas.get_mut(name).expect("it lives").claims.remove(&claim);
            }
            ClaimAct::Offer { claim, to } => self.offer(name, now, &claim, &to),
            ClaimAct::Collect(_) | ClaimAct::CreateFenced { .. } | ClaimAct::Release { .. } => {
                panic!("nothing of that is needed here: {act:?}")
            }
        }
    }

    fn offer(&mut self, name: &str, now: Tick, claim: &str, to: &str) {
        let record = self.table.claims[claim].clone();
        let epoch = Epoch::new(record.transitions).expect("taken");
        let consent = self.replicas.get(to).map(|peer| peer.directory.consent(claim, epoch).is_ok());
        let replica = self.replicas.get_mut(name).expect("it lives");
        if consent == Some(true) {
            replica.observer.released(claim, epoch);
            replica.observer.handed_over(now, claim);
            replica.claims.remove(claim);
            self.moves += 1;
            self.put(LeaseRecord { holder: None, successor: Some(to.to_owned()), ..record });
        } else {
            replica.observer.refused(now, claim);
        }
    }

    /// Claims by replica, those included that are on their way to it; all of them held, all holders alive.
    fn loads(&self) -> Vec<usize> {
        let mut loads: BTreeMap<&str, usize> = self.replicas.keys().map(|name| (name.as_str(), 0)).collect();
        for record in self.table.claims.values() {
            let holder = record.holder.as_ref().or(record.successor.as_ref());
            let holder = holder.unwrap_or_else(|| panic!("at {}: {} is nobody's", self.now, record.name));
            *loads.get_mut(holder.as_str()).expect("the holder lives") += 1;
        }
        assert_eq!(loads.values().sum::<usize>(), self.wanted.len());
        loads.into_values().collect()
    }

    fn assert_balanced(&self) {
        let loads = self.loads();
        let most = (self.wanted.len() * 5).div_ceil(loads.len() * 4);
        assert!(loads.iter().all(|load| *load <= most), "at {}: {loads:?}, bound {most}", self.now);
    }
}

#[test]
fn claims_keep_one_living_owner_each_while_the_fleet_goes_from_three_to_one_to_five_to_two() {
    let mut world = World::new(200, 5);
    for name in ["a", "b", "c"] {
        world.join(name);
    }
    world.run(SETTLED_MS);
    world.assert_balanced();
    assert_eq!(world.moves, 0, "all began together");
    world.kill("a");
    world.kill("b");
    world.run(SETTLED_MS);
    assert_eq!(world.loads(), [200]);
    let before = world.moves;
    for name in ["d", "e", "f", "g"] {
        world.join(name);
    }
    world.run(8_000);
    assert_eq!(world.moves, before, "nothing moves before the members have been stable");
    world.run(2 * SETTLED_MS);
    world.assert_balanced();
    let moves = world.moves - before;
    assert!((120..=170).contains(&moves), "{moves} moves, ideal 160");
    for name in ["c", "d", "e"] {
        world.kill(name);
    }
    world.run(SETTLED_MS);
    world.assert_balanced();
}

#[test]
fn whatever_order_replicas_come_and_go_in_every_claim_ends_with_one_owner_within_the_bound() {
    for seed in 0..20 {
        let mut world = World::new(40, seed);
        world.join("r0");
        for step in 1..8 {
            let pause = world.dice.between(1, 15) * TURN_MS;
            world.run(pause);
            let leaves = world.replicas.len() > 1 && world.dice.between(0, 2) == 0;
            if leaves {
                let last = world.replicas.len() as u64 - 1;
                let index = usize::try_from(world.dice.between(0, last)).expect("small");
                let name = world.replicas.keys().nth(index).expect("it lives").clone();
                world.replicas.remove(&name);
            } else {
                world.join(&format!("r{step}"));
            }
        }
        world.run(180_000);
        world.assert_balanced();
        let before = world.moves;
        world.run(60_000);
        assert_eq!(world.moves, before, "seed {seed}: it rests");
    }
}
