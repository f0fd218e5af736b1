use super::*;

fn object(rv: u64, size: usize) -> Item {
    let padding = "x".repeat(size);
    let metadata = format!(r#"{{"name":"o","namespace":"n","uid":"u","resourceVersion":"{rv}"}}"#);
    Item::Modified(format!(r#"{{"metadata":{metadata},"data":{{"k":"{padding}"}}}}"#).into())
}

fn join(stream: &mut Stream, at: u64) -> Join {
    let (answer, mut answered) = oneshot::channel();
    stream.join(Ask { at, answer });
    answered.try_recv().expect("joining is answered at once")
}

fn seat(stream: &mut Stream, at: u64) -> Seat {
    match join(stream, at) {
        Join::Seat(seat) => seat,
        Join::Behind | Join::Expired { .. } | Join::Failed(_) => panic!("no seat behind {at}"),
    }
}

/// Versions that wait for a listener; `None` at the end if it was left out.
async fn versions(seat: &mut Seat, count: usize) -> Vec<Option<u64>> {
    let mut heard = Vec::new();
    for _ in 0..count {
        heard.push(match seat.next().await {
            Some(Heard::Item(_, rv)) => rv,
            Some(Heard::Health(_) | Heard::Expired { .. }) | None => None,
        });
    }
    heard
}

#[tokio::test]
async fn who_joins_gets_all_that_came_after_its_version_and_nothing_before() {
    let mut stream = Stream::new(10);
    for rv in [12, 15, 20] {
        stream.say(object(rv, 1));
    }
    let mut late = seat(&mut stream, 15);
    let mut ahead = seat(&mut stream, 25);
    stream.say(object(30, 1));
    assert_eq!(versions(&mut late, 2).await, [Some(20), Some(30)]);
    assert_eq!(versions(&mut ahead, 1).await, [Some(30)]);
    assert!(
        matches!(join(&mut stream, 9), Join::Behind),
        "what came before the stream began is not known here"
    );
}

#[tokio::test]
async fn memory_is_bounded_and_who_is_behind_it_is_told_so() {
    let mut stream = Stream::new(0);
    let big = MEMORY_BYTES / 4;
    for rv in 1..=8 {
        stream.say(object(rv, big));
    }
    assert!(stream.remembered <= MEMORY_BYTES, "{}", stream.remembered);
    assert!(matches!(join(&mut stream, 1), Join::Behind));
    let base = stream.base;
    assert_eq!(versions(&mut seat(&mut stream, base), 1).await, [Some(base + 1)]);
}

#[tokio::test]
async fn a_listener_that_does_not_keep_up_is_left_out_and_holds_up_nobody() {
    let mut stream = Stream::new(0);
    let mut slow = seat(&mut stream, 0);
    let mut quick = seat(&mut stream, 0);
    let total = BEHIND_ITEMS as u64 + 50;
    for rv in 1..=total {
        stream.say(object(rv, 1));
        assert_eq!(versions(&mut quick, 1).await, [Some(rv)]);
    }
    let heard = versions(&mut slow, BEHIND_ITEMS + 1).await;
    let all: Vec<_> = (1..=BEHIND_ITEMS as u64).map(Some).chain([None]).collect();
    assert_eq!(heard, all, "what was given is kept, without a hole, and then it ends");
    assert!(matches!(join(&mut stream, BEHIND_ITEMS as u64), Join::Seat(_)), "it comes back");
}

#[tokio::test]
async fn what_waits_for_a_listener_is_bounded_in_bytes() {
    let mut stream = Stream::new(0);
    let mut slow = seat(&mut stream, 0);
    let size = 1 << 20;
    let mut said = 0;
    while stream.is_listened_to() {
        said += 1;
        stream.say(object(said, size));
        assert!(said as usize * size <= BEHIND_BYTES + 3 * size, "{said} MiB wait");
    }
    assert_eq!(versions(&mut slow, 1).await, [Some(1)]);
}

#[tokio::test]
async fn the_end_of_a_stream_names_its_version() {
    let mut stream = Stream::new(5);
    let mut seat = seat(&mut stream, 5);
    stream.say(object(7, 1));
    stream.expire(true);
    assert_eq!(versions(&mut seat, 1).await, [Some(7)]);
    assert!(matches!(seat.next().await, Some(Heard::Expired { behind: 7, rewound: true })));
    assert!(seat.next().await.is_none());
}
