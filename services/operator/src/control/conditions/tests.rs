//! One row of the contract's tables each: what is known, and what the conditions say.

use std::collections::BTreeMap;

use upriver_engine::branch::ScopeView;
use upriver_model::{Gvr, ObjectKey, Scope, TargetScope, TargetUid};

use super::*;
use crate::control::compile::RuleVerdict;
use crate::control::compile::namespaces::Source;

/// `type=status reason`, in order.
fn rows(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{}={} {}", finding.type_, finding.status, finding.reason))
        .collect()
}

fn says(findings: &[Finding], type_: &str) -> String {
    let found = findings.iter().find(|finding| finding.type_ == type_).expect("always written");
    format!("{} {}", found.status, found.reason)
}

fn message(findings: &[Finding], type_: &str) -> String {
    findings
        .iter()
        .find(|finding| finding.type_ == type_)
        .map(|finding| finding.message.clone())
        .expect("written")
}

fn scope(resource: &str, namespace: &str) -> TargetScope {
    TargetScope {
        target: TargetUid::new("u"),
        gvr: Gvr::new("", "v1", resource),
        scope: Scope::Namespace(namespace.into()),
    }
}

fn blocked() -> ScopeView {
    ScopeView::Blocked { reason: "WatchNotPermitted", message: "grant list".to_owned() }
}

fn view(states: &[(&str, &str, ScopeView)]) -> TargetView {
    let scopes =
        states.iter().map(|(resource, namespace, state)| (scope(resource, namespace), state.clone()));
    TargetView { scopes: scopes.collect(), ..TargetView::default() }
}

fn owned_branch() -> OwnedBranch {
    let view = BranchView { running: true, ..BranchView::default() };
    OwnedBranch { replica: "r".to_owned(), epoch: 1, view, ..OwnedBranch::default() }
}

struct World {
    verdict: TargetVerdict,
    provider: Option<Gate>,
    view: Option<TargetView>,
    types: TypesRead,
}

fn world(states: &[(&str, &str, ScopeView)]) -> World {
    let view = view(states);
    World {
        verdict: TargetVerdict {
            uid: TargetUid::new("u"),
            branch: None,
            refusal: None,
            secrets: None,
            encryption: Encryption::Off,
            scopes: view.scopes.keys().cloned().collect(),
        },
        provider: Some(Gate::Open),
        view: Some(view),
        types: TypesRead::Yes,
    }
}

impl World {
    fn findings(&self) -> (Vec<Finding>, Option<StreamCounts>) {
        let owned = owned_branch();
        target(&TargetFacts {
            verdict: &self.verdict,
            provider: self.provider.clone(),
            owned: Some(&owned),
            view: self.view.as_ref(),
            path: "a",
            skipped_secrets: 2,
            suspended: false,
            types: self.types,
        })
    }

    fn says(&self, type_: &str) -> String {
        says(&self.findings().0, type_)
    }
}

#[test]
fn a_target_that_runs_is_ready_with_something_to_watch_or_nothing() {
    let busy = world(&[("configmaps", "a", ScopeView::Ready)]);
    assert_eq!(busy.says(types::STREAMS_RUNNING), "True AllStreamsReady");
    assert_eq!(busy.says(types::READY), "True Succeeded");
    let idle = world(&[]);
    assert_eq!(idle.says(types::STREAMS_RUNNING), "True NoResolvedTypes");
    assert_eq!(idle.says(types::READY), "True Succeeded");
    let (findings, streams) = idle.findings();
    assert_eq!(streams.and_then(|streams| streams.summary).as_deref(), Some("0/0"));
    assert_eq!(says(&findings, types::SOURCE_CLUSTER_REACHABLE), "True LocalCluster");
    assert_eq!(says(&findings, types::VALIDATED), "True Succeeded");
    assert_eq!(says(&findings, types::ENCRYPTION_CONFIGURED), "True NotRequired");
    assert_eq!(says(&findings, types::CLUSTER_PROVIDER_READY), "True ClusterProviderReady");
}

