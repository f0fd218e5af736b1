//! Our own session Lease: one write every two seconds, whatever the number of claims.

use crate::time::Tick;

/// Milliseconds between renewals.
pub const RENEW_EVERY_MS: u64 = 2_000;

/// A result of one of our own writes or reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionResult {
    /// The write was applied; the Lease's uid and resourceVersion now.
    Written {
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion`.
        rv: String,
    },
    /// 409: it has another version than ours.
    Conflict,
    /// 404.
    Missing,
    /// No answer, or none that tells whether the write was applied.
    Unknown,
    /// Answer to [`SessionAct::Get`].
    Found {
        /// Holder as it stands there.
        holder: Option<String>,
        /// Mark of the last write.
        nonce: String,
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion`.
        rv: String,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAct {
    /// Create the Lease with this nonce.
    Create {
        /// Mark of this write.
        nonce: String,
    },
    /// `replace` with exactly these preconditions.
    Renew {
        /// Precondition.
        uid: String,
        /// Precondition.
        rv: String,
        /// Mark of this write.
        nonce: String,
    },
    /// A quorum read, after a 409 that may be our own doing.
    Get,
    /// Somebody fenced us: drop every claim, begin a new session.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Held { uid: String, rv: String },
    Lost,
}

/// The session of this process.
#[derive(Debug)]
pub struct Session {
    identity: String,
    state: State,
    /// Nonces of writes whose outcome is not known.
    open: Vec<String>,
    writes: u64,
    in_flight: bool,
    checking: bool,
    next: Tick,
    /// When the last successful renewal was *sent*: what a proof is about.
    proven: Option<Tick>,
    sent: Tick,
    urgent: bool,
    in_a_row: u32,
}

impl Session {
    /// A session that does not exist yet.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            state: State::Fresh,
            open: Vec::new(),
            writes: 0,
            in_flight: false,
            checking: false,
            next: Tick(0),
            proven: None,
            sent: Tick(0),
            urgent: false,
            in_a_row: 0,
        }
    }

    /// Who we are.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Asks for a renewal as soon as possible: somebody needs a proof.
    pub fn need_proof(&mut self) {
        self.urgent = true;
    }

    /// When the last successful renewal was sent. A proof of a moment needs one sent *after* it.
    #[must_use]
    pub fn proven(&self) -> Option<Tick> {
        self.proven
    }

    /// Successful renewals without a failure between them (F19 wants the last two in a row).
    #[must_use]
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Whether something is due. `healthy` is false if a claim loop has not ticked lately: then nothing is renewed (F8).
    pub fn tick(&mut self, now: Tick, healthy: bool) -> Option<SessionAct> {
        if self.in_flight || self.state == State::Lost {
            return None;
        }
        if self.checking {
            self.in_flight = true;
            return Some(SessionAct::Get);
        }
        let due = now >= self.next || self.urgent;
        if !due || !healthy {
            return None;
        }
        self.urgent = false;
        self.in_flight = true;
        self.sent = now;
        self.next = now + RENEW_EVERY_MS;
        self.writes += 1;
        let nonce = format!("{}/{}", self.identity, self.writes);
        self.open.push(nonce.clone());
        Some(match &self.state {
            State::Fresh | State::Lost => SessionAct::Create { nonce },
            State::Held { uid, rv } => SessionAct::Renew { uid: uid.clone(), rv: rv.clone(), nonce },
        })
    }

    /// When [`Session::tick`] has to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Tick {
        self.next
    }

    /// Takes the result of the act in flight.
    pub fn result(&mut self, now: Tick, result: SessionResult) -> Option<SessionAct> {
        self.in_flight = false;
        match result {
            SessionResult::Written { uid, rv } => {
                self.proven = Some(self.sent);
                self.in_a_row += 1;
                self.open.clear();
                self.state = State::Held { uid, rv };
                None
            }
            SessionResult::Unknown => {
                self.in_a_row = 0;
                // A failed read is repeated at the next turn; a failed write is tried again in half the usual time.
                self.next = now + RENEW_EVERY_MS / 2;
                None
            }
            SessionResult::Conflict => self.conflict(),
            SessionResult::Missing => self.missing(),
            SessionResult::Found { holder, nonce, uid, rv } => self.found(holder, &nonce, uid, rv),
        }
    }

    /// A 409 is definite only if no earlier write of ours has an unknown outcome (F7).
    fn conflict(&mut self) -> Option<SessionAct> {
        self.in_a_row = 0;
        if self.open.len() <= 1 && self.state != State::Fresh {
            return self.lose();
        }
        self.checking = true;
        None
    }

    fn missing(&mut self) -> Option<SessionAct> {
        self.checking = false;
        match self.state {
            State::Fresh => None,
            State::Held { .. } | State::Lost => self.lose(),
        }
    }

    fn found(&mut self, holder: Option<String>, nonce: &str, uid: String, rv: String) -> Option<SessionAct> {
        self.checking = false;
        let mine = holder.as_deref() == Some(&self.identity) && self.open.iter().any(|sent| sent == nonce);
        if !mine {
            return self.lose();
        }
        // One of our writes was applied and its answer lost. Not a proof: the next renewal is.
        self.open.clear();
        self.state = State::Held { uid, rv };
        self.urgent = true;
        None
    }

    fn lose(&mut self) -> Option<SessionAct> {
        self.state = State::Lost;
        self.in_a_row = 0;
        Some(SessionAct::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rv: u64) -> SessionResult {
        SessionResult::Written { uid: "u".to_owned(), rv: rv.to_string() }
    }

    fn held() -> Session {
        let mut session = Session::new("me");
        assert_eq!(session.tick(Tick(0), true), Some(SessionAct::Create { nonce: "me/1".to_owned() }));
        assert_eq!(session.result(Tick(1), written(1)), None);
        session
    }

    fn renew(rv: u64, nonce: &str) -> Option<SessionAct> {
        Some(SessionAct::Renew { uid: "u".to_owned(), rv: rv.to_string(), nonce: nonce.to_owned() })
    }

    #[test]
    fn a_renewal_is_sent_every_two_seconds_with_uid_and_version() {
        let mut session = held();
        assert_eq!(session.tick(Tick(1999), true), None);
        assert_eq!(session.tick(Tick(2000), true), renew(1, "me/2"));
        assert_eq!(session.tick(Tick(9000), true), None, "one in flight");
        session.result(Tick(9001), written(2));
        assert_eq!(session.proven(), Some(Tick(2000)), "a proof counts from when it was sent");
    }

    #[test]
    fn a_claim_loop_that_hangs_stops_the_renewal() {
        let mut session = held();
        assert_eq!(session.tick(Tick(5000), false), None);
        assert_eq!(session.tick(Tick(5001), true), renew(1, "me/2"));
    }

    #[test]
    fn a_conflict_of_known_history_is_definite() {
        let mut session = held();
        session.tick(Tick(2000), true);
        assert_eq!(session.result(Tick(2001), SessionResult::Conflict), Some(SessionAct::Lost));
        assert_eq!(session.tick(Tick(9000), true), None);
    }

    #[test]
    fn a_conflict_after_a_lost_answer_is_looked_at_first() {
        let mut session = held();
        session.tick(Tick(2000), true);
        session.result(Tick(2500), SessionResult::Unknown);
        assert_eq!(session.tick(Tick(3500), true), renew(1, "me/3"));
        assert_eq!(session.result(Tick(3600), SessionResult::Conflict), None);
        assert_eq!(session.tick(Tick(3601), true), Some(SessionAct::Get));
        let before = session.proven();
        let found = SessionResult::Found {
            holder: Some("me".to_owned()),
            nonce: "me/2".to_owned(),
            uid: "u".to_owned(),
            rv: "2".to_owned(),
        };
        assert_eq!(session.result(Tick(3602), found), None);
        assert_eq!(session.proven(), before, "not a proof");
        assert_eq!(
            session.tick(Tick(3603), true),
            renew(2, "me/4"),
            "the next renewal is, and it is sent at once"
        );
    }

    #[test]
    fn a_fence_seen_after_a_lost_answer_is_a_loss() {
        let mut session = held();
        session.tick(Tick(2000), true);
        session.result(Tick(2500), SessionResult::Unknown);
        session.tick(Tick(3500), true);
        session.result(Tick(3600), SessionResult::Conflict);
        session.tick(Tick(3601), true);
        let found = SessionResult::Found {
            holder: None,
            nonce: String::new(),
            uid: "u".to_owned(),
            rv: "7".to_owned(),
        };
        assert_eq!(session.result(Tick(3602), found), Some(SessionAct::Lost));
    }

    #[test]
    fn a_collected_session_is_a_loss() {
        let mut session = held();
        session.tick(Tick(2000), true);
        assert_eq!(session.result(Tick(2001), SessionResult::Missing), Some(SessionAct::Lost));
    }

    #[test]
    fn an_outage_of_the_api_server_is_not_a_loss() {
        let mut session = held();
        for turn in 1..50 {
            if session.tick(Tick(turn * 1000), true).is_some() {
                assert_eq!(session.result(Tick(turn * 1000 + 1), SessionResult::Unknown), None);
            }
        }
        assert!(session.tick(Tick(100_000), true).is_some());
        assert_eq!(session.result(Tick(100_001), written(9)), None);
        assert_eq!(session.proven(), Some(Tick(100_000)));
        assert_eq!(session.in_a_row(), 1);
    }
}
