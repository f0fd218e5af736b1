//! Did the remote take the commits? In: a remote, a branch, the tip we built on, a pack. Out: the remote's word, with
//! what its hooks said, or that the end is unknown. `unpack ok` is no success; only `ok <ref>` is.
//!
//! Sending is `git send-pack` for one ref in protocol version 0: read the advertisement, stop unless the branch is
//! where we need it, send one command and the pack, read the report. The remote compares the old id once more, under
//! its own lock. Version 0 because receive-pack has no other; no `atomic`, which hides the reason when there is one ref.

use std::io::{Read as _, Write as _};

use gix::ObjectId;
use gix::bstr::ByteSlice as _;
use gix::protocol::transport::client::blocking_io::Transport as _;
use gix::protocol::transport::client::{MessageKind, WriteMode};

use crate::builder::Built;
use crate::error::{GitError, PushError};
use crate::http::HttpFailure;
use crate::names::validate_branch;
use crate::remote::{AGENT, Advertisement, Remote, Service, Session, from_http, full_name};

/// Enough for a hook's explanation.
const MAX_MESSAGES: usize = 4096;
/// A report on one ref is some hundred bytes; more is a broken remote.
const MAX_REPORT: usize = 64 << 10;

/// The remote took the commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushReport {
    /// The branch's tip now.
    pub new: ObjectId,
    /// What the remote and its hooks printed, bounded and printable.
    pub messages: String,
}

/// Where a branch stands after a push that did not end with the remote's `ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Our commits are the tip: the push went through.
    Landed,
    /// The branch is where we built: the push was refused, or has not arrived yet.
    Unmoved,
    /// Somebody else's tip. Ours may still lie below it: look for it in the history.
    Moved,
}

impl Built {
    /// Judges what [`Remote::read_ref`] found after a push of these commits.
    #[must_use]
    pub fn standing(&self, found: Option<ObjectId>) -> Standing {
        if found == Some(self.new) {
            Standing::Landed
        } else if found == self.old {
            Standing::Unmoved
        } else {
            Standing::Moved
        }
    }
}

/// Makes `built.new` the branch's tip if it is at `expected_old` now. Never forces, never deletes.
///
/// # Errors
/// See [`PushError`]; only [`PushError::Uncertain`] leaves open whether the branch moved.
pub fn push(
    remote: &Remote,
    branch: &str,
    expected_old: Option<ObjectId>,
    built: &Built,
) -> Result<PushReport, PushError> {
    validate_branch(branch).map_err(GitError::from)?;
    let mut session = Session::open(remote, Service::ReceivePack)?;
    let offered = session.refs(remote, None)?;
    let found = offered.branch(branch);
    if found != expected_old {
        let branch = branch.to_owned();
        return Err(PushError::TipMoved { remote: remote.name(), branch, expected: expected_old, found });
    }
    let capabilities = Capabilities::choose(remote, &offered)?;
    let request = command(branch, expected_old, built, &capabilities);
    let answer = exchange(&mut session, &request, built.pack.bytes(), &capabilities);
    let failure = session.failure.get();
    drop(session);
    match (answer, failure) {
        (Ok(answer), _) => answer.judge(remote, branch, built),
        (Err(_), Some(failure)) => Err(broken(remote, branch, built, failure)),
        (Err(detail), None) => Err(uncertain(remote, branch, built, detail)),
    }
}

/// Refusals by status come before the remote's Git sees anything; a broken connection or a failing gateway leaves the
/// question open.
fn broken(remote: &Remote, branch: &str, built: &Built, failure: HttpFailure) -> PushError {
    let open = match &failure {
        HttpFailure::NotSent(_) | HttpFailure::Redirect(_) => None,
        HttpFailure::Broken(detail) => Some(detail.clone()),
        HttpFailure::TimedOut => Some("no answer in time".to_owned()),
        HttpFailure::Status { status: 500.., retry_after: None, excerpt } => Some(excerpt.clone()),
        HttpFailure::Status { .. } => None,
    };
    match open {
        Some(detail) => uncertain(remote, branch, built, detail),
        None => PushError::NotSent(from_http(remote, Service::ReceivePack, failure)),
    }
}

fn uncertain(remote: &Remote, branch: &str, built: &Built, detail: String) -> PushError {
    PushError::Uncertain { remote: remote.name(), branch: branch.to_owned(), new: built.new, detail }
}

struct Capabilities {
    report: &'static str,
    side_band: bool,
    object_format: bool,
    quiet: bool,
}

impl Capabilities {
    fn choose(remote: &Remote, offered: &Advertisement) -> Result<Self, GitError> {
        let has = |name: &str| offered.capabilities.contains_key(name);
        let report = if has("report-status-v2") {
            "report-status-v2"
        } else if has("report-status") {
            "report-status"
        } else {
            // Without a report a refusal looks like success.
            let detail = "receive-pack offers no report-status".to_owned();
            return Err(GitError::Protocol { remote: remote.name(), detail });
        };
        let (side_band, object_format, quiet) = (has("side-band-64k"), has("object-format"), has("quiet"));
        Ok(Self { report, side_band, object_format, quiet })
    }

