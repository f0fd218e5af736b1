//! Which loopback port can a server take, now and again after a restart?
//!
//! In: nothing. Out: ports that were free a moment ago. They lie below the range from which systems give out source
//! ports (32768 and up on Linux), so that no outgoing connection sits on a port while its server is stopped. Another
//! process may still be faster: launchers start over with new ports when a bind fails.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;

/// Each process starts at a random place, then never offers a port twice before the range is through.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
    let seed = RandomState::new().build_hasher().finish();
    AtomicU32::new(u32::try_from(seed % u64::from(COUNT)).expect("a remainder of COUNT fits"))
});

/// A loopback port on which nothing listens.
///
/// # Panics
/// If the whole range is taken.
#[must_use]
pub fn free_port() -> u16 {
    free_port_from(&NEXT)
}

fn free_port_from(next: &AtomicU32) -> u16 {
    for _ in 0..COUNT {
        let step = next.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = u16::try_from(FIRST + step).expect("the range ends below 32768");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("every loopback port from {FIRST} to {} is taken", FIRST + COUNT - 1);
}

/// As [`free_port`] for `N` different ports.
#[must_use]
pub fn free_ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| free_port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports: [u16; 4] = free_ports();
        let held: Vec<_> = ports.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port))).collect();
        assert!(held.iter().all(Result::is_ok), "{ports:?} {held:?}");
    }

    #[test]
    fn a_port_in_use_is_not_offered() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).expect("free a moment ago");
        let taken = held.local_addr().expect("a bound listener has an address").port();
        let next = AtomicU32::new(u32::from(taken) - FIRST);
        assert_ne!(free_port_from(&next), taken);
    }
}
