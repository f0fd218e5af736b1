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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Crash,
    Freeze,
    Thaw,
    HandOver,
    WatchDied,
    WatchBroken,
    Compaction,
    PlansChanged,
    StoreAway,
    AnswerLost,
    SnapshotTaken,
    SuffixLost,
    StoreWiped,
    PushAnswerLost,
    PushLost,
    GitFailed,
    PersonElsewhere,
    PersonInTheFolder,
    BranchRewound,
    BranchDeleted,
}

const CRASHES: &[Fault] = &[
    Fault::Crash,
    Fault::Crash,
    Fault::Freeze,
    Fault::Freeze,
    Fault::Thaw,
    Fault::HandOver,
    Fault::WatchDied,
    Fault::WatchBroken,
    Fault::Compaction,
    Fault::PlansChanged,
    Fault::AnswerLost,
    Fault::PushAnswerLost,
];
const LOSSES: &[Fault] = &[
    Fault::SnapshotTaken,
    Fault::SnapshotTaken,
    Fault::SnapshotTaken,
    Fault::SuffixLost,
    Fault::SuffixLost,
    Fault::StoreWiped,
    Fault::StoreAway,
    Fault::AnswerLost,
    Fault::Freeze,
    Fault::Thaw,
];
const REMOTE: &[Fault] = &[
    Fault::PushAnswerLost,
    Fault::PushAnswerLost,
    Fault::PushLost,
    Fault::GitFailed,
    Fault::GitFailed,
    Fault::PersonElsewhere,
    Fault::PersonInTheFolder,
    Fault::PersonInTheFolder,
    Fault::BranchRewound,
    Fault::BranchDeleted,
];

/// Something goes wrong, if it can.
pub(crate) fn trouble(world: &mut World) -> Result<(), Broken> {
    let menus: &[&[Fault]] = match world.s.profile {
        Profile::Calm => &[],
        Profile::Crashes => &[CRASHES],
        Profile::StoreLoss => &[LOSSES],
        Profile::Remote => &[REMOTE],
        Profile::Everything => &[CRASHES, LOSSES, REMOTE],
    };
    let Some(menu) = world.s.rng.pick(menus) else { return Ok(()) };
    let Some(fault) = world.s.rng.pick(menu) else { return Ok(()) };
    if happen(world, fault)? {
        world.s.say(|| format!("!! {fault:?}"));
        world.s.check_state()?;
    }
    Ok(())
}

/// True if it could happen.
fn happen(world: &mut World, fault: Fault) -> Result<bool, Broken> {
    Ok(match fault {
        Fault::Crash => on_owner(world, |owner, _| {
            owner.end();
            true
        }),
        Fault::Freeze => on_owner(world, |owner, _| {
            owner.standing = Standing::Frozen;
            true
        }),
        Fault::Thaw => thaw(world),
        Fault::HandOver => on_owner(world, |owner, s| {
            if owner.draining.is_some() {
                owner.release(s);
            } else {
                owner.draining = Some(s.now);
                owner.step(s, owner.engine.life(), Event::Drain);
            }
            true
        }),
        Fault::WatchDied => on_owner(world, |owner, s| {
            let watch = owner.watches.keys().nth(s.rng.below(owner.watches.len())).cloned();
            let Some(watch) = watch else { return false };
            owner.watches.remove(&watch);
            owner.step(s, owner.engine.life(), Event::WatchDied(watch));
            true
        }),
        Fault::WatchBroken => on_owner(world, |owner, s| {
            let (index, trouble) = (s.rng.below(owner.watches.len()), s.rng.once_in(2));
            let watch = owner.watches.values_mut().nth(index);
            watch.map(|watch| watch.break_connection(trouble)).is_some()
        }),
        Fault::Compaction => {
            world.s.cluster.compacted = world.s.cluster.rv;
            true
        }
        Fault::PlansChanged => {
            let Shared { plans, rng, .. } = &mut world.s;
            plans.change(rng);
            world.s.plan_version += 1;
            true
        }
        Fault::StoreAway => {
            world.s.store_down_until = world.s.now + 500 + world.s.rng.below(20_000) as u64;
            world.s.connections += 1;
            true
        }
        Fault::AnswerLost => on_owner(world, |owner, _| owner.lose_store_answer()),
        Fault::SnapshotTaken => {
            let moment = world.s.store.snapshot();
            world.s.moments.push((moment, world.s.checks.listed.clone()));
            true
        }
        Fault::SuffixLost => suffix_lost(&mut world.s),
        Fault::StoreWiped => {
            let rare = world.s.rng.once_in(2);
            if rare {
                world.s.store.wipe();
                world.s.moments.clear();
                forget(&mut world.s, Listed::new());
            }
            rare
        }
        Fault::PushAnswerLost => on_owner(world, |owner, s| {
            let bug = s.has_bug(Bug::UncertainIsSuccess);
            owner.lose_push_answer(bug)
        }),
        Fault::PushLost => push_lost(world),
        Fault::GitFailed => {
            let classes = [
                FailureClass::Network,
                FailureClass::Policy,
                FailureClass::RateLimited,
                FailureClass::Superseded,
                FailureClass::Auth,
                FailureClass::Config,
                FailureClass::Unknown,
            ];
            let class = world.s.rng.pick(&classes).unwrap_or(FailureClass::Network);
            on_owner(world, |owner, _| {
                owner.stage_git();
                owner.fail_git(class)
            })
        }
        Fault::PersonElsewhere => {
            let number = world.s.rng.below(3);
            person_writes(&mut world.s, Path::Elsewhere(number), None)
        }
        Fault::PersonInTheFolder => person_in_the_folder(&mut world.s),
        Fault::BranchRewound => rewind(&mut world.s),
        Fault::BranchDeleted => delete(&mut world.s),
    })
}

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
    s.remote.tip = Some(chain[back].clone());
    s.checks.person_moved_the_branch();
    true
}

fn delete(s: &mut Shared) -> bool {
    if s.remote.tip.is_none() {
        return false;
    }
    s.remote.tip = None;
    s.checks.person_moved_the_branch();
    true
}
