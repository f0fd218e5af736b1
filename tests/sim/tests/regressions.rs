//! What the schedules found in the branch owner, each as the shortest story that shows it.

use std::collections::BTreeMap;

use upriver_engine::Tick;
use upriver_engine::branch::{
    Base, Branch, BranchOptions, Built, Chosen, Command, Event, Fetched, Member, Snapshot, Start,
    Subscription, TargetPlan, UnitKind, UnitResult, WatchFrame, WatchedEvent,
};
use upriver_engine::window::WindowRule;
use upriver_model::{
    Author, BranchKey, CommitId, EntryId, Epoch, Failure, FailureClass, FleetId, Gvr, IdSet, Incarnation,
    ObjectKey, Operation, ResourceVersion, Scope, TargetScope, TargetUid, WatchKey,
};
use upriver_store::{Adopted, AppendReply, ClearReply, OpenReply, Opening};

/// An owner that a test talks to.
struct Story {
    branch: Branch,
    now: u64,
}

fn gvr() -> Gvr {
    Gvr::new("", "v1", "configmaps")
}

fn watch() -> WatchKey {
    WatchKey { cluster: "local".into(), gvr: gvr(), scope: Scope::Cluster }
}

fn scope(target: &str) -> TargetScope {
    TargetScope { target: TargetUid::new(target), gvr: gvr(), scope: Scope::Cluster }
}

fn plan(target: &str) -> TargetPlan {
    TargetPlan {
        uid: TargetUid::new(target),
        window: WindowRule { silence_ms: 0, max_age_ms: 60_000 },
        never_prune: false,
        suspended: false,
        recheck: None,
        subject: "".into(),
        subscriptions: vec![Subscription {
            scope: scope(target),
            kind: "ConfigMap".into(),
            watch: watch(),
            operations: vec![Operation::Create, Operation::Update, Operation::Delete],
            chosen: Chosen::ByName,
            spec_hash: "spec".into(),
        }],
    }
}

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn commit(text: &str) -> CommitId {
    CommitId::new(text)
}

fn fetched(tip: &str) -> Event {
    let base = Base::Branch(commit(tip));
    Event::Fetched(Ok(Box::new(Fetched {
        base,
        history: Vec::new(),
        joined: true,
        subtrees: BTreeMap::new(),
    })))
}

fn built(new: Option<&str>, units: usize) -> Event {
    let results = vec![UnitResult { commit: new.map(commit), refused: Vec::new() }; units];
    Event::Built(Ok(Box::new(Built { new: new.map(commit), results, subtrees: BTreeMap::new() })))
}

fn list(opening: &Opening, scopes: Vec<TargetScope>, at: u64, uid: &str) -> Event {
    let member = Member {
        key: ObjectKey::new("shop", "a"),
        kind: "ConfigMap".into(),
        uid: uid.into(),
        rv: rv(at),
        payload: Some("{}".into()),
    };
    Event::Snapshot(Box::new(Snapshot {
        opening: opening.clone(),
        scopes,
        list_rv: rv(at),
        time_ms: 0,
        members: vec![member],
    }))
}

impl Story {
    /// An owner at the beginning of its watch, with a first tip.
    fn begin(targets: &[&str], clean: bool) -> (Self, Opening) {
        let options = BranchOptions {
            key: BranchKey::new("b"),
            fleet: FleetId::new("f"),
            epoch: Epoch::FIRST,
            clean,
            fence_after_ms: 60_000,
            drift_poll_ms: 60_000,
        };
        let mut story = Self { branch: Branch::new(options, 1), now: 1 };
        story.tell(Event::Configure(targets.iter().map(|target| plan(target)).collect()));
        story.tell(Event::Proven);
        story.tell(Event::Adopted(Adopted {
            created: true,
            incarnation: Incarnation::new("i"),
            floor: EntryId::ZERO,
            done: IdSet::new(),
            tip: None,
            subtrees: BTreeMap::new(),
        }));
        story.tell(Event::Loaded(Box::default()));
        let commands = story.tell(fetched("tip-0"));
        let opening = started(&commands, 1);
        story.tell(Event::Opening(opening.clone()));
        (story, opening)
    }

