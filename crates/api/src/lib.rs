//! The wire contract: what do the six kinds of `configbutler.ai/v1alpha3` look like, and what do their fields mean?
//!
//! In: objects as the API server stores them. Out: typed specs and statuses, CRDs ([`crds`]), and the pure rules that
//! go with single fields: durations, branch globs, namespace policies, age keys, conditions. Objects stored under
//! another schema still read: unknown fields are ignored, unknown enum texts kept. What is deliberately absent: rules
//! that need a second object (those are the engine's), and any IO.

#![allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn(…) has its own type_ and priority; clippy compares across them"
)]

pub mod age;
pub mod cluster_provider;
pub mod cluster_watch_rule;
pub mod commit_request;
pub mod condition;
pub mod crds;
pub mod duration;
pub mod git_provider;
pub mod git_target;
pub mod glob;
mod lenient;
pub mod matcher;
pub mod reasons;
pub mod shared;
pub mod watch_rule;

pub use cluster_provider::{ClusterProvider, ClusterProviderSpec, ClusterProviderStatus};
pub use cluster_watch_rule::{ClusterWatchRule, ClusterWatchRuleSpec};
pub use commit_request::{CommitRequest, CommitRequestSpec, CommitRequestStatus};
pub use condition::{Condition, ConditionStatus};
pub use git_provider::{GitProvider, GitProviderSpec, GitProviderStatus};
pub use git_target::{GitTarget, GitTargetSpec, GitTargetStatus};
pub use matcher::{Admission, MatcherError};
pub use reasons::Reason;
pub use watch_rule::{RuleStatus, WatchRule, WatchRuleSpec};

/// API group of all kinds.
pub const GROUP: &str = "configbutler.ai";
/// Version of all kinds.
pub const VERSION: &str = "v1alpha3";
/// Annotation whose every new non-empty value asks for one recheck of a GitTarget.
pub const RECONCILE_ANNOTATION: &str = "reconcile.configbutler.ai/requestedAt";
