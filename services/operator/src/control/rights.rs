//! Which types may be watched in every namespace: asked once, and again before the answer gets old.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::Client;
use upriver_engine::branch::ScopeView;
use upriver_kube_io::rights::may_watch_everywhere;
use upriver_model::Gvr;

use super::compile::Compiled;
use super::snapshot::OwnedBranch;

/// Rights are granted and taken without an event for us.
const REFRESH: Duration = Duration::from_secs(300);
/// A refused watch asks again this soon after the last answer.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);

/// What is known about our rights.
#[derive(Default)]
pub(super) struct Rights {
    known: BTreeMap<Gvr, (bool, Instant)>,
}

impl Rights {
    /// The answers by type.
    pub(super) fn by_type(&self) -> BTreeMap<Gvr, bool> {
        self.known.iter().map(|(gvr, (allowed, _))| (gvr.clone(), *allowed)).collect()
    }

    /// Asks for what a pass missed and for what is due; true if any answer is new.
    pub(super) async fn learn<'a>(
        &mut self,
        client: &Client,
        compiled: &Compiled,
        owned: impl Iterator<Item = &'a OwnedBranch>,
    ) -> bool {
        let wanted: BTreeSet<Gvr> = compiled
            .targets
            .values()
            .flat_map(|target| target.scopes.iter().map(|scope| scope.gvr.clone()))
            .collect();
        self.known.retain(|gvr, _| wanted.contains(gvr));
        let refused = refused(owned);
        let due: Vec<Gvr> =
            wanted.into_iter().filter(|gvr| self.is_due(gvr, refused.contains(gvr))).collect();
        if due.is_empty() {
            return false;
        }
        let mut news = false;
        for (gvr, answer) in may_watch_everywhere(client, &due).await {
            news |= self.remember(gvr, answer);
        }
        news
    }

    fn is_due(&self, gvr: &Gvr, refused: bool) -> bool {
        let limit = if refused { AFTER_REFUSAL } else { REFRESH };
        self.known.get(gvr).is_none_or(|(_, at)| at.elapsed() >= limit)
    }

    fn remember(&mut self, gvr: Gvr, answer: Result<bool, kube::Error>) -> bool {
        let allowed = match answer {
            Ok(allowed) => allowed,
            // Who may not even ask is treated as one who may not: a watch per namespace needs the least.
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                tracing::warn!(%gvr, error = %status.message, "the rights for a type may not be asked for");
                self.known.get(&gvr).is_some_and(|(allowed, _)| *allowed)
            }
            Err(error) => {
                tracing::warn!(%gvr, %error, "the rights for a type could not be read; trying again");
                return false;
            }
        };
        let before = self.known.insert(gvr, (allowed, Instant::now()));
        before.map(|(allowed, _)| allowed) != Some(allowed)
    }
}

/// Types of which a watch was refused.
fn refused<'a>(owned: impl Iterator<Item = &'a OwnedBranch>) -> BTreeSet<Gvr> {
    let scopes = owned.flat_map(|branch| branch.view.targets.values()).flat_map(|target| &target.scopes);
    let refused = scopes.filter(
        |(_, state)| matches!(state, ScopeView::Blocked { reason, .. } if *reason == "WatchNotPermitted"),
    );
    refused.map(|(scope, _)| scope.gvr.clone()).collect()
}