    fn tell(&mut self, event: Event) -> Vec<Command> {
        let life = self.branch.life();
        self.branch.step(Tick(self.now), life, event)
    }

    /// Opens the stream; answers the obligations that were raised.
    fn opened(&mut self, opening: &Opening, cursor: Option<u64>) -> Vec<Command> {
        self.tell(Event::Opened(opening.clone(), OpenReply::Opened { cursor: cursor.map(rv) }))
    }

    /// The list of a scope is here and its round has begun.
    fn listed(&mut self, event: Event, target: &str) -> Vec<Command> {
        self.tell(event);
        let commands = self.tell(Event::Inventory(scope(target), BTreeMap::new()));
        self.tell(Event::Cleared(scope(target), ClearReply::Cleared));
        commands
    }

    /// Carries a round from its reservation to its settlement.
    fn pushed(&mut self, new: &str) -> Vec<Command> {
        self.tell(Event::Reserved);
        self.tell(built(Some(new), 1));
        self.tell(Event::Proven);
        self.tell(Event::Intended(true));
        let commands = self.tell(Event::Pushed(Ok(())));
        let settle = commands.iter().find_map(|command| match command {
            Command::Settle(settle) => Some(settle.attempt),
            _ => None,
        });
        self.tell(Event::Settled(settle.expect("a landed push is settled")))
    }

    fn frame(&mut self, opening: &Opening, seq: u64, at: u64, uid: &str) -> Vec<Command> {
        let event = WatchedEvent {
            scopes: vec![scope("t")],
            key: ObjectKey::new("shop", "a"),
            kind: "ConfigMap".into(),
            uid: uid.into(),
            rv: rv(at),
            operation: Operation::Create,
            payload: Some("{\"old\":true}".into()),
            author: Author::Unresolved,
            observed_at_ms: 0,
        };
        let opening = opening.clone();
        self.tell(Event::Frame(WatchFrame { opening, seq, cursor: Some(rv(at)), events: vec![event] }));
        self.tell(Event::Appended(AppendReply::Appended { stamped_ms: 0, kept: vec![true] }))
    }
}

/// What the wanted watcher opens first.
fn started(commands: &[Command], stream: u64) -> Opening {
    let opening = commands.iter().find_map(|command| match command {
        Command::StartWatch { watch, scope_hash, .. } => {
            Some(Opening { watch: watch.clone(), watch_epoch: 1, stream, scope_hash: scope_hash.clone() })
        }
        _ => None,
    });
    opening.expect("a watch is started")
}

fn raises(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Raise(..)))
}

fn reserves(commands: &[Command]) -> bool {
    commands.iter().any(|command| matches!(command, Command::Reserve(_)))
}

/// INV-2: a list before the restart paid for the list after it, and the cursor went on from the later one.
#[test]
fn every_replay_of_a_watch_key_is_an_obligation_of_its_own() {
    let (mut story, first) = Story::begin(&["t"], true);
    story.opened(&first, None);
    story.listed(list(&first, Vec::new(), 10, "u1"), "t");
    let commands = story.pushed("tip-1");
    let paid = commands.iter().find_map(|command| match command {
        Command::Clear(clear) => Some(clear.generation),
        _ => None,
    });
    assert!(paid.is_some());

    let second = started(&story.tell(Event::WatchDied(watch())), 2);
    story.tell(Event::Opening(second.clone()));
    let commands = story.opened(&second, None);
    assert!(raises(&commands), "a replay that sets the cursor has its own generation: {commands:?}");
    assert!(commands.iter().any(|command| matches!(command, Command::BeginWatch(_, Start::Replay))));
    story.tell(Event::Cleared(scope("t"), ClearReply::Cleared));
    let commands = story.tell(list(&second, Vec::new(), 20, "u1"));
    let reads = commands.iter().any(|command| matches!(command, Command::ReadInventory(_)));
    assert!(reads, "the second list is still owed: {commands:?}");
}