#[test]
fn a_refused_target_says_why_and_leaves_nothing_old_standing() {
    let reasons = [
        (Reason::ProviderNotFound, "False ValidationFailed"),
        (Reason::BranchNotAllowed, "False ValidationFailed"),
        (Reason::TargetConflict, "False ValidationFailed"),
        (Reason::InvalidConfig, "False ValidationFailed"),
        (Reason::ClusterProviderNotFound, "False ValidationFailed"),
        (Reason::NamespaceNotAuthorized, "False ValidationFailed"),
        (Reason::NotYetSupported, "False NotYetSupported"),
    ];
    for (reason, ready) in reasons {
        let mut refused = world(&[("configmaps", "a", ScopeView::Ready)]);
        refused.verdict.refusal = Some(Refusal::new(reason, "repair it"));
        let (findings, streams) = refused.findings();
        assert_eq!(streams, None);
        let expected = [
            format!("Validated=False {reason}"),
            "EncryptionConfigured=Unknown Blocked".to_owned(),
            "GitPathAccepted=Unknown NotChecked".to_owned(),
            "StreamsRunning=Unknown NotReady".to_owned(),
            "GitProviderReady=Unknown Blocked".to_owned(),
            "Delivering=Unknown Blocked".to_owned(),
            "Owned=Unknown Blocked".to_owned(),
            "RenderMatchesLive=Unknown Blocked".to_owned(),
            "SourceClusterReachable=Unknown Blocked".to_owned(),
            "ClusterProviderReady=Unknown Blocked".to_owned(),
        ];
        assert_eq!(rows(&findings)[..10], expected);
        assert_eq!(
            (says(&findings, types::READY), message(&findings, types::READY)),
            (ready.to_owned(), "repair it".to_owned())
        );
        assert!(says(&findings, types::STALLED).starts_with("True"));
    }
}

#[test]
fn encryption_that_cannot_work_stalls_the_target_and_not_its_streams() {
    let secrets = [("secrets", "a", ScopeView::Ready)];
    let refused = |reason| Encryption::Refused(Refusal::new(reason, "repair it"));
    let cases = [
        (Encryption::Off, &[][..], "True NotRequired", "True Succeeded"),
        (Encryption::Off, &secrets[..], "False NotYetSupported", "False NotYetSupported"),
        (Encryption::NotBuilt, &[][..], "False NotYetSupported", "False NotYetSupported"),
        (Encryption::NotBuilt, &secrets[..], "False NotYetSupported", "False NotYetSupported"),
        (Encryption::Unread, &[][..], "Unknown Progressing", "Unknown Progressing"),
        (refused(Reason::InvalidConfig), &[][..], "False InvalidConfig", "False EncryptionNotConfigured"),
        (
            refused(Reason::MissingSecret),
            &secrets[..],
            "False MissingSecret",
            "False EncryptionNotConfigured",
        ),
    ];
    for (encryption, states, condition, ready) in cases {
        let mut world = world(states);
        world.verdict.encryption = encryption.clone();
        world.verdict.secrets = (!states.is_empty()).then_some(Selection::Named);
        let found = (world.says(types::ENCRYPTION_CONFIGURED), world.says(types::READY));
        assert_eq!(found, (condition.to_owned(), ready.to_owned()), "{encryption:?}");
        assert!(world.says(types::STREAMS_RUNNING).starts_with("True"));
        assert_eq!(world.says(types::VALIDATED), "True Succeeded");
    }
}

#[test]
fn secrets_that_only_a_wildcard_selects_are_told_and_hold_nothing_up() {
    let mut world = world(&[("secrets", "a", ScopeView::Ready)]);
    world.verdict.secrets = Some(Selection::Wildcard);
    assert_eq!(world.says(types::ENCRYPTION_CONFIGURED), "False NotYetSupported");
    assert_eq!(world.says(types::READY), "True Succeeded");
}

#[test]
fn a_type_has_the_state_of_its_worst_scope_and_one_not_taken_up_is_coming() {
    let mut mixed = world(&[
        ("configmaps", "a", ScopeView::Ready),
        ("configmaps", "b", ScopeView::Replaying),
        ("services", "a", ScopeView::Ready),
    ]);
    let summary = |world: &World| {
        let streams = world.findings().1.expect("it runs");
        (streams.total, streams.ready, streams.replaying, streams.blocked)
    };
    assert_eq!(summary(&mixed), (2, 1, 1, 0));
    assert_eq!(mixed.says(types::STREAMS_RUNNING), "False Replaying");
    assert_eq!(mixed.says(types::READY), "False Replaying");
    mixed.verdict.scopes.push(scope("zebras", "a"));
    assert_eq!(summary(&mixed), (3, 1, 2, 0));
    let stuck = world(&[("configmaps", "a", ScopeView::Replaying), ("configmaps", "b", blocked())]);
    assert_eq!(summary(&stuck), (1, 0, 0, 1));
    assert_eq!(stuck.says(types::READY), "False WatchNotPermitted");
    assert_eq!(stuck.says(types::STALLED), "True WatchNotPermitted");
}

