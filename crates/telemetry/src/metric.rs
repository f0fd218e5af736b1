//! Every metric: name, kind, unit, labels and the question it answers.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Gauge 1; label `version`.
pub const BUILD_INFO: &str = "upriver_build_info";
/// Gauge: branch claims that this replica holds.
pub const BRANCHES_OWNED: &str = "upriver_branches_owned";
/// Gauge: watch claims that this replica holds.
pub const WATCHES_OWNED: &str = "upriver_watches_owned";
/// Gauge, of the housekeeper: GitTargets whose branch has had no living owner for longer than a take-over takes.
pub const UNOWNED_TARGETS: &str = "upriver_unowned_targets";
/// Counter; label `outcome` (handed_over, refused): claims that this replica gave or wanted to give to another.
pub const CLAIM_MOVES: &str = "upriver_claim_moves_total";
/// Gauge; label `shard`: epoch of a claim that this replica holds.
pub const OWNERSHIP_EPOCH: &str = "upriver_ownership_epoch";
/// Counter; label `reason` (fenced, missing): sessions that ended against our will.
pub const SESSIONS_LOST: &str = "upriver_lease_lost_total";
/// Counter; label `outcome` (ok, conflict, missing, unknown): session renewals.
pub const RENEWALS: &str = "upriver_lease_renewals_total";
/// Histogram: session renewal, sent to answered.
pub const RENEW_SECONDS: &str = "upriver_lease_renew_duration_seconds";
/// Gauge; label `shard`: entries that are owed.
pub const JOURNAL_DEPTH: &str = "upriver_journal_depth";
/// Histogram; label `op`: one store operation.
pub const STORE_SECONDS: &str = "upriver_redis_request_seconds";
/// Counter; label `class` (fenced, lost, unavailable): failed store operations.
pub const STORE_ERRORS: &str = "upriver_redis_errors_total";
/// Gauge: 1 while this replica has a link to a Redis that is the master.
pub const STORE_UP: &str = "upriver_redis_up";
/// Counter: another Redis was found to be the master.
pub const STORE_FAILOVERS: &str = "upriver_redis_failovers_total";
/// Counter: appends and intentions that too few replicas had confirmed in time.
pub const WAIT_SHORT: &str = "upriver_redis_wait_short_total";
/// Counter; label `outcome` (appended, duplicate, gap, stale, rescope, full): frames.
pub const FRAMES: &str = "upriver_journal_frames_total";
/// Counter; labels `group`, `resource`, `outcome` (forwarded, noop, unmatched, noise, secret, unreadable): watch events.
pub const WATCH_EVENTS: &str = "upriver_watch_events_total";
/// Counter; label `reason` (closed, expired, forbidden, silent, failed, not_served): ended watches.
pub const WATCH_ENDS: &str = "upriver_watch_ends_total";
/// Gauge; label `mode` (shared by all branches, own of one that catches up): API watches that are open.
pub const WATCHES_OPEN: &str = "upriver_watches_open";
/// Counter; label `mode` (shared, resume, replay, backfill): how watches began.
pub const WATCH_STARTS: &str = "upriver_watch_starts_total";
/// Complete lists that were handed to a branch: as the start of a watch, or beside one. Labels `group`, `resource`.
pub const REPLAYS: &str = "upriver_replays_total";
/// Gauge; labels `shard`, `group`, `resource`, `scope` (a namespace, or `*` for the whole cluster): seconds since the API server
/// last said anything on an open or broken watch. Bookmarks come about once a minute.
pub const WATCH_SILENCE: &str = "upriver_watch_silence_seconds";
/// Counter; label `outcome` (same, changed, unread): looks at the API's types.
pub const DISCOVERY_SCANS: &str = "upriver_discovery_scans_total";
/// Gauge; label `verdict` (followable, retained, refused): known types.
pub const CATALOG_TYPES: &str = "upriver_catalog_types";
/// Counter; labels `gittarget_namespace`, `gittarget_name`: Secrets that were not written, because nothing can encrypt
/// them yet.
pub const SECRETS_SKIPPED: &str = "upriver_secrets_skipped_total";
/// Counter: commits that are in a remote.
pub const COMMITS: &str = "upriver_git_commits_total";
/// Counter; label `outcome` (the attempt outcomes): settled push rounds.
pub const PUSHES: &str = "upriver_git_pushes_total";
/// Counter; label `template` (event, group, reconcile): commits with the default message because the user's template failed.
pub const MESSAGE_FALLBACKS: &str = "upriver_commit_message_fallbacks_total";
/// Counter; label `class` (the failure classes): failed Git operations.
pub const GIT_FAILURES: &str = "upriver_git_remote_class_total";
/// Histogram; label `op` (fetch, build, push, read_ref): one Git operation.
pub const GIT_SECONDS: &str = "upriver_git_operation_duration_seconds";
/// Gauge; label `shard`: files that we do not touch.
pub const REFUSED_FILES: &str = "upriver_refused_files";
/// Counter; label `outcome` (accepted, not_owner, wrong_replica, unreachable, tls, deadline, protocol, too_large, closed): calls
/// to forward to another replica.
pub const FORWARD_REQUESTS: &str = "upriver_forward_requests_total";
/// Gauge; label `side` (watcher, owner): forwarding conversations with other replicas.
pub const FORWARD_INFLIGHT: &str = "upriver_forward_inflight";
/// Counter; label `side` (watcher, owner): bytes of messages that this replica sent in conversations.
pub const FORWARD_BYTES: &str = "upriver_forward_bytes_total";
/// Gauge; label `state` (connecting, open, accepted): connections with other replicas.
pub const PEER_CONNECTIONS: &str = "upriver_peer_connections";
/// Counter: connections to the peer port that showed no certificate that we accept.
pub const PEER_HANDSHAKES_REFUSED: &str = "upriver_peer_handshakes_refused_total";
/// Counter; label `outcome` (loaded, refused): changes of the files with the peers' certificates.
pub const PEER_TLS_RELOADS: &str = "upriver_peer_tls_reloads_total";

