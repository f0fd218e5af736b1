//! What can go wrong, chosen by the seed: processes, store, remote, watches, people.

use std::collections::BTreeMap;
use std::sync::Arc;

use upriver_engine::branch::Event;
use upriver_model::{CommitId, FailureClass, IdSet};

use crate::invariants::{Broken, Listed, PEOPLES_CONTENT};
use crate::owner::Standing;
use crate::remote::{Commit, File, Path, Tree};
use crate::shared::Shared;
use crate::world::World;
use crate::{Bug, Profile};

#[derive(Clone, Copy, Debug)]
enum OfProcess {
    Crash,
    Freeze,
    Thaw,
    HandOver,
}

#[derive(Clone, Copy, Debug)]
enum OfWatch {
    Died,
    Moved,
    Outdated,
    Broken,
    Compaction,
    PlansChanged,
}

#[derive(Clone, Copy, Debug)]
enum OfStore {
    Away,
    AnswerLost,
    SnapshotTaken,
    SuffixLost,
    Wiped,
}

#[derive(Clone, Copy, Debug)]
enum OfRemote {
    PushAnswerLost,
    PushLost,
    JobFailed,
    PersonElsewhere,
    PersonInTheFolder,
    Rewound,
    Deleted,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Process(OfProcess),
    Watch(OfWatch),
    Store(OfStore),
    Remote(OfRemote),
}

/// A fault that stands there twice comes twice as often.
const CRASHES: &[Fault] = &[
    Fault::Process(OfProcess::Crash),
    Fault::Process(OfProcess::Crash),
    Fault::Process(OfProcess::Freeze),
    Fault::Process(OfProcess::Freeze),
    Fault::Process(OfProcess::Thaw),
    Fault::Process(OfProcess::HandOver),
    Fault::Watch(OfWatch::Died),
    Fault::Watch(OfWatch::Broken),
    Fault::Watch(OfWatch::Compaction),
    Fault::Watch(OfWatch::PlansChanged),
    Fault::Store(OfStore::AnswerLost),
    Fault::Remote(OfRemote::PushAnswerLost),
];
const LOSSES: &[Fault] = &[
    Fault::Store(OfStore::SnapshotTaken),
    Fault::Store(OfStore::SnapshotTaken),
    Fault::Store(OfStore::SnapshotTaken),
    Fault::Store(OfStore::SuffixLost),
    Fault::Store(OfStore::SuffixLost),
    Fault::Store(OfStore::Wiped),
    Fault::Store(OfStore::Away),
    Fault::Store(OfStore::AnswerLost),
    Fault::Process(OfProcess::Freeze),
    Fault::Process(OfProcess::Thaw),
];
const FLEET: &[Fault] = &[
    Fault::Watch(OfWatch::Moved),
    Fault::Watch(OfWatch::Moved),
    Fault::Watch(OfWatch::Moved),
    Fault::Watch(OfWatch::Outdated),
    Fault::Watch(OfWatch::PlansChanged),
    Fault::Process(OfProcess::HandOver),
    Fault::Process(OfProcess::HandOver),
];
const REMOTE: &[Fault] = &[
    Fault::Remote(OfRemote::PushAnswerLost),
    Fault::Remote(OfRemote::PushAnswerLost),
    Fault::Remote(OfRemote::PushLost),
    Fault::Remote(OfRemote::JobFailed),
    Fault::Remote(OfRemote::JobFailed),
    Fault::Remote(OfRemote::PersonElsewhere),
    Fault::Remote(OfRemote::PersonInTheFolder),
    Fault::Remote(OfRemote::PersonInTheFolder),
    Fault::Remote(OfRemote::Rewound),
    Fault::Remote(OfRemote::Deleted),
];

/// Something goes wrong, if it can.
pub(crate) fn trouble(world: &mut World) -> Result<(), Broken> {
    let menus: &[&[Fault]] = match world.s.profile {
        Profile::Calm => &[],
        Profile::Crashes => &[CRASHES],
        Profile::StoreLoss => &[LOSSES],
        Profile::Remote => &[REMOTE],
        Profile::Everything => &[CRASHES, LOSSES, REMOTE],
        Profile::Fleet => &[FLEET, CRASHES, LOSSES],
    };
    let Some(menu) = world.s.rng.pick(menus) else { return Ok(()) };
    let Some(fault) = world.s.rng.pick(menu) else { return Ok(()) };
    let happened = match fault {
        Fault::Process(fault) => of_process(world, fault),
        Fault::Watch(fault) => of_watch(world, fault),
        Fault::Store(fault) => of_store(world, fault),
        Fault::Remote(fault) => of_remote(world, fault),
    };
    if happened {
        world.s.say(|| format!("!! {fault:?}"));
        world.s.check_state()?;
    }
    Ok(())
}

