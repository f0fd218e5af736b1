//! How long has each watch been silent? Counted when somebody asks, so that a watch that hangs is seen hanging.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use upriver_model::Gvr;

use crate::metric;

type Labels = [(&'static str, String); 4];

#[derive(Default)]
struct Watches {
    next: u64,
    running: BTreeMap<u64, (Labels, Arc<AtomicU64>)>,
}

static WATCHES: Mutex<Watches> = Mutex::new(Watches { next: 0, running: BTreeMap::new() });
static START: OnceLock<Instant> = OnceLock::new();

fn now_ms() -> u64 {
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A watch that shows how long it has been silent, from its start to its drop.
#[derive(Debug)]
pub struct LifeSign {
    id: u64,
    last_ms: Arc<AtomicU64>,
}

impl LifeSign {
    /// Begins to count. `namespace` is `None` for a watch of the whole cluster.
    #[must_use]
    pub fn start(shard: &str, gvr: &Gvr, namespace: Option<&str>) -> Self {
        let labels = [
            ("shard", shard.to_owned()),
            ("group", gvr.group.to_string()),
            ("resource", gvr.resource.to_string()),
            ("scope", namespace.unwrap_or("*").to_owned()),
        ];
        let last_ms = Arc::new(AtomicU64::new(now_ms()));
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        let id = watches.next;
        watches.next += 1;
        watches.running.insert(id, (labels, last_ms.clone()));
        Self { id, last_ms }
    }

    /// The API server said something.
    pub fn sign(&self) {
        self.last_ms.store(now_ms(), Ordering::Relaxed);
    }
}

impl Drop for LifeSign {
    fn drop(&mut self) {
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((labels, _)) = watches.running.remove(&self.id) {
            // The exporter forgets no series: one that nobody feeds must not look like a hanging watch.
            metrics::gauge!(metric::WATCH_SILENCE, &labels).set(0.0);
        }
    }
}

/// Brings the gauges up to date; called before they are shown.
pub fn refresh() {
    let now = now_ms();
    let watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    for (labels, last_ms) in watches.running.values() {
        let silent = now.saturating_sub(last_ms.load(Ordering::Relaxed));
        let seconds = f64::from(u32::try_from(silent).unwrap_or(u32::MAX)) / 1000.0;
        metrics::gauge!(metric::WATCH_SILENCE, labels).set(seconds);
    }
}
