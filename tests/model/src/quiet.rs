//! When is nothing left to do for the holder of the claim? Then Git has to be the cluster.
//!
//! Owners before it may be dead, and pushes may never arrive: neither is waited for.

use upriver_engine::branch::ScopeView;
use upriver_sim::invariants::Broken;

use crate::config::scope;
use crate::world::World;

pub(crate) fn is_quiet(world: &World) -> bool {
    let Some(owner) = world.lease.holder.and_then(|holder| world.owners.get(holder)) else { return false };
    let at_rest = !owner.gone
        && owner.store_queue.is_empty()
        && owner.git_queue.is_empty()
        && owner.flying.is_none()
        && owner.proving.is_none()
        && owner.engine.is_running();
    let Some(watch) = owner.watch.as_ref().filter(|_| at_rest) else { return false };
    let Some(after) = watch.after() else { return false };
    if watch.in_flight
        || !watch.backfills.is_empty()
        || after < world.cluster.rv
        || world.would_find_news(owner)
        || world.heartbeat_tells(owner, watch, after)
    {
        return false;
    }
    let view = owner.engine.view();
    let ready = |scope: &ScopeView| *scope == ScopeView::Ready;
    let targets = || view.targets.values();
    view.depth == 0
        && targets().all(|target| target.waiting == 0)
        && targets().flat_map(|target| target.scopes.values()).all(ready)
}

/// FINAL.
pub(crate) fn check(world: &World) -> Result<(), Broken> {
    match world.inspect() {
        Some(stored) => world.checks.finally(&stored, &world.cluster, &world.remote, &[scope()]),
        None => Err(Broken { rule: "FINAL", what: "there is no journal".to_owned() }),
    }
}