fn of_process(world: &mut World, fault: OfProcess) -> bool {
    match fault {
        OfProcess::Crash => on_owner(world, |owner, _| {
            owner.end();
            true
        }),
        OfProcess::Freeze => on_owner(world, |owner, _| {
            owner.standing = Standing::Frozen;
            true
        }),
        OfProcess::Thaw => thaw(world),
        OfProcess::HandOver => on_owner(world, |owner, s| {
            if owner.draining.is_some() {
                owner.release(s);
            } else {
                owner.draining = Some(s.now);
                owner.step(s, owner.engine.life(), Event::Drain);
            }
            true
        }),
    }
}

fn of_watch(world: &mut World, fault: OfWatch) -> bool {
    match fault {
        OfWatch::Died => on_owner(world, |owner, s| {
            let watch = owner.watches.keys().nth(s.rng.below(owner.watches.len())).cloned();
            let Some(watch) = watch else { return false };
            owner.watches.remove(&watch);
            owner.step(s, owner.engine.life(), Event::WatchDied(watch));
            true
        }),
        // Another replica holds the claim now, and connects; the owner lets the former watcher go.
        OfWatch::Moved => on_owner(world, |owner, s| {
            let watch = owner.watches.keys().nth(s.rng.below(owner.watches.len())).cloned();
            let Some(watch) = watch else { return false };
            s.watch_claims.move_on(&watch);
            owner.let_go(&watch);
            owner.step(s, owner.engine.life(), Event::WatchDied(watch));
            true
        }),
        // The next to connect is one that has not noticed yet that it lost its claim.
        OfWatch::Outdated => {
            world.s.watch_claims.outdated = true;
            true
        }
        OfWatch::Broken => on_owner(world, |owner, s| {
            let (index, trouble) = (s.rng.below(owner.watches.len()), s.rng.once_in(2));
            let watch = owner.watches.values_mut().nth(index);
            watch.map(|watch| watch.break_connection(trouble)).is_some()
        }),
        OfWatch::Compaction => {
            world.s.cluster.compacted = world.s.cluster.rv;
            true
        }
        OfWatch::PlansChanged => {
            let before = world.s.plans.scopes();
            let Shared { plans, rng, .. } = &mut world.s;
            plans.change(rng);
            let after = world.s.plans.scopes();
            for (scope, _) in before.iter().filter(|(old, _)| !after.iter().any(|(scope, _)| scope == old)) {
                world.s.checks.deselected(scope);
            }
            world.s.plan_version += 1;
            true
        }
    }
}

fn of_store(world: &mut World, fault: OfStore) -> bool {
    match fault {
        OfStore::Away => {
            world.s.store_down_until = world.s.now + 500 + world.s.rng.below(20_000) as u64;
            world.s.connections += 1;
            true
        }
        OfStore::AnswerLost => on_owner(world, |owner, _| owner.lose_store_answer()),
        OfStore::SnapshotTaken => {
            let moment = world.s.store.snapshot();
            world.s.moments.push((moment, world.s.checks.listed.clone()));
            true
        }
        OfStore::SuffixLost => suffix_lost(&mut world.s),
        OfStore::Wiped => {
            let happens = world.s.rng.once_in(2);
            if happens {
                world.s.store.wipe();
                world.s.moments.clear();
                forget(&mut world.s, Listed::new());
            }
            happens
        }
    }
}

fn of_remote(world: &mut World, fault: OfRemote) -> bool {
    match fault {
        OfRemote::PushAnswerLost => on_owner(world, |owner, s| {
            let bug = s.has_bug(Bug::UncertainIsSuccess);
            owner.lose_push_answer(bug)
        }),
        OfRemote::PushLost => push_lost(world),
        OfRemote::JobFailed => {
            let class = world.s.rng.pick(&CLASSES).unwrap_or(FailureClass::Network);
            on_owner(world, |owner, _| {
                owner.stage_git();
                owner.fail_git(class)
            })
        }
        OfRemote::PersonElsewhere => {
            let number = world.s.rng.below(3);
            person_writes(&mut world.s, Path::Elsewhere(number), None)
        }
        OfRemote::PersonInTheFolder => person_in_the_folder(&mut world.s),
        OfRemote::Rewound => rewind(&mut world.s),
        OfRemote::Deleted => delete(&mut world.s),
    }
}

/// What a Git job may fail with: each class has a schedule of its own.
const CLASSES: [FailureClass; 7] = [
    FailureClass::Network,
    FailureClass::Policy,
    FailureClass::RateLimited,
    FailureClass::Superseded,
    FailureClass::Auth,
    FailureClass::Config,
    FailureClass::Unknown,
];

fn on_owner(world: &mut World, what: impl FnOnce(&mut crate::owner::Owner, &mut Shared) -> bool) -> bool {
    let World { s, owners, .. } = world;
    let alive: Vec<usize> =
        owners.iter().filter(|owner| owner.standing == Standing::Alive).map(|owner| owner.number).collect();
    let Some(number) = s.rng.pick(&alive) else { return false };
    s.say(|| format!("?? something happens to owner {number}"));
    what(&mut owners[number], s)
}

