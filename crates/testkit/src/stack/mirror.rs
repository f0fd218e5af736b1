//! Is a namespace in Git as it lives? In: a [`MirrorSpec`]. Out: the standard objects that mirror one namespace, and a
//! comparison that trusts nobody: live objects from the API server, files from Git, both sanitised here.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use upriver_content::placement::{PlacementQuery, Sensitivity, canonical_path};
use upriver_content::yaml::read_document;
use upriver_content::{
    ObjectMeta, SanitizeRules, Selection, TargetPath, TypeHint, policy, sanitize_item, sanitize_value,
};
use upriver_model::{Gvr, ObjectKey};

use super::{GIT_OBJECT, Stack, cluster_provider, git_provider, git_secret, git_target, watch_rule};
use crate::TestkitError;
use crate::control_plane::User;
use crate::wait::try_eventually;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// Types that tests and the demo mirror.
pub mod resources {
    use upriver_model::Gvr;

    /// `v1` ConfigMaps.
    #[must_use]
    pub fn config_maps() -> Gvr {
        Gvr::new("", "v1", "configmaps")
    }

    /// `apps/v1` Deployments.
    #[must_use]
    pub fn deployments() -> Gvr {
        Gvr::new("apps", "v1", "deployments")
    }

    /// What a namespace usually holds, Secrets left out.
    #[must_use]
    pub fn typical() -> Vec<Gvr> {
        vec![
            config_maps(),
            Gvr::new("", "v1", "services"),
            Gvr::new("", "v1", "serviceaccounts"),
            deployments(),
            Gvr::new("apps", "v1", "statefulsets"),
            Gvr::new("batch", "v1", "cronjobs"),
            Gvr::new("networking.k8s.io", "v1", "ingresses"),
            Gvr::new("networking.k8s.io", "v1", "networkpolicies"),
        ]
    }
}

/// Which namespace goes where.
#[derive(Clone, Debug)]
pub struct MirrorSpec {
    /// The namespace; made if it does not exist.
    pub namespace: String,
    /// Name of the GitTarget and of the WatchRule.
    pub name: String,
    /// A repository of the Git server other than the stack's own.
    pub repo: Option<String>,
    /// Branch.
    pub branch: String,
    /// Folder.
    pub path: String,
    /// `push.commitWindow` of the GitProvider.
    pub commit_window: String,
    /// What is mirrored.
    pub types: Vec<Gvr>,
}

impl MirrorSpec {
    /// All typical types of `namespace` into the folder of its name on `main`, with a commit window of one second.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self {
            path: namespace.clone(),
            name: "mirror".into(),
            repo: None,
            branch: "main".into(),
            commit_window: "1s".into(),
            types: resources::typical(),
            namespace,
        }
    }

    /// Only these types.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = Gvr>) -> Self {
        self.types = types.into_iter().collect();
        self
    }

    /// Another commit window.
    #[must_use]
    pub fn commit_window(mut self, window: impl Into<String>) -> Self {
        self.commit_window = window.into();
        self
    }

    /// Another branch.
    #[must_use]
    pub fn branch(mut self, branch: impl Into<String>) -> Self {
        self.branch = branch.into();
        self
    }

    /// Another folder.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Another repository; [`crate::git_server::GitServer::create_repo`] makes it.
    #[must_use]
    pub fn repo(mut self, repo: impl Into<String>) -> Self {
        self.repo = Some(repo.into());
        self
    }

    /// Another name of the target and the rule.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

/// A namespace that is mirrored.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// What was asked for.
    pub spec: MirrorSpec,
    target: TargetPath,
}

impl Mirror {
    /// Where the document of an object belongs.
    #[must_use]
    pub fn file_of(&self, gvr: &Gvr, name: &str) -> String {
        let sensitivity = if gvr.is_secret() { Sensitivity::Sensitive } else { Sensitivity::Plain };
        let key = ObjectKey::new(&self.spec.namespace, name);
        // The canonical place does not depend on the kind.
        let query = PlacementQuery { gvr, kind: "", key: &key, sensitivity };
        canonical_path(&self.target, query).to_string()
    }
}

