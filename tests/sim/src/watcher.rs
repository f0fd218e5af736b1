//! One watch of one owner: the operator's watch task, one decision per step.
//!
//! It reports an opening, waits for its beginning, lists or resumes, gathers events behind one frame in flight, lists for
//! back-fills beside the stream, and changes its subscriptions between two frames.

use std::collections::{BTreeMap, VecDeque};

use upriver_engine::branch::{
    Event, Member, Snapshot, Start, Subscription, WatchFrame, WatchHealth, WatchedEvent,
};
use upriver_model::{ResourceVersion, TargetScope};
use upriver_store::Opening;

use crate::Bug;
use crate::cluster::{self, Cluster, ClusterEvent};
use crate::rng::Rng;

/// A heartbeat; rarer than in the operator, to keep schedules short.
const PROGRESS_MS: u64 = 30_000;
/// Events that gather behind a frame in flight.
const GATHERED: usize = 3;

/// What the branch tells its watch.
#[derive(Clone, Debug)]
pub(crate) enum ToWatch {
    Begin(Opening, Start),
    Continue(Opening),
    Update(Opening, Vec<Subscription>),
    Backfill(Opening, Vec<TargetScope>),
    Ack(u64, u64),
    Hold(u64, u64),
}

#[derive(Clone, Debug)]
enum State {
    Reporting,
    AwaitingBegin,
    Starting(Start),
    /// The API server refuses for a while; messages are served meanwhile.
    Troubled(Start),
    Following {
        after: u64,
    },
    /// Waits until nothing is in flight, then opens the new stream.
    Updating {
        after: u64,
        opening: Opening,
        subscriptions: Vec<Subscription>,
    },
    AwaitingContinue {
        after: u64,
    },
    /// Said that its cursor has expired: the branch ends it.
    Expired,
}

#[derive(Clone, Debug)]
struct Backfill {
    opening: Opening,
    scopes: Vec<TargetScope>,
    listed: Option<Snapshot>,
}

/// What a watch can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Message,
    Report,
    Start,
    Read,
    Send,
    Reopen,
    List(usize),
}

pub(crate) struct Watcher {
    pub(crate) life: u32,
    kind: usize,
    opening: Opening,
    subscriptions: Vec<Subscription>,
    pub(crate) inbox: VecDeque<ToWatch>,
    state: State,
    seq: u64,
    gathering: Vec<WatchedEvent>,
    cursor: Option<u64>,
    in_flight: Option<WatchFrame>,
    again_at: Option<u64>,
    last_sent: Option<u64>,
    seen: BTreeMap<u64, u64>,
    backfills: Vec<Backfill>,
    bug: Option<Bug>,
}

impl Watcher {
    pub(crate) fn new(
        life: u32,
        opening: Opening,
        subscriptions: Vec<Subscription>,
        bug: Option<Bug>,
    ) -> Self {
        Self {
            life,
            kind: cluster::kind_of(&opening.watch.gvr),
            opening,
            subscriptions,
            inbox: VecDeque::new(),
            state: State::Reporting,
            seq: 0,
            gathering: Vec::new(),
            cursor: None,
            in_flight: None,
            again_at: None,
            last_sent: None,
            seen: BTreeMap::new(),
            backfills: Vec::new(),
            bug,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.opening.watch_epoch
    }

    fn frame_due(&self, now: u64) -> bool {
        match &self.in_flight {
            Some(_) => self.again_at.is_some_and(|at| now >= at),
            None => !self.gathering.is_empty() || now >= self.progress_at(),
        }
    }

    fn progress_at(&self) -> u64 {
        self.last_sent.map_or(0, |sent| sent + PROGRESS_MS)
    }

    fn is_idle(&self) -> bool {
        self.gathering.is_empty() && self.in_flight.is_none()
    }

    /// Everything that the cluster has for it is read and acknowledged.
    pub(crate) fn is_quiet(&self, cluster: &Cluster) -> bool {
        let State::Following { after } = self.state else { return false };
        self.is_idle()
            && self.inbox.is_empty()
            && self.backfills.is_empty()
            && cluster.after(self.kind, after).is_none()
    }

    /// When time alone makes it act.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let follows = matches!(self.state, State::Following { .. } | State::Updating { .. });
        if !follows {
            return None;
        }
        if self.in_flight.is_some() { self.again_at } else { Some(self.progress_at()) }
    }

    pub(crate) fn acts(&self, now: u64, cluster: &Cluster) -> Vec<Act> {
        let mut acts = Vec::new();
        if !self.inbox.is_empty() && !matches!(self.state, State::Reporting | State::Starting(_)) {
            acts.push(Act::Message);
        }
        match &self.state {
            State::Reporting => acts.push(Act::Report),
            State::Starting(_) | State::Troubled(_) => acts.push(Act::Start),
            State::Following { after } => {
                if self.frame_due(now) {
                    acts.push(Act::Send);
                }
                if self.gathering.len() < GATHERED && cluster.after(self.kind, *after).is_some() {
                    acts.push(Act::Read);
                }
            }
            State::Updating { .. } if self.is_idle() => acts.push(Act::Reopen),
            State::Updating { .. } => {
                if self.frame_due(now) {
                    acts.push(Act::Send);
                }
            }
            State::AwaitingBegin | State::AwaitingContinue { .. } | State::Expired => {}
        }
        acts.extend((0..self.backfills.len()).map(Act::List));
        acts
    }