#[test]
fn providers_and_discovery_hold_a_target_up_without_stalling_it() {
    let ready = [("configmaps", "a", ScopeView::Ready)];
    let mut world = world(&ready);
    world.provider = Some(Gate::blocked(Reason::ConnectionFailed, "check the URL"));
    assert_eq!(world.says(types::GIT_PROVIDER_READY), "False GitProviderNotReady");
    assert_eq!(world.says(types::READY), "False GitProviderNotReady");
    assert_eq!(world.says(types::STALLED), "False Progressing");
    world.provider = Some(Gate::unobserved(Reason::Progressing, "not tried"));
    assert_eq!(world.says(types::GIT_PROVIDER_READY), "Unknown GitProviderNotReady");
    assert_eq!(world.says(types::READY), "True Succeeded", "only an explicit False blocks");
    world.types = TypesRead::NotYet;
    assert_eq!(world.says(types::SOURCE_CLUSTER_REACHABLE), "Unknown AwaitingDiscovery");
    assert_eq!(world.says(types::READY), "Unknown AwaitingDiscovery");
    world.view = None;
    assert_eq!(world.says(types::STREAMS_RUNNING), "False Progressing");
    assert_eq!(world.says(types::READY), "Unknown AwaitingDiscovery", "the first in order names the reason");
    world.provider = Some(Gate::blocked(Reason::ConnectionFailed, "check the URL"));
    assert_eq!(world.says(types::READY), "False GitProviderNotReady");
}

#[test]
fn a_cluster_provider_without_a_definite_answer_is_left_as_it_is() {
    let spec = |value| serde_json::from_value::<ClusterProviderSpec>(value).expect("a spec");
    let local = spec(serde_json::json!({}));
    let remote = spec(serde_json::json!({"kubeConfig": {"secretRef": {"name": "s"}}}));
    let row = |spec, result: Option<Result<(), Refusal>>| {
        let known = result.map(|result| KubeConfigs { generation: 1, result });
        cluster_provider(spec, known.as_ref(), 1)
            .map(|(finding, gate)| (format!("{} {}", finding.status, finding.reason), gate == Gate::Open))
    };
    assert_eq!(row(&local, None), Some(("True InCluster".to_owned(), true)));
    assert_eq!(row(&remote, None), None);
    assert_eq!(row(&remote, Some(Ok(()))), Some(("True Validated".to_owned(), true)));
    for reason in [
        Reason::KubeConfigInvalid,
        Reason::KubeConfigSecretNotFound,
        Reason::KubeConfigKeyNotFound,
        Reason::KubeConfigExecNotAllowed,
        Reason::KubeConfigInsecureTLSNotAllowed,
        Reason::KubeConfigFileReferenceNotAllowed,
    ] {
        let refusal = Refusal::new(reason, "repair it");
        assert_eq!(row(&remote, Some(Err(refusal))), Some((format!("False {reason}"), false)));
    }
    let old = KubeConfigs { generation: 1, result: Ok(()) };
    assert_eq!(cluster_provider(&remote, Some(&old), 2), None, "judged in another generation");
}

fn rule_verdict(source: Option<Source>) -> RuleVerdict {
    RuleVerdict {
        target: Some(ObjectKey::new("n", "t")),
        source,
        refusal: None,
        resolved: true,
        unmatched: Vec::new(),
        types: 1,
        scopes: vec![scope("configmaps", "a")],
    }
}

fn of_rule(verdict: &RuleVerdict, kind: RuleKind, view: Option<&TargetView>) -> Vec<Finding> {
    let target = trio_of_target();
    rule(&RuleFacts { verdict, kind, target: &target, view }).0
}

fn trio_of_target() -> [Finding; 3] {
    upriver_api::condition::trio(&[], "ready")
}