/// A file that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path in the repository.
    pub path: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The object lives, the file does not exist.
    Missing,
    /// The file exists, no object belongs to it.
    Leftover,
    /// It is not a document.
    Unreadable(String),
    /// Object and document differ.
    Differs {
        /// What lives, as it should be written.
        live: String,
        /// What the file holds.
        found: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.problem {
            Problem::Missing => write!(f, "{path} is missing"),
            Problem::Leftover => write!(f, "{path} is there, but no object for it lives"),
            Problem::Unreadable(why) => write!(f, "{path} is not a document: {why}"),
            Problem::Differs { live, found } => {
                write!(f, "{path} differs\n--- live ---\n{live}--- in Git ---\n{found}")
            }
        }
    }
}

impl Stack {
    /// Makes the namespace and the standard objects in it, as the admin, and waits until target and rule are ready.
    ///
    /// # Panics
    /// If one is refused or not ready within a minute.
    pub async fn mirror(&self, spec: MirrorSpec) -> Mirror {
        match self.try_mirror(spec).await {
            Ok(mirror) => mirror,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`Stack::mirror`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If one is refused or not ready within a minute.
    pub async fn try_mirror(&self, spec: MirrorSpec) -> Result<Mirror, TestkitError> {
        let mirror = self.apply_mirror(spec).await?;
        let MirrorSpec { namespace, name, repo, .. } = &mirror.spec;
        let provider = repo.as_deref().unwrap_or(GIT_OBJECT);
        self.try_wait_ready("GitProvider", namespace, provider, READY_WITHIN).await?;
        self.try_wait_ready("GitTarget", namespace, name, READY_WITHIN).await?;
        self.try_wait_ready("WatchRule", namespace, name, READY_WITHIN).await?;
        Ok(mirror)
    }

    /// As [`Stack::try_mirror`] without waiting, for tests of the start itself.
    ///
    /// # Errors
    /// If an object is refused.
    pub async fn apply_mirror(&self, spec: MirrorSpec) -> Result<Mirror, TestkitError> {
        let unusable = |error: upriver_content::PathError| TestkitError::Yaml { why: error.to_string() };
        let target = TargetPath::parse(&spec.path).map_err(unusable)?;
        let MirrorSpec { namespace, name, repo, branch, path, commit_window, types } = &spec;
        let url = repo.as_ref().map_or_else(|| self.repo_url(), |repo| self.git.url(repo));
        // Targets of one namespace share a provider only if they share its repository.
        let provider = repo.as_deref().unwrap_or(GIT_OBJECT);
        self.plane.create_namespace(namespace).await;
        let objects = [
            cluster_provider(),
            git_secret(namespace, provider),
            git_provider(namespace, provider, &url, commit_window),
            git_target(namespace, name, provider, branch, path),
            watch_rule(namespace, name, name, types),
        ];
        self.apply(User::Admin, &objects).await?;
        Ok(Mirror { spec, target })
    }

    /// Everything below the mirror's folder that is not as it lives, at this moment. Empty: all is in Git, and nothing
    /// else is.
    ///
    /// # Panics
    /// If the API server or git does not answer.
    pub async fn differences(&self, mirror: &Mirror) -> Vec<Difference> {
        self.try_differences(mirror).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Stack::differences`], for callers that look again when the API server is away.
    ///
    /// # Errors
    /// What the API server said.
    ///
    /// # Panics
    /// If git does not answer.
    pub async fn try_differences(&self, mirror: &Mirror) -> Result<Vec<Difference>, String> {
        let live = self.live_documents(mirror).await?;
        let found = self.repo_of(mirror).ls_tree(&mirror.spec.branch, mirror.target.as_str());
        Ok(compare(&live, &found))
    }

    /// Waits until there are no differences.
    ///
    /// # Panics
    /// If some are left after `timeout`; the message names them, with the operators' logs.
    pub async fn until_in_git(&self, mirror: &Mirror, timeout: Duration) {
        let what = format!("namespace {} to be in Git", mirror.spec.namespace);
        let waited = try_eventually(&what, timeout, async || {
            let left: Vec<String> = self.differences(mirror).await.iter().map(ToString::to_string).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
        if let Err(late) = waited.await {
            panic!("{late}\n{}", self.operator_logs());
        }
    }

    /// Path and sanitised document of every object that should be in Git.
    async fn live_documents(&self, mirror: &Mirror) -> Result<BTreeMap<String, Value>, String> {
        let mut documents = BTreeMap::new();
        for gvr in &mirror.spec.types {
            let root = if gvr.group.is_empty() { "/api" } else { "/apis" };
            let (version, resource) = (gvr.api_version(), &gvr.resource);
            let path = format!("{root}/{version}/namespaces/{}/{resource}", mirror.spec.namespace);
            let list = self.get_raw(&path).await?;
            let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
            let hint = TypeHint { api_version: &version, kind: &kind };
            for item in list["items"].as_array().into_iter().flatten() {
                let text = item.to_string();
                let meta = ObjectMeta::peek(&text).map_err(|error| error.to_string())?;
                if policy::noise(gvr, &meta, Selection::Named).is_some() {
                    continue;
                }
                let sanitized = sanitize_item(&text, hint, &SanitizeRules::default())
                    .map_err(|error| format!("{resource} {}: {error}", meta.name))?;
                documents.insert(mirror.file_of(gvr, &meta.name), sanitized.document);
            }
        }
        Ok(documents)
    }
}

fn compare(live: &BTreeMap<String, Value>, found: &BTreeMap<String, Vec<u8>>) -> Vec<Difference> {
    let of_live = live.iter().filter_map(|(path, document)| {
        let problem = match found.get(path) {
            None => Some(Problem::Missing),
            Some(bytes) => compare_file(document, bytes),
        };
        problem.map(|problem| Difference { path: path.clone(), problem })
    });
    let leftover = |path: &String| Difference { path: path.clone(), problem: Problem::Leftover };
    let extra = found.keys().filter(|path| !live.contains_key(*path)).map(leftover);
    of_live.chain(extra).collect()
}

fn compare_file(live: &Value, bytes: &[u8]) -> Option<Problem> {
    let unreadable = |why: String| Some(Problem::Unreadable(why));
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return unreadable(error.to_string()),
    };
    let document = match read_document(text) {
        Ok(document) => document,
        Err(error) => return unreadable(error.to_string()),
    };
    let found = match sanitize_value(&document, &SanitizeRules::default()) {
        Ok(found) => found,
        Err(error) => return unreadable(error.to_string()),
    };
    let equal = upriver_content::equal(live, &found.document);
    let differs = || Problem::Differs { live: upriver_content::yaml::to_yaml(live), found: text.to_owned() };
    (!equal).then(differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_be_wrong_is_named() {
        let document = |value: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"},
                "data": {"k": value}})
        };
        let yaml = |value: &str| upriver_content::yaml::to_yaml(&document(value)).into_bytes();
        let live: BTreeMap<String, Value> =
            ["equal", "missing", "differs", "broken"].map(|path| (path.to_owned(), document("1"))).into();
        let found: BTreeMap<String, Vec<u8>> = [
            ("equal".to_owned(), yaml("1")),
            ("differs".to_owned(), yaml("2")),
            ("broken".to_owned(), b"{".to_vec()),
            ("extra".to_owned(), yaml("1")),
        ]
        .into();
        let mut names: Vec<(String, &str)> = compare(&live, &found)
            .into_iter()
            .map(|difference| {
                let name = match difference.problem {
                    Problem::Missing => "missing",
                    Problem::Leftover => "leftover",
                    Problem::Unreadable(_) => "unreadable",
                    Problem::Differs { .. } => "differs",
                };
                (difference.path, name)
            })
            .collect();
        names.sort();
        let expected =
            [("broken", "unreadable"), ("differs", "differs"), ("extra", "leftover"), ("missing", "missing")];
        assert_eq!(names, expected.map(|(path, name)| (path.to_owned(), name)));
    }
}
