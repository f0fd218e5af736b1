//! Does it work as a whole? In: [`StackOptions`]. Out: a control plane with our CRDs, a Redis, a Git server with an
//! empty repository behind a login, and any number of operators, each of them the real program.
//!
//! [`Stack::mirror`] makes the standard objects for one namespace and waits until they are ready;
//! [`Stack::differences`] says what of it is not in Git yet, or not as it lives. [`Stack::repo`] reads the repository.
//! Absent: faults; they are asked of the parts ([`Stack::plane`], [`Stack::redis`], [`Stack::git`], [`Operator`]).

mod mirror;
mod repo;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use upriver_model::Gvr;

use crate::TestkitError;
use crate::control_plane::{ControlPlane, ControlPlaneOptions, User};
use crate::git_server::{Access, GitServer, git};
use crate::operator::{NAMESPACE, Operator, OperatorOptions};
use crate::redis::{RedisOptions, RedisServer};
use crate::wait::try_eventually;
use crate::workdir::WorkDir;

pub use mirror::{Difference, Mirror, MirrorSpec, Problem, resources};
pub use repo::{CommitInfo, Repo};

/// Login of the Git server.
pub const GIT_USER: &str = "upriver";
/// Password of the Git server.
pub const GIT_PASSWORD: &str = "secret-of-the-stack";
/// Name of the Secret with that login, and of the GitProvider that uses it.
pub const GIT_OBJECT: &str = "git";

/// The manifests that users install.
pub const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/base");

/// How a stack is set up. The default has one operator.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The operators to start, one after the other; none is fine.
    pub operators: Vec<OperatorOptions>,
    /// The control plane.
    pub plane: ControlPlaneOptions,
    /// The Redis.
    pub redis: RedisOptions,
    /// Name of the repository.
    pub repo: String,
    /// Folder for everything, kept afterwards; temporary ones, removed afterwards, if absent.
    pub dir: Option<PathBuf>,
    /// Told before each part is started and after it is ready; for programs that people watch.
    pub progress: fn(Progress<'_>),
}

/// What a stack does while it starts.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// This part is being started.
    Starting(&'a str),
    /// The part named last is ready, after so long.
    Ready(Duration),
}

impl Default for StackOptions {
    fn default() -> Self {
        Self {
            operators: vec![OperatorOptions::default()],
            plane: ControlPlaneOptions::default(),
            redis: RedisOptions::default(),
            repo: "fleet".into(),
            dir: None,
            progress: |_| {},
        }
    }
}

impl StackOptions {
    /// As many operators, `upriver-0` and so on, each with these further flags.
    #[must_use]
    pub fn operators(mut self, count: usize, flags: &[&str]) -> Self {
        let named = |index| {
            let options = OperatorOptions::named(format!("upriver-{index}"));
            flags.iter().fold(options, |options, flag| options.arg(*flag))
        };
        self.operators = (0..count).map(named).collect();
        self
    }
}

/// Everything that runs; dropping it ends it, operators first.
pub struct Stack {
    operators: Vec<Operator>,
    git: GitServer,
    redis: RedisServer,
    plane: ControlPlane,
    repo: String,
    dir: WorkDir,
}