/// Tells the exporter what each name means.
pub fn describe() {
    describe_gauge!(BUILD_INFO, "what runs");
    describe_gauge!(BRANCHES_OWNED, "branch claims that this replica holds");
    describe_gauge!(WATCHES_OWNED, "watch claims that this replica holds");
    describe_gauge!(UNOWNED_TARGETS, "GitTargets whose branch has no living owner");
    describe_counter!(CLAIM_MOVES, "claims that were handed to another replica, or refused by one");
    describe_gauge!(OWNERSHIP_EPOCH, "epoch of a claim that this replica holds");
    describe_counter!(SESSIONS_LOST, "sessions that ended against our will");
    describe_counter!(RENEWALS, "session renewals by outcome");
    describe_histogram!(RENEW_SECONDS, Unit::Seconds, "session renewal, sent to answered");
    describe_gauge!(JOURNAL_DEPTH, "journal entries that are not in the remote yet");
    describe_histogram!(STORE_SECONDS, Unit::Seconds, "one store operation");
    describe_counter!(STORE_ERRORS, "failed store operations by class");
    describe_gauge!(STORE_UP, "1 while this replica has a link to a Redis that is the master");
    describe_counter!(STORE_FAILOVERS, "another Redis was found to be the master");
    describe_counter!(WAIT_SHORT, "journal writes that too few replicas had confirmed in time");
    describe_counter!(FRAMES, "frames by outcome");
    describe_counter!(WATCH_EVENTS, "watch events by fate");
    describe_counter!(WATCH_ENDS, "ended watches by reason");
    describe_gauge!(WATCHES_OPEN, "API watches that are open, by mode");
    describe_counter!(WATCH_STARTS, "started watches by mode");
    describe_gauge!(WATCH_SILENCE, Unit::Seconds, "time since the last life sign of a watch");
    describe_counter!(DISCOVERY_SCANS, "looks at the API's types by outcome");
    describe_gauge!(CATALOG_TYPES, "known types by verdict");
    describe_counter!(SECRETS_SKIPPED, "Secrets that were not written because nothing can encrypt them yet");
    describe_counter!(COMMITS, "commits that are in a remote");
    describe_counter!(PUSHES, "settled push rounds by outcome");
    describe_counter!(
        MESSAGE_FALLBACKS,
        "commits with the default message because the user's template failed"
    );
    describe_counter!(GIT_FAILURES, "failed Git operations by failure class");
    describe_histogram!(GIT_SECONDS, Unit::Seconds, "one Git operation");
    describe_gauge!(REFUSED_FILES, "files that are not ours and stay untouched");
    describe_counter!(FORWARD_REQUESTS, "calls to forward to another replica by outcome");
    describe_gauge!(FORWARD_INFLIGHT, "forwarding conversations with other replicas");
    describe_counter!(FORWARD_BYTES, Unit::Bytes, "message bytes sent in forwarding conversations");
    describe_gauge!(PEER_CONNECTIONS, "connections with other replicas by state");
    describe_counter!(PEER_HANDSHAKES_REFUSED, "peer connections without an acceptable certificate");
    describe_counter!(PEER_TLS_RELOADS, "changes of the peers' certificate files by outcome");
}
