//! Which types and objects are never mirrored. In: a type, an object's [`ObjectMeta`]. Out: a named reason or none.
//! Absent: what the user's rules select; that is decided before.

use upriver_model::Gvr;

use crate::meta::ObjectMeta;

/// Types that describe a moment and not a wish (W1.25). `cronjobs` are wishes and allowed, the Jobs they make are not.
const DENIED: [(&str, &str); 10] = [
    ("", "pods"),
    ("", "events"),
    ("", "endpoints"),
    ("events.k8s.io", "events"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("apps", "controllerrevisions"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("batch", "jobs"),
];

/// True if the type is never mirrored, whatever a rule says.
#[must_use]
pub fn denied(group: &str, resource: &str) -> bool {
    DENIED.contains(&(group, resource))
}

/// How a rule came to select a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The rule names it. Then its objects are wanted even if another controller owns them.
    Named,
    /// The rule says `*`.
    Wildcard,
}

/// Why an object is left out although its type is selected. Also a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoiseReason {
    /// The ConfigMap `kube-root-ca.crt` that every namespace gets.
    ClusterRootCa,
    /// The ServiceAccount `default` that every namespace gets.
    DefaultServiceAccount,
    /// A Secret with a ServiceAccount's token.
    ServiceAccountToken,
    /// A Secret in which Helm stores a release.
    HelmRelease,
    /// A Secret with which a node joins.
    BootstrapToken,
    /// Another controller makes it again whenever it is missing.
    ControllerOwned,
}

impl NoiseReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::ClusterRootCa,
        Self::DefaultServiceAccount,
        Self::ServiceAccountToken,
        Self::HelmRelease,
        Self::BootstrapToken,
        Self::ControllerOwned,
    ];

    /// The name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterRootCa => "cluster_root_ca",
            Self::DefaultServiceAccount => "default_service_account",
            Self::ServiceAccountToken => "service_account_token",
            Self::HelmRelease => "helm_release",
            Self::BootstrapToken => "bootstrap_token",
            Self::ControllerOwned => "controller_owned",
        }
    }
}

/// Tells whether an object is noise (W1.26). The names and Secret types are noise however they were selected; an owner
/// is a reason under [`Selection::Wildcard`] only. A caller with the opt-in does not ask.
#[must_use]
pub fn noise(gvr: &Gvr, meta: &ObjectMeta<'_>, selection: Selection) -> Option<NoiseReason> {
    let by_name = match (&*gvr.group, &*gvr.resource) {
        ("", "configmaps") => (meta.name == "kube-root-ca.crt").then_some(NoiseReason::ClusterRootCa),
        ("", "serviceaccounts") => (meta.name == "default").then_some(NoiseReason::DefaultServiceAccount),
        ("", "secrets") => match &*meta.type_name {
            "kubernetes.io/service-account-token" => Some(NoiseReason::ServiceAccountToken),
            "helm.sh/release.v1" => Some(NoiseReason::HelmRelease),
            "bootstrap.kubernetes.io/token" => Some(NoiseReason::BootstrapToken),
            _ => None,
        },
        _ => None,
    };
    by_name.or(match selection {
        Selection::Wildcard if meta.controlled => Some(NoiseReason::ControllerOwned),
        Selection::Wildcard | Selection::Named => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(name: &'a str, type_name: &'a str) -> ObjectMeta<'a> {
        ObjectMeta { name: name.into(), type_name: type_name.into(), ..ObjectMeta::default() }
    }

    #[test]
    fn denied_types_are_those_of_the_list_and_cron_jobs_are_not() {
        for (group, resource) in DENIED {
            assert!(denied(group, resource), "{group}/{resource}");
        }
        for (group, resource) in
            [("batch", "cronjobs"), ("", "configmaps"), ("example.test", "pods"), ("apps", "leases")]
        {
            assert!(!denied(group, resource), "{group}/{resource}");
        }
    }

    #[test]
    fn noise_is_recognised_by_type_and_name() {
        let table = [
            ("", "configmaps", "kube-root-ca.crt", "", Some(NoiseReason::ClusterRootCa)),
            ("example.test", "configmaps", "kube-root-ca.crt", "", None),
            ("", "configmaps", "app", "helm.sh/release.v1", None),
            ("", "serviceaccounts", "default", "", Some(NoiseReason::DefaultServiceAccount)),
            ("", "serviceaccounts", "builder", "", None),
            (
                "",
                "secrets",
                "x",
                "kubernetes.io/service-account-token",
                Some(NoiseReason::ServiceAccountToken),
            ),
            ("", "secrets", "x", "helm.sh/release.v1", Some(NoiseReason::HelmRelease)),
            ("", "secrets", "x", "bootstrap.kubernetes.io/token", Some(NoiseReason::BootstrapToken)),
            ("", "secrets", "default", "Opaque", None),
        ];
        for (group, resource, name, type_name, expected) in table {
            for selection in [Selection::Named, Selection::Wildcard] {
                let found = noise(&Gvr::new(group, "v1", resource), &named(name, type_name), selection);
                assert_eq!(found, expected, "{group}/{resource} {name} {type_name} {selection:?}");
            }
        }
    }

    #[test]
    fn owner_is_noise_only_if_the_type_was_not_named() {
        let replica_sets = Gvr::new("apps", "v1", "replicasets");
        let meta = ObjectMeta { controlled: true, ..named("web-1", "") };
        assert_eq!(noise(&replica_sets, &meta, Selection::Wildcard), Some(NoiseReason::ControllerOwned));
        assert_eq!(noise(&replica_sets, &meta, Selection::Named), None);
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = NoiseReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), NoiseReason::ALL.len());
    }
}