impl Stack {
    /// Starts all parts.
    ///
    /// # Panics
    /// If one does not get ready; the message ends with its log.
    pub async fn start(options: StackOptions) -> Self {
        match Self::try_start(options).await {
            Ok(stack) => stack,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`Stack::start`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If one part cannot be had or does not get ready.
    pub async fn try_start(options: StackOptions) -> Result<Self, TestkitError> {
        let StackOptions { operators, mut plane, mut redis, repo, dir, progress } = options;
        let dir = WorkDir::new("stack", dir).map_err(io("make the folder of the stack"))?;
        let sub = |name: &str| dir.sub(name).map_err(io("make a folder of the stack"));
        plane.dir = Some(sub("plane")?);
        redis.dir = Some(sub("redis")?);

        let report = Report(progress);
        let plane = report.part("etcd and kube-apiserver", start_plane(plane)).await?;
        let redis = report.part("redis-server", RedisServer::try_start(redis)).await?;
        let git = report.part("a Git server", async { start_git(sub("git")?, &repo) }).await?;
        let mut stack = Self { operators: Vec::new(), git, redis, plane, repo, dir };
        for operator in operators {
            let what = format!("the operator ({})", operator.pod_name);
            report.part(&what, stack.add_operator(operator)).await?;
        }
        Ok(stack)
    }

    /// Starts one more operator, and returns its index.
    ///
    /// # Errors
    /// If it does not get ready.
    pub async fn add_operator(&mut self, options: OperatorOptions) -> Result<usize, TestkitError> {
        let operator = Operator::try_start(&self.plane, &self.redis, self.dir.path(), options).await?;
        self.operators.push(operator);
        Ok(self.operators.len() - 1)
    }

    /// An operator by its index, from 0.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn operator(&self, index: usize) -> &Operator {
        &self.operators[index]
    }

    /// All operators, also those that were killed.
    #[must_use]
    pub fn operators(&self) -> &[Operator] {
        &self.operators
    }

    /// The control plane.
    #[must_use]
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The Redis.
    #[must_use]
    pub fn redis(&self) -> &RedisServer {
        &self.redis
    }

    /// The Git server.
    #[must_use]
    pub fn git(&self) -> &GitServer {
        &self.git
    }

    /// The folder with everything in it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A client that acts as `user`.
    #[must_use]
    pub fn client(&self, user: User) -> Client {
        self.plane.client(user)
    }

    /// Address of the repository, without a login.
    #[must_use]
    pub fn repo_url(&self) -> String {
        self.git.url(&self.repo)
    }

    /// Address of the repository with the login in it.
    #[must_use]
    pub fn login_url(&self) -> String {
        self.repo_url().replacen("http://", &format!("http://{GIT_USER}:{GIT_PASSWORD}@"), 1)
    }

    /// The repository as it lies on the server's disk.
    #[must_use]
    pub fn repo(&self) -> Repo {
        self.repo_named(&self.repo)
    }

    /// As [`Stack::repo`], of a further one that [`GitServer::create_repo`] made.
    #[must_use]
    pub fn repo_named(&self, name: &str) -> Repo {
        Repo::open(self.git.repo_path(name))
    }

    /// The repository that a mirror writes to.
    #[must_use]
    pub fn repo_of(&self, mirror: &Mirror) -> Repo {
        self.repo_named(mirror.spec.repo.as_deref().unwrap_or(&self.repo))
    }

    /// Clones a branch over HTTP, as a person would, into a new folder, and returns its path. The clone can be
    /// committed to and pushed from with [`git`].
    ///
    /// # Panics
    /// If the branch does not exist, or the folder does.
    #[must_use]
    pub fn clone_repo(&self, branch: &str, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        let text = path.to_string_lossy();
        git(&["clone", "--quiet", "--branch", branch, &self.login_url(), &text], self.dir.path());
        path
    }

    /// Applies objects as `user`; JSON values, as [`json!`] makes them.
    ///
    /// # Errors
    /// If one is refused.
    pub async fn apply(&self, user: User, objects: &[Value]) -> Result<(), TestkitError> {
        for object in objects {
            self.plane.apply_yaml(user, &object.to_string()).await?;
        }
        Ok(())
    }

    /// Waits until the object is Ready at its present generation. `kind` is one of ours, for example `GitTarget`;
    /// the namespace of a ClusterProvider is `""`.
    ///
    /// # Panics
    /// If it is not within `timeout`; the message has its conditions and the operators' logs.
    pub async fn wait_ready(&self, kind: &str, namespace: &str, name: &str, timeout: Duration) {
        if let Err(error) = self.try_wait_ready(kind, namespace, name, timeout).await {
            panic!("{error}");
        }
    }

    /// As [`Stack::wait_ready`], for callers that report errors themselves.
    ///
    /// # Errors
    /// With its conditions and the operators' logs.
    pub async fn try_wait_ready(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<(), TestkitError> {
        let what = format!("{kind} {namespace}/{name} to be Ready");
        let waited = try_eventually(&what, timeout, async || {
            let object = self.get(kind, namespace, name).await?;
            if is_ready(&object) { Ok(()) } else { Err(conditions(&object)) }
        });
        waited.await.map_err(|late| TestkitError::NotReady {
            server: "the operator",
            why: late.to_string(),
            log: self.operator_logs(),
        })
    }

    /// One of our objects as the API server has it.
    ///
    /// # Errors
    /// What the API server said.
    pub async fn get(&self, kind: &str, namespace: &str, name: &str) -> Result<Value, String> {
        let folder = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let path = format!("/apis/configbutler.ai/v1alpha3{folder}/{}s/{name}", kind.to_lowercase());
        self.get_raw(&path).await
    }

    async fn get_raw(&self, path: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).expect("names make well-formed paths");
        let text = self.client(User::Admin).request_text(request).await.map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// The last lines of every operator's log.
    #[must_use]
    pub fn operator_logs(&self) -> String {
        let section =
            |operator: &Operator| format!("--- {} ---\n{}\n", operator.pod_name(), operator.tail_log());
        self.operators.iter().map(section).collect()
    }
}

struct Report(fn(Progress<'_>));

impl Report {
    async fn part<T, E>(&self, what: &str, start: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        (self.0)(Progress::Starting(what));
        let begun = Instant::now();
        let started = start.await?;
        (self.0)(Progress::Ready(begun.elapsed()));
        Ok(started)
    }
}

async fn start_plane(options: ControlPlaneOptions) -> Result<ControlPlane, TestkitError> {
    let plane = ControlPlane::try_start(options).await?;
    let manifests = Path::new(MANIFESTS);
    plane.apply_crds(&manifests.join("crds")).await?;
    plane.create_namespace(NAMESPACE).await;
    plane.grant_shipped_rights(manifests).await?;
    Ok(plane)
}

fn start_git(root: PathBuf, repo: &str) -> Result<GitServer, TestkitError> {
    let git = GitServer::start(root).map_err(io("start the Git server"))?;
    git.set_access(Access::Basic { user: GIT_USER.into(), password: GIT_PASSWORD.into() });
    git.create_repo(repo);
    Ok(git)
}

/// The ClusterProvider `default`, which admits every namespace.
#[must_use]
pub fn cluster_provider() -> Value {
    object("ClusterProvider", "", "default", &json!({"allowedNamespaces": {"selector": {}}}))
}

/// A Secret with the login of the stack's Git server.
#[must_use]
pub fn git_secret(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "type": "kubernetes.io/basic-auth",
        "stringData": {"username": GIT_USER, "password": GIT_PASSWORD},
    })
}

/// A GitProvider for every branch of a repository, with its login in the Secret of the same name.
#[must_use]
pub fn git_provider(namespace: &str, name: &str, url: &str, commit_window: &str) -> Value {
    let spec = json!({
        "url": url,
        "allowedBranches": ["*"],
        "secretRef": {"name": name},
        "push": {"commitWindow": commit_window},
    });
    object("GitProvider", namespace, name, &spec)
}

/// A GitTarget.
#[must_use]
pub fn git_target(namespace: &str, name: &str, provider: &str, branch: &str, path: &str) -> Value {
    let spec = json!({"providerRef": {"name": provider}, "branch": branch, "path": path});
    object("GitTarget", namespace, name, &spec)
}

/// A WatchRule for these types of its namespace.
#[must_use]
pub fn watch_rule(namespace: &str, name: &str, target: &str, types: &[Gvr]) -> Value {
    let rule = |gvr: &Gvr| json!({"apiGroups": [gvr.group], "apiVersions": [gvr.version], "resources": [gvr.resource]});
    let rules: Vec<Value> = types.iter().map(rule).collect();
    object("WatchRule", namespace, name, &json!({"targetRef": {"name": target}, "rules": rules}))
}

fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": "configbutler.ai/v1alpha3", "kind": kind, "metadata": metadata, "spec": spec})
}

/// True if one of our objects is Ready at its present generation.
#[must_use]
pub fn is_ready(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"] == *generation
    })
}

/// The conditions of one of our objects, for people.
#[must_use]
pub fn conditions(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let line = |condition: &Value| {
        let text = |field: &str| condition[field].as_str().unwrap_or("?").to_owned();
        format!("{}={} {}: {}", text("type"), text("status"), text("reason"), text("message"))
    };
    let lines: Vec<String> = conditions.into_iter().flatten().map(line).collect();
    if lines.is_empty() { "no conditions yet".to_owned() } else { lines.join("; ") }
}

fn io(what: &str) -> impl FnOnce(std::io::Error) -> TestkitError {
    let what = what.to_owned();
    move |source| TestkitError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_counts_only_for_the_present_generation() {
        let with = |status: &str, observed: i64| {
            let condition = json!({"type": "Ready", "status": status, "observedGeneration": observed});
            json!({"metadata": {"generation": 2}, "status": {"conditions": [condition]}})
        };
        assert!(is_ready(&with("True", 2)));
        assert!(!is_ready(&with("True", 1)));
        assert!(!is_ready(&with("False", 2)));
        assert!(!is_ready(&json!({"metadata": {"generation": 1}})));
    }
}