    /// Does one thing; answers what the branch is told.
    pub(crate) fn act(&mut self, act: Act, now: u64, cluster: &Cluster, rng: &mut Rng) -> Vec<Event> {
        match act {
            Act::Message => {
                self.message(now);
                Vec::new()
            }
            Act::Report => {
                self.state = State::AwaitingBegin;
                vec![Event::Opening(self.opening.clone())]
            }
            Act::Start => self.start(cluster),
            Act::Read => self.read(cluster, rng),
            Act::Send => self.send(now).map(Event::Frame).into_iter().collect(),
            Act::Reopen => self.reopen(),
            Act::List(index) => self.list(index, cluster),
        }
    }

    fn message(&mut self, now: u64) {
        let Some(message) = self.inbox.pop_front() else { return };
        let stream = self.opening.stream;
        match message {
            ToWatch::Begin(opening, start) => {
                if matches!(self.state, State::AwaitingBegin) && opening == self.opening {
                    if let Start::Resume(rv) = &start {
                        self.cursor = rv.number();
                    }
                    self.state = State::Starting(start);
                }
            }
            // The operator's watch hears nothing else before it has begun.
            _ if matches!(self.state, State::AwaitingBegin | State::Expired) => {}
            ToWatch::Continue(opening) => {
                if let State::AwaitingContinue { after } = self.state
                    && opening == self.opening
                {
                    self.state = State::Following { after };
                }
            }
            ToWatch::Update(opening, subscriptions) => self.update(opening, subscriptions),
            ToWatch::Backfill(opening, scopes) => {
                let mut by_place: BTreeMap<_, Vec<TargetScope>> = BTreeMap::new();
                for scope in scopes {
                    by_place.entry(scope.scope.clone()).or_default().push(scope);
                }
                let lists = by_place.into_values().map(|scopes| Backfill {
                    opening: opening.clone(),
                    scopes,
                    listed: None,
                });
                self.backfills.extend(lists);
            }
            ToWatch::Ack(of, seq) => {
                if of == stream && self.in_flight.as_ref().is_some_and(|frame| frame.seq == seq) {
                    self.in_flight = None;
                    self.again_at = None;
                }
            }
            ToWatch::Hold(of, seq) => {
                if of == stream && self.in_flight.as_ref().is_some_and(|frame| frame.seq == seq) {
                    self.again_at = Some(now + 1_000);
                    if self.bug == Some(Bug::HeldFrameDropped) {
                        // Its number goes to the next one, or the owner would notice a gap.
                        self.seq -= 1;
                        self.in_flight = None;
                        self.again_at = None;
                    }
                }
            }
        }
    }

    fn update(&mut self, opening: Opening, subscriptions: Vec<Subscription>) {
        let after = match &self.state {
            State::Following { after }
            | State::Updating { after, .. }
            | State::AwaitingContinue { after } => *after,
            State::Troubled(_) => self.cursor.unwrap_or(0),
            State::Reporting | State::AwaitingBegin | State::Starting(_) | State::Expired => return,
        };
        self.state = State::Updating { after, opening, subscriptions };
    }

    fn reopen(&mut self) -> Vec<Event> {
        let State::Updating { after, opening, subscriptions } = self.state.clone() else { return Vec::new() };
        self.opening = opening;
        self.subscriptions = subscriptions;
        self.seen.clear();
        self.seq = 0;
        self.again_at = None;
        self.last_sent = None;
        self.state = State::AwaitingContinue { after };
        vec![Event::Opening(self.opening.clone())]
    }

    fn start(&mut self, cluster: &Cluster) -> Vec<Event> {
        let (State::Starting(start) | State::Troubled(start)) = self.state.clone() else { return Vec::new() };
        let watch = self.opening.watch.clone();
        match start {
            Start::Replay => {
                let snapshot = self.snapshot(&self.opening.clone(), Vec::new(), cluster);
                for member in &snapshot.members {
                    let uid = member.uid.parse().unwrap_or(0);
                    self.seen.insert(uid, member.payload.as_deref().map_or(0, cluster::content));
                }
                self.cursor = Some(cluster.rv);
                self.state = State::Following { after: cluster.rv };
                vec![
                    Event::Health(watch.clone(), WatchHealth::Replaying),
                    Event::Snapshot(Box::new(snapshot)),
                    Event::Health(watch, WatchHealth::Live),
                ]
            }
            Start::Resume(rv) => {
                let after = self.cursor.or_else(|| rv.number()).unwrap_or(0);
                let expired = after < cluster.compacted || after > cluster.rv;
                if expired && self.bug == Some(Bug::ExpiredIgnored) {
                    self.state = State::Following { after: cluster.rv };
                    return vec![Event::Health(watch, WatchHealth::Live)];
                }
                if expired {
                    let rewound = after > cluster.rv;
                    self.state = State::Expired;
                    return vec![Event::Expired { opening: self.opening.clone(), rewound }];
                }
                self.state = State::Following { after };
                vec![Event::Health(watch, WatchHealth::Live)]
            }
        }
    }

