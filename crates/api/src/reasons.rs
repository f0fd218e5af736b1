//! Which words may a condition give as its reason? One list for all kinds; dashboards and `kubectl wait` lines match
//! these texts, so an entry is never renamed.

macro_rules! reasons {
    ($($(#[$meta:meta])* $variant:ident,)+) => {
        /// The reason of a condition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$meta])* $variant,)+
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The text in the condition.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// The reason with this text.
            #[must_use]
            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }

        impl std::fmt::Display for Reason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<Reason> for String {
            fn from(reason: Reason) -> Self {
                reason.as_str().to_owned()
            }
        }
    };
}

reasons! {
    // All kinds.
    /// Everything holds.
    Succeeded,
    /// Under way, or data plane not wired.
    Progressing,
    /// Stands for an empty reason.
    Unspecified,
    /// An earlier gate failed, so this one was not looked at.
    Blocked,
    /// This version knows the feature but does not do it yet.
    NotYetSupported,
    // GitProvider.
    /// A template does not render, or the signing Secret has a blank name.
    CommitConfigInvalid,
    /// A Secret or a key in it is missing.
    SecretNotFound,
    /// A Secret holds nothing usable.
    SecretMalformed,
    /// The remote refused or did not answer.
    ConnectionFailed,
    /// A commit window is no duration; Event only.
    CommitWindowInvalid,
    // GitTarget: Validated and the trio.
    /// The GitProvider does not exist.
    ProviderNotFound,
    /// No pattern of the GitProvider admits the branch.
    BranchNotAllowed,
    /// An older GitTarget owns an equal or nested path.
    TargetConflict,
    /// Path, placement or recipients are unusable.
    InvalidConfig,
    /// The ClusterProvider does not exist.
    ClusterProviderNotFound,
    /// The ClusterProvider does not admit the namespace.
    NamespaceNotAuthorized,
    /// Validated failed; on the trio.
    ValidationFailed,
    /// EncryptionConfigured failed; on the trio.
    EncryptionNotConfigured,
    /// The writer of the branch could not start.
    WorkerUnavailable,
    // GitTarget: EncryptionConfigured.
    /// Encryption is off.
    NotRequired,
    /// The Secret with age keys cannot be fetched.
    MissingSecret,
    // Streams.
    /// Every stream follows live changes.
    AllStreamsReady,
    /// There is nothing to watch.
    NoResolvedTypes,
    /// The initial list is in flight.
    Replaying,
    /// A watch cannot run.
    WatchError,
    /// The credential may not watch.
    WatchNotPermitted,
    /// An earlier gate failed.
    NotReady,
    // GitTarget: GitPathAccepted.
    /// The folder is usable.
    GitPathAccepted,
    /// The folder holds what we must not manage.
    UnsupportedContent,
    /// An edit has no safe place.
    WriteBoundaryRefused,
    /// `.gittargetignore` hides a path that is written.
    IgnoreShadowsManagedPath,
    /// Not looked at.
    NotChecked,
    // GitTarget: RenderMatchesLive.
    /// Rendered values equal live ones.
    RenderMatchesLive,
    /// A rendered value differs.
    RenderDoesNotMatchLive,
    /// Not every scope has reported.
    Rechecking,
    // GitTarget: source and providers.
    /// The source is the operator's own cluster.
    LocalCluster,
    /// The source cluster answered.
    SourceClusterReachable,
    /// Network, TLS or time limit.
    SourceClusterUnreachable,
    /// The source cluster answered 401.
    SourceClusterAuthenticationFailed,
    /// The source cluster answered 403.
    SourceClusterAccessDenied,
    /// Not tried yet.
    AwaitingDiscovery,
    /// The GitProvider is Ready.
    GitProviderReady,
    /// The GitProvider is not Ready.
    GitProviderNotReady,
    /// The ClusterProvider is Ready.
    ClusterProviderReady,
    /// The ClusterProvider is not Ready.
    ClusterProviderNotReady,
    // GitTarget: ownership and delivery.
    /// A replica holds the branch.
    Owned,
    /// No replica holds the branch.
    NoOwner,
    /// The user asked to stop writing.
    Suspended,
    /// Nothing is suspended.
    NotSuspended,
    /// Changes reach the repository.
    Delivering,
    /// The remote does not answer.
    Unreachable,
    /// The remote refused the credentials.
    AuthFailed,
    /// The remote refused the push by policy.
    Denied,
    /// The remote asks to slow down.
    RateLimited,
    /// Content that must not be written.
    ContentRefused,
    /// The provider's settings cannot work.
    ConfigInvalid,
    /// The store of pending changes is away.
    JournalUnavailable,
    /// More pending changes than may be kept.
    JournalOverflow,
    /// An internal error was isolated.
    Quarantined,
    /// Authors are known.
    AttributionHealthy,
    /// No source of authors is set up.
    AttributionUnavailable,
    // ClusterProvider.
    /// No kubeconfig: the operator's own cluster.
    InCluster,
    /// The kubeconfig is usable.
    Validated,
    /// The kubeconfig cannot be parsed.
    KubeConfigInvalid,
    /// Its Secret does not exist.
    KubeConfigSecretNotFound,
    /// Its Secret lacks the key.
    KubeConfigKeyNotFound,
    /// It runs a program, which no flag permits.
    KubeConfigExecNotAllowed,
    /// It skips TLS checks, which no flag permits.
    KubeConfigInsecureTLSNotAllowed,
    /// It names files.
    KubeConfigFileReferenceNotAllowed,
    // WatchRule and ClusterWatchRule.
    /// Own namespace, and the GitTarget has no policy.
    LegacySourceNamespace,
    /// Admitted by policy.
    SourceNamespaceAllowed,
    /// Admitted, but the set is empty.
    NoAdmittedSourceNamespaces,
    /// Refused.
    SourceNamespaceNotAllowed,
    /// The policy cannot be evaluated.
    SourceNamespacePolicyUnavailable,
    /// Labels not read yet.
    CheckingSourceNamespacePolicy,
    /// The GitTarget does not exist.
    GitTargetNotFound,
    /// The GitTarget's GitProvider does not exist; the spelling is an old kind's.
    GitRepoConfigNotFound,
    /// The reference to the GitTarget is blank.
    GitDestinationInvalid,
    /// The GitTarget's namespace is not admitted.
    GitTargetNamespaceNotAuthorized,
    /// A stored scope other than `Cluster`.
    ClusterScopeOnly,
    /// Types are known.
    Resolved,
    /// The API catalog is not read.
    UnresolvedResources,
    // CommitRequest.
    /// Gathering changes.
    WaitingForCloseDelay,
    /// A commit was pushed.
    Committed,
    /// No window was open.
    NoWindowInGrace,
    /// Only somebody else's window was open.
    WindowMismatch,
    /// The repository has it already.
    AlreadyPresent,
    /// The commit could not be made or pushed.
    FinalizeFailed,
    /// A defect of ours.
    UnexpectedOutcome,
    /// A commit was pushed; on Pushed.
    Pushed,
    /// The submitter is known from admission.
    AttributedFromAdmission,
    /// Capture ran and has no record.
    CommitterFallback,
    /// Capture is off.
    AuthorCaptureDisabled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_and_fits_the_schema() {
        for reason in Reason::ALL {
            let text = reason.as_str();
            assert_eq!(Reason::from_text(text), Some(*reason));
            assert!(
                text.chars().all(|c| c.is_ascii_alphanumeric())
                    && text.starts_with(|c: char| c.is_ascii_uppercase())
            );
        }
        assert_eq!(Reason::from_text("OK"), None);
    }
}
