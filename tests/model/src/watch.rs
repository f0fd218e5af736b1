//! One watch of one owner. What it alone sees happens at once; reading the cluster and sending are steps.

use upriver_engine::branch::{Member, Snapshot, Start};
use upriver_model::{ResourceVersion, TargetScope};
use upriver_sim::cluster::{self, Cluster};
use upriver_store::Opening;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// Has asked for its stream to be opened.
    AwaitingBegin,
    /// Is to list everything.
    Listing,
    /// Has read up to this version.
    Following { after: u64 },
}

/// A list beside the stream.
#[derive(Clone, Debug)]
pub(crate) struct Backfill {
    pub(crate) opening: Opening,
    pub(crate) scopes: Vec<TargetScope>,
    /// Read, but the owner has not heard of it.
    pub(crate) listed: Option<Snapshot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) life: u32,
    pub(crate) opening: Opening,
    pub(crate) state: WatchState,
    pub(crate) seq: u64,
    /// A frame is on its way to the store.
    pub(crate) in_flight: bool,
    pub(crate) backfills: Vec<Backfill>,
}

impl Watch {
    pub(crate) fn new(life: u32, opening: Opening) -> Self {
        let state = WatchState::AwaitingBegin;
        Self { life, opening, state, seq: 0, in_flight: false, backfills: Vec::new() }
    }

    /// Version that it has read up to, while it follows.
    pub(crate) fn after(&self) -> Option<u64> {
        match self.state {
            WatchState::Following { after } => Some(after),
            WatchState::AwaitingBegin | WatchState::Listing => None,
        }
    }

    pub(crate) fn begin(&mut self, start: &Start) {
        self.state = match start {
            Start::Resume(rv) => WatchState::Following { after: rv.number().unwrap_or(0) },
            Start::Replay => WatchState::Listing,
        };
    }

    /// A complete list as the cluster is now.
    pub(crate) fn list(opening: &Opening, scopes: Vec<TargetScope>, cluster: &Cluster) -> Snapshot {
        let members = cluster.live.iter().map(|((kind, object), live)| Member {
            key: cluster::key(*object),
            kind: cluster::kind_name(*kind).into(),
            uid: live.uid.to_string().into(),
            rv: version(live.rv),
            payload: Some(cluster::payload(live.content)),
        });
        Snapshot {
            opening: opening.clone(),
            scopes,
            list_rv: version(cluster.rv),
            time_ms: observed(cluster.rv),
            members: members.collect(),
        }
    }
}

pub(crate) fn version(rv: u64) -> ResourceVersion {
    ResourceVersion::new(&rv.to_string())
}

/// The watcher's clock: it reads a change a moment after it was made.
pub(crate) fn observed(rv: u64) -> i64 {
    i64::try_from(rv).unwrap_or(0) * 1_000
}