    fn read(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<Event> {
        let State::Following { after } = &mut self.state else { return Vec::new() };
        let Some(event) = cluster.after(self.kind, *after) else { return Vec::new() };
        if event.rv <= cluster.compacted && self.bug == Some(Bug::ExpiredIgnored) {
            *after = cluster.compacted;
            return Vec::new();
        }
        if event.rv <= cluster.compacted {
            self.state = State::Expired;
            return vec![Event::Expired { opening: self.opening.clone(), rewound: false }];
        }
        *after = event.rv;
        self.cursor = Some(event.rv);
        // A bookmark right behind it.
        if cluster.after(self.kind, event.rv).is_none() && rng.once_in(4) {
            *after = cluster.rv;
            self.cursor = Some(cluster.rv);
        }
        if let Some(event) = self.wanted(event) {
            self.gathering.push(event);
        }
        Vec::new()
    }

    fn wanted(&mut self, event: &ClusterEvent) -> Option<WatchedEvent> {
        let scopes: Vec<TargetScope> = self
            .subscriptions
            .iter()
            .map(|subscription| &subscription.scope)
            .filter(|scope| cluster::covers(&scope.scope, event.object))
            .cloned()
            .collect();
        if scopes.is_empty() {
            return None;
        }
        if let Some(content) = event.content {
            let known = self.seen.insert(event.uid, content) == Some(content);
            if known && event.operation == upriver_model::Operation::Update {
                return None;
            }
        }
        Some(WatchedEvent {
            scopes,
            key: cluster::key(event.object),
            kind: cluster::kind_name(event.kind).into(),
            uid: event.uid.to_string().into(),
            rv: version(event.rv),
            operation: event.operation,
            payload: event.content.map(cluster::payload),
            author: cluster::author(event.rv),
            observed_at_ms: observed(event.rv),
        })
    }

    fn send(&mut self, now: u64) -> Option<WatchFrame> {
        if self.in_flight.is_some() {
            self.again_at = None;
            return self.in_flight.clone();
        }
        self.seq += 1;
        self.last_sent = Some(now);
        let frame = WatchFrame {
            opening: self.opening.clone(),
            seq: self.seq,
            cursor: self.cursor.map(version),
            events: std::mem::take(&mut self.gathering),
        };
        self.in_flight = Some(frame.clone());
        Some(frame)
    }

    /// First the list is read, later the branch hears of it.
    fn list(&mut self, index: usize, cluster: &Cluster) -> Vec<Event> {
        let wanted = self.backfills[index].clone();
        match wanted.listed {
            Some(snapshot) => {
                self.backfills.remove(index);
                vec![Event::Snapshot(Box::new(snapshot))]
            }
            None => {
                let snapshot = self.snapshot(&wanted.opening, wanted.scopes, cluster);
                self.backfills[index].listed = Some(snapshot);
                Vec::new()
            }
        }
    }

    fn snapshot(&self, opening: &Opening, scopes: Vec<TargetScope>, cluster: &Cluster) -> Snapshot {
        let asked = |object: usize| {
            let mine = self.subscriptions.iter().map(|subscription| &subscription.scope);
            if scopes.is_empty() {
                mine.into_iter().any(|scope| cluster::covers(&scope.scope, object))
            } else {
                scopes.iter().any(|scope| cluster::covers(&scope.scope, object))
            }
        };
        let members = cluster
            .live
            .iter()
            .filter(|((kind, object), _)| *kind == self.kind && asked(*object))
            .map(|((kind, object), live)| Member {
                key: cluster::key(*object),
                kind: cluster::kind_name(*kind).into(),
                uid: live.uid.to_string().into(),
                rv: version(live.rv),
                payload: Some(cluster::payload(live.content)),
            })
            .collect();
        Snapshot {
            opening: opening.clone(),
            scopes,
            list_rv: version(cluster.rv),
            time_ms: observed(cluster.rv),
            members,
        }
    }

    /// The connection ends: the watch goes on after what it has read.
    pub(crate) fn break_connection(&mut self, trouble: bool) {
        if !matches!(self.state, State::Following { .. }) {
            return;
        }
        let start = self.cursor.map_or(Start::Replay, |cursor| Start::Resume(version(cursor)));
        self.state = if trouble { State::Troubled(start) } else { State::Starting(start) };
    }
}

fn version(rv: u64) -> ResourceVersion {
    ResourceVersion::new(&rv.to_string())
}

/// The watcher's clock: it reads a change a moment after it was made.
fn observed(rv: u64) -> i64 {
    1_700_000_000_000 + i64::try_from(rv).unwrap_or(0) * 1_000
}