/// INV-5: an event from before the list, of an earlier object of that name, passes the store's guard.
#[test]
fn a_settled_list_covers_late_events_of_objects_that_are_gone() {
    let (mut story, opening) = Story::begin(&["t"], true);
    story.opened(&opening, None);
    story.listed(list(&opening, Vec::new(), 100, "second-life"), "t");
    story.pushed("tip-1");
    story.tell(Event::Cleared(scope("t"), ClearReply::Cleared));
    let late = story.frame(&opening, 1, 90, "first-life");
    assert!(!reserves(&late), "nothing is committed: {late:?}");
    assert_eq!(story.branch.view().depth, 0);
    story.tell(Event::Settled(upriver_model::AttemptId { epoch: 1, n: 2 }));
    assert!(reserves(&story.frame(&opening, 2, 110, "second-life")), "what is newer is committed");
}

/// A list that was pushed, but not settled, has left files: the next list has to know them.
#[test]
fn what_a_list_holds_is_in_the_inventory_before_its_push() {
    let (mut story, opening) = Story::begin(&["t"], true);
    story.opened(&opening, None);
    story.tell(list(&opening, Vec::new(), 10, "u1"));
    let commands = story.tell(Event::Inventory(scope("t"), BTreeMap::new()));
    let recorded = commands.iter().position(|command| match command {
        Command::Clear(clear) => clear.inventory.len() == 1 && clear.spec_hash != "spec@10",
        _ => false,
    });
    let reserved = commands.iter().position(|command| matches!(command, Command::Reserve(_)));
    assert!(recorded.is_some() && recorded < reserved, "{commands:?}");
}

/// NOSTUCK: the shell woke up at once, again and again, for as long as a round took.
#[test]
fn no_deadline_is_in_the_past_while_a_round_is_under_way() {
    let (mut story, opening) = Story::begin(&["t"], true);
    story.opened(&opening, None);
    story.listed(list(&opening, Vec::new(), 10, "u1"), "t");
    story.tell(Event::Reserved);
    story.tell(Event::Built(Err(Failure::new(FailureClass::Policy, "protected"))));
    story.now += 120_000;
    story.tell(Event::Tick);
    let next = story.branch.next_deadline().expect("the round is tried again");
    assert!(next > Tick(story.now), "{next:?}");
}

/// INV-4: the failure of an idle look put a second fetch beside a build that was under way.
#[test]
fn a_failed_idle_look_does_not_disturb_a_round() {
    let (mut story, opening) = Story::begin(&["t"], true);
    story.opened(&opening, None);
    story.now += 60_000;
    let looks = story.tell(Event::Tick);
    assert!(looks.iter().any(|command| matches!(command, Command::ReadRef)));
    story.listed(list(&opening, Vec::new(), 10, "u1"), "t");
    story.tell(Event::Reserved);
    story.tell(Event::RefRead(Err(Failure::new(FailureClass::Network, "reset"))));
    let proves = story.tell(built(Some("tip-1"), 1));
    assert!(proves.iter().any(|command| matches!(command, Command::Prove)), "the round goes on: {proves:?}");
}

/// NOSTUCK: nobody builds for a target that is gone, so its fence never came.
#[test]
fn a_fence_is_pushed_for_a_target_that_still_exists() {
    let (mut story, opening) = Story::begin(&["gone", "t"], false);
    story.opened(&opening, None);
    story.tell(list(&opening, Vec::new(), 10, "u1"));
    story.tell(Event::Inventory(scope("gone"), BTreeMap::new()));
    story.tell(Event::Reserved);
    story.tell(built(None, 1));
    story.tell(Event::Configure(vec![plan("t")]));
    story.now += 60_000;
    story.tell(Event::Tick);
    let commands = story.tell(Event::RefRead(Ok(Some(commit("tip-0")))));
    let fence = commands.iter().find_map(|command| match command {
        Command::Build { units, .. } => {
            units.iter().find(|(unit, _)| unit.kind == UnitKind::Fence).map(|(unit, _)| unit.target.clone())
        }
        _ => None,
    });
    assert_eq!(fence, Some(TargetUid::new("t")), "{commands:?}");
}
