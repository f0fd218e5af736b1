//! The embedded store passes the suite that every store passes, and its losses look like those of Redis.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use upriver_store::conformance::{self, Fixture};
use upriver_store::{AppendReply, EmbeddedStore, JournalLimits, OpenReply, Store, StoreError};

/// The embedded store never waits: its replies are there at the first look.
fn ready<T>(reply: impl Future<Output = T>) -> T {
    match pin!(reply).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the embedded store waited"),
    }
}

#[test]
fn the_embedded_store_passes_the_conformance_suite() {
    let store = EmbeddedStore::new();
    assert_eq!(ready(store.check()), Ok(()));
    ready(conformance::all(&store));
}

#[test]
fn a_wiped_journal_is_lost_until_it_is_adopted_again() {
    let store = EmbeddedStore::new();
    let f = Fixture::new("wiped");
    let (journal, before) = ready(f.adopt(&store, 1)).expect("a free journal");
    store.wipe();
    let lost = ready(journal.open(f.opening(1, 1)));
    assert!(matches!(lost, Err(StoreError::Lost { .. })), "{lost:?}");
    let dead = ready(journal.open(f.opening(1, 1)));
    assert!(matches!(dead, Err(StoreError::Unavailable { .. })), "{dead:?}");
    let (_, after) = ready(f.adopt_as(&store, 2, "replica-2")).expect("adopts");
    assert!(after.created);
    assert_ne!(after.incarnation, before.incarnation);
}

#[test]
fn a_rolled_back_journal_is_lost_even_at_the_same_epoch() {
    let store = EmbeddedStore::with_clock(|| 7);
    let f = Fixture::new("rolled-back");
    let (journal, _) = ready(f.adopt(&store, 1)).expect("a free journal");
    let opening = f.opening(1, 1);
    assert_eq!(ready(journal.open(opening.clone())), Ok(OpenReply::Opened { cursor: None }));
    let snapshot = store.snapshot();
    let entry = f.entry((1, 1), "a", 9, upriver_model::Operation::Create);
    let frame = f.frame(&opening, 1, 9, vec![entry]);
    let appended = ready(journal.append(frame, JournalLimits::default()));
    assert_eq!(appended, Ok(AppendReply::Appended { stamped_ms: 7, kept: vec![true] }));
    assert_eq!(store.inspect(&f.branch).expect("there").loaded.entries.len(), 1);

    store.restore(&snapshot);
    let lost = ready(journal.open(f.opening(1, 2)));
    assert!(matches!(lost, Err(StoreError::Lost { .. })), "{lost:?}");
    assert!(store.inspect(&f.branch).expect("there").loaded.entries.is_empty());
}

#[test]
fn an_id_is_never_used_twice() {
    let store = EmbeddedStore::new();
    let f = Fixture::new("ids");
    let (journal, _) = ready(f.adopt(&store, 1)).expect("a free journal");
    let opening = f.opening(1, 1);
    ready(journal.open(opening.clone())).expect("opens");
    let entry = |n, rv| f.entry((1, n), "a", rv, upriver_model::Operation::Update);
    let append =
        |seq, n, rv| journal.append(f.frame(&opening, seq, rv, vec![entry(n, rv)]), JournalLimits::default());
    assert!(ready(append(1, 5, 9)).is_ok());
    let again = ready(append(2, 5, 10));
    assert!(matches!(again, Err(StoreError::Unavailable { .. })), "{again:?}");
}
