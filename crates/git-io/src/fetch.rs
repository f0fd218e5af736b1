//! How do the missing objects get here? In: a wanted commit, commits that we have. Out: a pack, cut at a depth.
//! One round, never a negotiation: we say what we have and that we are done, and the remote decides what to add.

use std::num::NonZeroU32;
use std::path::PathBuf;

use gix::ObjectId;
use gix::progress::Discard;
use gix::protocol::fetch::negotiate::{self, one_round};
use gix::protocol::fetch::{Arguments, Context, Negotiate, Options, Response, Shallow, Tags};

use crate::error::GitError;
use crate::remote::{AGENT, Remote, Session};

/// How much of each commit is wanted. A remote that cannot filter sends everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Everything,
    /// No files.
    Trees,
    /// No trees either.
    Commits,
}

/// One fetch.
pub(crate) struct Request<'a> {
    pub(crate) want: ObjectId,
    /// Commits whose whole trees we have.
    pub(crate) haves: &'a [ObjectId],
    pub(crate) depth: NonZeroU32,
    /// What may be left out, where the remote can do that.
    pub(crate) content: Content,
    /// Lists the commits here whose parents are not; kept in git's own format.
    pub(crate) shallow_file: PathBuf,
}

impl Request<'_> {
    /// Fetches, and hands the pack to `store`.
    pub(crate) fn run(
        &self,
        remote: &Remote,
        session: &mut Session,
        store: impl FnOnce(&mut dyn std::io::BufRead) -> Result<(), GitError>,
    ) -> Result<(), GitError> {
        let mut stored = None;
        let outcome = gix::protocol::fetch(
            &mut OneRound(self),
            |pack, _progress, _interrupt| {
                stored = Some(store(pack));
                // What is left of the answer is read only if the pack was good.
                Ok(matches!(stored, Some(Ok(()))))
            },
            Discard,
            &std::sync::atomic::AtomicBool::new(false),
            Context {
                handshake: &mut session.handshake,
                transport: &mut session.transport,
                user_agent: ("agent", Some(AGENT.to_owned())),
                trace_packetlines: false,
            },
            Options {
                shallow_file: self.shallow_file.clone(),
                shallow: &Shallow::DepthAtRemote(self.depth),
                tags: Tags::None,
                reject_shallow_remote: false,
            },
        );
        // A pack that broke off is a failure of the connection, whatever the one who stored it says.
        if session.failure.get().is_some() {
            let cause: &dyn std::error::Error = &std::io::Error::other("the connection broke");
            return Err(session.explain(remote, cause));
        }
        if let Some(Err(error)) = stored {
            return Err(error);
        }
        outcome.map(|_| ()).map_err(|error| session.explain(remote, &error))
    }
}

struct OneRound<'a>(&'a Request<'a>);

impl Negotiate for OneRound<'_> {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: vec![false] })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _remote_ref_target_known: &[bool]) -> bool {
        arguments.want(self.0.want);
        let filter = match self.0.content {
            Content::Everything => None,
            Content::Trees => Some("blob:none"),
            Content::Commits => Some("tree:0"),
        };
        if let Some(filter) = filter.filter(|_| arguments.can_use_filter()) {
            arguments.filter(filter);
        }
        true
    }

    fn one_round(
        &mut self,
        _state: &mut one_round::State,
        arguments: &mut Arguments,
        _previous_response: Option<&Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        for have in self.0.haves {
            arguments.have(have);
        }
        let haves_sent = self.0.haves.len();
        let round = negotiate::Round {
            haves_sent,
            in_vain: 0,
            haves_to_send: 0,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
