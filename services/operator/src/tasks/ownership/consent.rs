//! Asking another replica whether it wants a claim of ours.

use futures::FutureExt;
use futures::future::BoxFuture;
use upriver_engine::lease::Member;

/// A way to ask peers. The other side answers with [`upriver_engine::lease::Directory::consent`], and then looks soon.
pub(crate) trait Consent: Send + Sync {
    /// Whether `peer` wants the claim with this Lease, which we hold at `epoch`; the error says why not.
    fn ask(&self, peer: &Member, claim: &str, epoch: u64) -> BoxFuture<'static, Result<(), String>>;
}

/// No peer can be asked: so no claim moves, except at the end of a process.
pub(crate) struct NoPeers;

impl Consent for NoPeers {
    fn ask(&self, _: &Member, _: &str, _: u64) -> BoxFuture<'static, Result<(), String>> {
        futures::future::ready(Err("peers cannot be asked".to_owned())).boxed()
    }
}
