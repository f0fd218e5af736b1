//! When is each change in Git? A thread looks at the branch's tip all the time; when it has moved, the files that differ
//! are those that arrived at that moment. What they hold is compared afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use upriver_testkit::stack::Repo;
use upriver_testkit::wait::until_blocking;
use upriver_testkit::{Mirror, Stack, try_eventually};

/// Longer than any run: the thread is stopped, it does not time out.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// Moment at which each file was first seen, by path.
pub(crate) type Arrivals = BTreeMap<String, Instant>;

#[derive(Default)]
struct Shared {
    seen: Mutex<Arrivals>,
    stop: AtomicBool,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Arrivals> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread and what it has seen.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    wanted: usize,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// Watches the mirror's branch until [`Watcher::finish`].
    pub(crate) fn start(stack: &Stack, mirror: &Mirror, wanted: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let (repo, branch, known) = (stack.repo(), mirror.spec.branch.clone(), Arc::clone(&shared));
        let thread = std::thread::spawn(move || follow(&repo, &branch, &known));
        Self { shared, wanted, thread }
    }

    /// Waits until all files have been seen, or time is up, and returns what was seen.
    pub(crate) async fn finish(self, timeout: Duration) -> Arrivals {
        // A wait that ends without all of them is no error here: the report counts what is missing.
        let _ = try_eventually("every file in Git", timeout, async || {
            let seen = self.shared.seen().len();
            if seen >= self.wanted { Ok(()) } else { Err(seen) }
        })
        .await;
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.shared.seen().clone()
    }
}

fn follow(repo: &Repo, branch: &str, shared: &Shared) {
    let mut tip: Option<String> = repo.head(branch);
    loop {
        let moved = until_blocking(FOR_EVER, || {
            if shared.stop.load(Ordering::Relaxed) {
                return Some(None);
            }
            repo.head(branch).filter(|found| tip.as_ref() != Some(found)).map(Some)
        });
        let Some(Some(found)) = moved else { return };
        let at = Instant::now();
        let changed = repo.changed(tip.as_deref(), &found);
        let mut seen = shared.seen();
        for path in changed {
            seen.entry(path).or_insert(at);
        }
        tip = Some(found);
    }
}
