//! Secrets that watchers saw and left out, by target. Their names are not secret, their content never gets here.

use std::collections::{BTreeMap, BTreeSet};

use upriver_model::{ObjectKey, TargetUid};

use crate::tasks::watch::link::LeftOut;

#[derive(Default)]
pub(super) struct SkippedSecrets(BTreeMap<TargetUid, BTreeSet<ObjectKey>>);

impl SkippedSecrets {
    pub(super) fn note(&mut self, secrets: Vec<LeftOut>) {
        for secret in secrets {
            let seen = self.0.entry(secret.target).or_default();
            if secret.gone {
                seen.remove(&secret.key);
            } else {
                seen.insert(secret.key);
            }
        }
    }

    pub(super) fn counts(&self) -> BTreeMap<TargetUid, usize> {
        self.0.iter().map(|(target, keys)| (target.clone(), keys.len())).collect()
    }
}
