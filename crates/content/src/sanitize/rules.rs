//! Which labels and annotations are written by machines (C3.4, C3.5, C3.7). In: names. Out: keep or drop.
//! The built-in lists are the default; an installation may add to them, never take away from them.

/// Labels and annotations that other controllers write into an object's own metadata. Those inside a pod template are
/// not touched: a restart by annotation is a change that somebody wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitizeRules {
    labels: Vec<Box<str>>,
    annotations: Vec<Box<str>>,
    claim_annotations: Vec<Box<str>>,
    kept_annotations: Vec<Box<str>>,
    injectors: Vec<Box<str>>,
}

/// Dropped from labels and annotations alike.
const BOTH: [&str; 4] = [
    "kustomize.toolkit.fluxcd.io/",
    "applyset.kubernetes.io/",
    "helm.toolkit.fluxcd.io/",
    "resourceset.fluxcd.controlplane.io/",
];
const LABELS: [&str; 1] = ["kro.run/"];
const ANNOTATIONS: [&str; 9] = [
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/installation-id",
    "kcp.io/cluster",
    "kubectl.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
    "deployment.kubernetes.io/",
    "autoscaling.alpha.kubernetes.io/",
    "meta.helm.sh/",
    "endpoints.kubernetes.io/",
];
/// Dropped from claims only: on other types a person may have written them.
const CLAIM_ANNOTATIONS: [&str; 3] =
    ["pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"];
/// The old spelling of `spec.storageClassName`, and the one annotation below those prefixes that people write.
const KEPT_ANNOTATIONS: [&str; 1] = ["volume.beta.kubernetes.io/storage-class"];
const INJECTORS: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

impl Default for SanitizeRules {
    fn default() -> Self {
        let own = |lists: &[&[&str]]| lists.concat().into_iter().map(Box::from).collect();
        Self {
            labels: own(&[&BOTH, &LABELS]),
            annotations: own(&[&BOTH, &ANNOTATIONS]),
            claim_annotations: own(&[&CLAIM_ANNOTATIONS]),
            kept_annotations: own(&[&KEPT_ANNOTATIONS]),
            injectors: own(&[&INJECTORS]),
        }
    }
}

impl SanitizeRules {
    /// Drops one more label, or, if the pattern ends in `/`, every label below that prefix.
    #[must_use]
    pub fn drop_label(mut self, pattern: &str) -> Self {
        self.labels.push(pattern.into());
        self
    }

    /// Drops one more annotation, or, if the pattern ends in `/`, every annotation below that prefix.
    #[must_use]
    pub fn drop_annotation(mut self, pattern: &str) -> Self {
        self.annotations.push(pattern.into());
        self
    }

    /// Names one more annotation whose presence means that a controller fills in `caBundle`.
    #[must_use]
    pub fn injector_annotation(mut self, name: &str) -> Self {
        self.injectors.push(name.into());
        self
    }

    pub(crate) fn drops_label(&self, name: &str) -> bool {
        matches_any(&self.labels, name)
    }

    pub(crate) fn drops_annotation(&self, name: &str) -> bool {
        matches_any(&self.annotations, name)
    }

    pub(crate) fn drops_claim_annotation(&self, name: &str) -> bool {
        matches_any(&self.claim_annotations, name) && !matches_any(&self.kept_annotations, name)
    }

    pub(crate) fn injectors(&self) -> impl Iterator<Item = &str> {
        self.injectors.iter().map(|name| &**name)
    }
}

/// A pattern that ends in a slash is a prefix, any other is a whole name.
fn matches_any(patterns: &[Box<str>], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| if pattern.ends_with('/') { name.starts_with(&**pattern) } else { name == &**pattern })
}