    fn text(&self) -> String {
        let mut text = format!(" {}", self.report);
        for (wanted, name) in [
            (self.side_band, "side-band-64k"),
            (self.quiet, "quiet"),
            (self.object_format, "object-format=sha1"),
        ] {
            if wanted {
                text.push(' ');
                text.push_str(name);
            }
        }
        format!("{text} agent={AGENT}")
    }
}

fn command(branch: &str, old: Option<ObjectId>, built: &Built, capabilities: &Capabilities) -> Vec<u8> {
    let old = old.unwrap_or_else(|| ObjectId::null(gix::hash::Kind::Sha1));
    let line = format!("{old} {} {}\0{}", built.new, full_name(branch), capabilities.text());
    // Names are at most 250 bytes, so the line is far below the limit of a packet.
    let mut packet = format!("{:04x}{line}", line.len() + 4).into_bytes();
    packet.extend_from_slice(b"0000");
    packet
}

/// Sends, and reads the answer's channels apart.
fn exchange(
    session: &mut Session,
    request: &[u8],
    pack: &[u8],
    capabilities: &Capabilities,
) -> Result<Answer, String> {
    let writer = session
        .transport
        .request(WriteMode::OneLfTerminatedLinePerWriteCall, MessageKind::Flush, false)
        .map_err(|error| error.to_string())?;
    let (mut body, mut reader) = writer.into_parts();
    body.write_all(request).and_then(|()| body.write_all(pack)).map_err(|error| error.to_string())?;
    // The request goes out when its writer is gone and the answer is asked for.
    drop(body);
    let mut answer = Answer::default();
    while let Some(line) = reader.readline() {
        let line = line.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let Some(data) = line.as_slice() else { break };
        if capabilities.side_band {
            answer.take_band(data);
        } else {
            answer.lines.push(data.to_vec());
        }
        if answer.report.len() > MAX_REPORT || answer.lines.len() > MAX_REPORT / 64 {
            return Err("the report does not end".into());
        }
    }
    // Leaves the connection reusable.
    let _ = reader.take(64 << 10).read_to_end(&mut Vec::new());
    Ok(answer)
}

/// The remote's answer, its channels apart.
#[derive(Default)]
struct Answer {
    /// Band 1: packets within packets.
    report: Vec<u8>,
    /// The report's lines when there are no bands.
    lines: Vec<Vec<u8>>,
    /// Bands 2 and 3.
    messages: Vec<u8>,
    fatal: bool,
}

impl Answer {
    fn take_band(&mut self, data: &[u8]) {
        match data.split_first() {
            Some((1, report)) => self.report.extend_from_slice(report),
            Some((band, text)) => {
                self.fatal |= *band == 3;
                let left = MAX_MESSAGES.saturating_sub(self.messages.len());
                self.messages.extend_from_slice(&text[..text.len().min(left)]);
            }
            None => {}
        }
    }

    fn judge(mut self, remote: &Remote, branch: &str, built: &Built) -> Result<PushReport, PushError> {
        self.split_report();
        let messages = crate::printable(&self.messages);
        let name = full_name(branch);
        let text = |line: &[u8]| crate::printable(line.trim_end().as_bytes());
        let mut unpack_error = None;
        for line in self.lines.iter().map(|line| text(line)) {
            if let Some(result) = line.strip_prefix("unpack ") {
                unpack_error = (result != "ok").then(|| result.to_owned());
                #[cfg(feature = "seeded-bugs")]
                if result == "ok" && std::env::var("UPRIVER_SEEDED_BUG").is_ok_and(|bug| bug == "unpack-ok") {
                    return Ok(PushReport { new: built.new, messages });
                }
            } else if line.strip_prefix("ok ") == Some(name.as_str()) && unpack_error.is_none() {
                return Ok(PushReport { new: built.new, messages });
            } else if let Some(rest) = line.strip_prefix("ng ")
                && let Some(reason) = rest.strip_prefix(name.as_str())
            {
                let unpack = unpack_error.map(|error| format!(" (unpack: {error})")).unwrap_or_default();
                let reason = format!("{}{unpack}", reason.trim());
                return Err(PushError::Rejected {
                    remote: remote.name(),
                    branch: branch.to_owned(),
                    reason,
                    messages,
                });
            }
        }
        let what = if self.fatal { "the remote died" } else { "the report does not name the branch" };
        Err(uncertain(remote, branch, built, format!("{what} {messages}").trim().to_owned()))
    }

    fn split_report(&mut self) {
        let mut rest = self.report.as_slice();
        while let Some((header, _)) = rest.split_at_checked(4) {
            let length = std::str::from_utf8(header).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
            let Some(packet) = length.filter(|length| *length >= 4).and_then(|length| rest.get(4..length))
            else {
                break;
            };
            self.lines.push(packet.to_vec());
            rest = &rest[4 + packet.len()..];
        }
    }
}
