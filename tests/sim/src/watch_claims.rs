//! Who may watch: an epoch for each watch, and streams that are never used twice.

use std::collections::BTreeMap;

use upriver_model::WatchKey;
use upriver_store::Opening;

use crate::watcher::Watcher;

#[derive(Default)]
pub(crate) struct WatchClaims {
    claims: BTreeMap<WatchKey, Claim>,
    /// The next watcher that connects does so with the epoch before the present one.
    pub(crate) outdated: bool,
}

#[derive(Clone, Copy)]
struct Claim {
    epoch: u64,
    streams: u64,
}

impl Default for Claim {
    fn default() -> Self {
        Self { epoch: 1, streams: 0 }
    }
}

impl WatchClaims {
    /// A watcher connects and opens its first stream.
    pub(crate) fn open(&mut self, watch: &WatchKey, scope_hash: String) -> Opening {
        let outdated = std::mem::take(&mut self.outdated);
        let claim = self.claims.entry(watch.clone()).or_default();
        let epoch = if outdated { claim.epoch.saturating_sub(1).max(1) } else { claim.epoch };
        Self::next(claim, watch, epoch, scope_hash)
    }

    /// A watcher opens another stream, in its own epoch.
    pub(crate) fn reopen(
        &mut self,
        watcher: Option<&Watcher>,
        watch: &WatchKey,
        scope_hash: String,
    ) -> Opening {
        let claim = self.claims.entry(watch.clone()).or_default();
        let epoch = watcher.map_or(claim.epoch, Watcher::epoch);
        Self::next(claim, watch, epoch, scope_hash)
    }

    fn next(claim: &mut Claim, watch: &WatchKey, watch_epoch: u64, scope_hash: String) -> Opening {
        claim.streams += 1;
        Opening { watch: watch.clone(), watch_epoch, stream: claim.streams, scope_hash }
    }

    /// Another process takes the claim.
    pub(crate) fn move_on(&mut self, watch: &WatchKey) {
        self.claims.entry(watch.clone()).or_default().epoch += 1;
    }

    /// The store knows a later epoch than the holder's (F17).
    pub(crate) fn go_above(&mut self, watch: &WatchKey, stored: u64) {
        let claim = self.claims.entry(watch.clone()).or_default();
        if claim.epoch < stored {
            claim.epoch = stored + 1;
        }
    }
}