fn thaw(world: &mut World) -> bool {
    let frozen: Vec<usize> = world
        .owners
        .iter()
        .filter(|owner| owner.standing == Standing::Frozen)
        .map(|owner| owner.number)
        .collect();
    let Some(number) = world.s.rng.pick(&frozen) else { return false };
    world.owners[number].standing = Standing::Alive;
    true
}

fn suffix_lost(s: &mut Shared) -> bool {
    if s.moments.is_empty() {
        return false;
    }
    let index = s.rng.below(s.moments.len());
    // What was later than this moment never happened.
    s.moments.truncate(index + 1);
    let Some((moment, listed)) = s.moments.last().cloned() else { return false };
    s.store.restore(&moment);
    forget(s, listed);
    true
}

/// Connections mostly break with a failover; where they do not, the counter tells.
fn forget(s: &mut Shared, listed: Listed) {
    s.checks.store_lost(listed);
    if !s.rng.once_in(4) {
        s.connections += 1;
    }
}

/// A push that will never land; whoever waits for it is not told why.
fn push_lost(world: &mut World) -> bool {
    let flights = &mut world.s.remote.flights;
    if flights.is_empty() {
        return false;
    }
    let index = world.s.rng.below(flights.len());
    let flight = flights.remove(index);
    if let Some(owner) = world.owners.get_mut(flight.owner) {
        owner.push_ended(flight.number, false, &flight.new, true);
    }
    true
}

pub(crate) fn first_commit(s: &mut Shared) {
    let id = person_commits(s, None, Arc::new(BTreeMap::from([(Path::Elsewhere(0), File::Foreign(0))])));
    s.remote.default_tip = Some(id.clone());
    if s.rng.once_in(2) {
        s.remote.tip = Some(id);
    }
}

fn person_commits(s: &mut Shared, parent: Option<CommitId>, tree: Tree) -> CommitId {
    let salt = s.rng.number().to_string();
    let commit = Commit { parent, tree, header: None, entries: IdSet::new(), author: None, window: false };
    s.remote.add(commit, &salt)
}

/// `None` writes something of the person's own.
fn person_writes(s: &mut Shared, path: Path, file: Option<File>) -> bool {
    let Some(tip) = s.remote.tip.clone() else { return false };
    let mut tree = (*s.remote.tip_tree()).clone();
    let own = File::Foreign(s.rng.number() % 1_000);
    tree.insert(path, file.unwrap_or(own));
    let id = person_commits(s, Some(tip), Arc::new(tree));
    s.say(|| format!("a person writes {path} in {id}"));
    s.remote.tip = Some(id);
    s.checks.person_wrote(path);
    true
}

fn person_in_the_folder(s: &mut Shared) -> bool {
    let Some(tip) = s.remote.tip.clone() else { return false };
    let tree = s.remote.tip_tree();
    let documents: Vec<Path> = tree.keys().copied().filter(|path| matches!(path, Path::Doc { .. })).collect();
    let (target, kind, object) = (s.rng.below(2), s.rng.below(2), s.rng.below(4));
    let any = Path::Doc { target, kind, object };
    let path = s.rng.pick(&documents).unwrap_or(any);
    match s.rng.below(5) {
        0 => person_writes(s, path, None),
        1 => person_writes(s, any, None),
        2 => {
            let content = PEOPLES_CONTENT + s.rng.number() % 1_000;
            person_writes(s, path, Some(File::Ours(content)))
        }
        3 => person_writes(s, Path::Beside { target, number: 0 }, None),
        _ => {
            let mut tree = (*tree).clone();
            tree.remove(&path);
            let id = person_commits(s, Some(tip), Arc::new(tree));
            s.say(|| format!("a person removes {path} in {id}"));
            s.remote.tip = Some(id);
            s.checks.person_wrote(path);
            true
        }
    }
}

fn rewind(s: &mut Shared) -> bool {
    let chain = s.remote.chain(s.remote.tip.as_ref(), None);
    if chain.len() < 2 {
        return false;
    }
    let back = 1 + s.rng.below(chain.len().min(4) - 1);
    s.say(|| format!("a person rewinds the branch to {}", chain[back]));
    let before = s.remote.tip_tree();
    s.remote.tip = Some(chain[back].clone());
    s.checks.person_moved_the_branch(&before, &s.remote.tip_tree());
    true
}

fn delete(s: &mut Shared) -> bool {
    if s.remote.tip.is_none() {
        return false;
    }
    let before = s.remote.tip_tree();
    s.remote.tip = None;
    s.checks.person_moved_the_branch(&before, &s.remote.tip_tree());
    true
}