#[test]
fn what_a_rule_may_read_decides_whether_it_is_ready() {
    let live = view(&[("configmaps", "a", ScopeView::Ready)]);
    for (source, condition, streams, ready, stalled) in sources() {
        let name = format!("{source:?}");
        let findings = of_rule(&rule_verdict(Some(source)), RuleKind::WatchRule, Some(&live));
        assert_eq!(says(&findings, types::SOURCE_NAMESPACE_AUTHORIZED), condition, "{name}");
        assert_eq!(says(&findings, types::STREAMS_RUNNING), streams, "{name}");
        assert_eq!(says(&findings, types::READY), ready, "{name}");
        assert!(says(&findings, types::STALLED).starts_with(stalled), "{name}");
    }
    let findings = of_rule(&rule_verdict(None), RuleKind::ClusterWatchRule, Some(&live));
    assert!(findings.iter().all(|finding| finding.type_ != types::SOURCE_NAMESPACE_AUTHORIZED));
    assert_eq!(says(&findings, types::READY), "True Succeeded");
}

type SourceRow = (Source, &'static str, &'static str, &'static str, &'static str);

fn sources() -> Vec<SourceRow> {
    let text = || "repair it".to_owned();
    let denied = Source::Denied { message: text() };
    let unavailable = |kept| Source::Unavailable { message: text(), kept };
    // Source, its condition, StreamsRunning, Ready, Stalled.
    vec![
        (Source::Legacy, "True LegacySourceNamespace", "True AllStreamsReady", "True Succeeded", "False"),
        (
            Source::Allowed { namespaces: 1 },
            "True SourceNamespaceAllowed",
            "True AllStreamsReady",
            "True Succeeded",
            "False",
        ),
        (Source::Empty, "True NoAdmittedSourceNamespaces", "True AllStreamsReady", "True Succeeded", "False"),
        (
            denied,
            "False SourceNamespaceNotAllowed",
            "False SourceNamespaceNotAllowed",
            "False SourceNamespaceNotAllowed",
            "True",
        ),
        (
            unavailable(false),
            "False SourceNamespacePolicyUnavailable",
            "False SourceNamespacePolicyUnavailable",
            "False SourceNamespacePolicyUnavailable",
            "True",
        ),
        (
            unavailable(true),
            "Unknown SourceNamespacePolicyUnavailable",
            "True AllStreamsReady",
            "False SourceNamespacePolicyUnavailable",
            "False",
        ),
        (
            Source::Checking { kept: false },
            "Unknown CheckingSourceNamespacePolicy",
            "Unknown CheckingSourceNamespacePolicy",
            "False CheckingSourceNamespacePolicy",
            "False",
        ),
        (
            Source::Checking { kept: true },
            "Unknown CheckingSourceNamespacePolicy",
            "True AllStreamsReady",
            "False CheckingSourceNamespacePolicy",
            "False",
        ),
    ]
}

#[test]
fn a_rule_that_selects_nothing_is_ready_and_names_what_it_left_out() {
    let mut verdict = rule_verdict(Some(Source::Legacy));
    verdict.scopes.clear();
    verdict.types = 0;
    verdict.unmatched = vec!["deploymnets: no such resource is served".to_owned()];
    let view = TargetView::default();
    let facts = RuleFacts {
        verdict: &verdict,
        kind: RuleKind::WatchRule,
        target: &trio_of_target(),
        view: Some(&view),
    };
    let (findings, streams) = rule(&facts);
    assert_eq!(says(&findings, types::READY), "True Succeeded");
    assert_eq!(says(&findings, types::STREAMS_RUNNING), "True NoResolvedTypes");
    assert_eq!(says(&findings, types::RESOURCES_RESOLVED), "True Resolved");
    assert!(message(&findings, types::RESOURCES_RESOLVED).contains("deploymnets"));
    assert_eq!(streams.expect("it runs").summary.as_deref(), Some("0/0"));
    verdict.resolved = false;
    let findings = of_rule(&verdict, RuleKind::WatchRule, Some(&view));
    assert_eq!(says(&findings, types::RESOURCES_RESOLVED), "Unknown UnresolvedResources");
    assert_eq!(says(&findings, types::STALLED), "False Progressing");
}

