//! CommitRequests: the housekeeper's. No Events.

use kube::ResourceExt;
use upriver_api::condition::{Finding, Gate, find, is_true, trio, types};
use upriver_api::{CommitRequest, CommitRequestStatus, Reason};
use upriver_kube_io::status as write_status;

use super::{Pass, apply, changed};
use crate::control::compile::key_of;
use crate::control::conditions::{self, Patience};
use crate::control::facts::target_of;

pub(super) async fn commit_requests(pass: &Pass<'_>) {
    for request in &pass.snapshot.commit_requests {
        let before = request.status.clone().unwrap_or_default();
        if is_over(&before) {
            continue;
        }
        let generation = request.metadata.generation;
        let mut status = before.clone();
        status.observed_generation = generation;
        status.conditions = apply(&before.conditions, &findings(request, pass), generation);
        if let Some(patch) = changed(request.status.as_ref(), &status) {
            let key = key_of(&**request);
            match write_status::write(pass.client, &**request, &patch).await {
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(kind = "CommitRequest", object = %key, %error,
                        "a status was not written; the next pass tries again");
                }
            }
        }
    }
}

/// A request ends once. What this release cannot do yet is no end: the next release takes it up.
pub(in crate::control) fn is_over(status: &CommitRequestStatus) -> bool {
    let failed = find(&status.conditions, types::READY)
        .is_some_and(|ready| ready.reason == Reason::FinalizeFailed.as_str());
    is_true(&status.conditions, types::READY) || (failed && is_true(&status.conditions, types::STALLED))
}

fn findings(request: &CommitRequest, pass: &Pass<'_>) -> Vec<Finding> {
    let target = target_of(request);
    if pass.compiled.targets.contains_key(&target) {
        let message = "this kind is not supported yet; the object has no effect";
        return trio(&[Gate::blocked(Reason::NotYetSupported, message)], "").into();
    }
    let overdue = request.uid().is_some_and(|uid| pass.snapshot.overdue_requests.contains(&uid));
    let patience = if overdue { Patience::Over } else { Patience::Waiting };
    conditions::missing_target(&target.to_string(), patience)
}