#[test]
fn a_refused_rule_leaves_nothing_old_standing() {
    let reasons = [
        Reason::GitTargetNotFound,
        Reason::GitRepoConfigNotFound,
        Reason::GitDestinationInvalid,
        Reason::GitTargetNamespaceNotAuthorized,
        Reason::ClusterScopeOnly,
    ];
    for reason in reasons {
        let mut verdict = rule_verdict(None);
        verdict.refusal = Some(Refusal::new(reason, "repair it"));
        let view = view(&[("configmaps", "a", ScopeView::Ready)]);
        let facts =
            RuleFacts { verdict: &verdict, kind: RuleKind::ClusterWatchRule, target: &[], view: Some(&view) };
        let (findings, streams) = rule(&facts);
        assert_eq!(streams, None);
        let expected = [
            "ResourcesResolved=Unknown Blocked".to_owned(),
            format!("GitTargetReady=False {reason}"),
            "StreamsRunning=Unknown NotReady".to_owned(),
            format!("Ready=False {reason}"),
            format!("Reconciling=False {reason}"),
            format!("Stalled=True {reason}"),
        ];
        assert_eq!(rows(&findings), expected);
    }
}

#[test]
fn a_rule_copies_its_targets_stall_and_waits_with_its_targets_progress() {
    let verdict = rule_verdict(Some(Source::Legacy));
    let live = view(&[("configmaps", "a", ScopeView::Ready)]);
    let with = |gate: Gate, view: Option<&TargetView>| {
        let target = upriver_api::condition::trio(&[gate], "");
        rule(&RuleFacts { verdict: &verdict, kind: RuleKind::WatchRule, target: &target, view }).0
    };
    let stalled = with(Gate::blocked(Reason::UnsupportedContent, "move it"), Some(&live));
    assert_eq!(says(&stalled, types::GIT_TARGET_READY), "False UnsupportedContent");
    assert_eq!(says(&stalled, types::STALLED), "True UnsupportedContent");
    let refused = with(Gate::blocked(Reason::ValidationFailed, "repair it"), None);
    assert_eq!(says(&refused, types::STREAMS_RUNNING), "Unknown NotReady");
    let waiting = with(Gate::waiting(Reason::GitProviderNotReady, "soon"), Some(&live));
    assert_eq!(says(&waiting, types::STALLED), "False Progressing");
    assert_eq!(says(&waiting, types::READY), "False GitProviderNotReady");
    let nobody = of_nobody(&verdict);
    assert_eq!(says(&nobody, types::GIT_TARGET_READY), "Unknown Progressing");
}

fn of_nobody(verdict: &RuleVerdict) -> Vec<Finding> {
    rule(&RuleFacts { verdict, kind: RuleKind::WatchRule, target: &[], view: None }).0
}

#[test]
fn the_sample_names_blocked_types_first_and_at_most_five() {
    let mut states: BTreeMap<TargetScope, ScopeView> =
        "abcdef".chars().map(|letter| (scope(&letter.to_string(), "n"), ScopeView::Replaying)).collect();
    states.insert(scope("z", "n"), blocked());
    states.insert(scope("y", "n"), ScopeView::Ready);
    let mut verdict = rule_verdict(Some(Source::Legacy));
    verdict.scopes = states.keys().cloned().collect();
    let view = TargetView { scopes: states, ..TargetView::default() };
    let facts = RuleFacts {
        verdict: &verdict,
        kind: RuleKind::WatchRule,
        target: &trio_of_target(),
        view: Some(&view),
    };
    let streams = rule(&facts).1.expect("it runs");
    assert_eq!(streams.pending_sample, ["z", "a", "b", "c", "d"]);
    assert_eq!(streams.summary.as_deref(), Some("1/8"));
}

#[test]
fn a_request_without_a_target_waits_and_then_fails_by_name() {
    let waiting = missing_target("n/t", Patience::Waiting);
    assert_eq!(says(&waiting, types::READY), "False WaitingForCloseDelay");
    assert_eq!(says(&waiting, types::PUSHED), "Unknown WaitingForCloseDelay");
    assert_eq!(says(&waiting, types::STALLED), "False Progressing");
    let failed = missing_target("n/t", Patience::Over);
    assert_eq!(says(&failed, types::READY), "False FinalizeFailed");
    assert_eq!(says(&failed, types::STALLED), "True FinalizeFailed");
    assert_eq!(says(&failed, types::PUSHED), "False FinalizeFailed");
    assert!(message(&failed, types::READY).contains("GitTarget n/t"));
}
