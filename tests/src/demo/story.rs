//! What alice and bob do, and whether all of it reached Git.
//!
//! Every edit is one request that the API server accepted, made by the person it names. An edit is lost if, when time
//! is up, the document of its object is not as the object lives.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use upriver_model::Gvr;
use upriver_testkit::stack::{Difference, resources};
use upriver_testkit::{Mirror, Stack, User, try_eventually};

use super::{Failure, step};

/// Name of the Deployment, the Service and the ServiceAccount of the story.
pub const WEB: &str = "web";

/// Longer than any of it should take, on a slow machine too.
const IN_GIT_WITHIN: Duration = Duration::from_secs(120);

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Accepted edits.
    pub edits: usize,
    /// Those whose object is not in Git as it lives.
    pub lost: usize,
}

struct Story<'a> {
    stack: &'a Stack,
    mirror: &'a Mirror,
    /// File of the edited object, one for each edit.
    edited: Vec<String>,
}

/// Tells the story.
///
/// # Errors
/// If the API server refuses an edit.
pub async fn tell(stack: &Stack, mirror: &Mirror) -> Result<Told, Failure> {
    let mut story = Story { stack, mirror, edited: Vec::new() };
    println!();
    story.first_day().await?;
    story.await_git("waiting until the first objects are in Git").await?;
    story.second_day().await?;
    let differences = story.await_git("waiting until everything is in Git").await?;
    for difference in &differences {
        println!("  NOT AS IT LIVES: {difference}");
    }
    let wrong: BTreeSet<&str> = differences.iter().map(|difference| difference.path.as_str()).collect();
    let lost = story.edited.iter().filter(|path| wrong.contains(path.as_str())).count();
    Ok(Told { edits: story.edited.len(), lost })
}

impl Story<'_> {
    async fn first_day(&mut self) -> Result<(), Failure> {
        let config = json!({"data": {"greeting": "hello", "theme": "light"}});
        self.create(User::Alice, &resources::config_maps(), "ConfigMap", "app-config", config).await?;
        self.create(User::Alice, &resources::deployments(), "Deployment", WEB, deployment()).await?;
        let service = json!({"spec": {"clusterIP": "None", "selector": {"app": WEB},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
        self.create(User::Alice, &services(), "Service", WEB, service).await?;
        let account = json!({"automountServiceAccountToken": false});
        self.create(User::Alice, &Gvr::new("", "v1", "serviceaccounts"), "ServiceAccount", WEB, account)
            .await?;
        let flags = json!({"data": {"new-checkout": "off"}});
        self.create(User::Bob, &resources::config_maps(), "ConfigMap", "feature-flags", flags).await?;
        let scratch = json!({"data": {"note": "to be deleted"}});
        self.create(User::Bob, &resources::config_maps(), "ConfigMap", "scratch", scratch).await?;
        self.create(User::Bob, &cron_jobs(), "CronJob", "nightly-report", cron_job()).await?;
        let policy = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
        let policies = Gvr::new("networking.k8s.io", "v1", "networkpolicies");
        self.create(User::Bob, &policies, "NetworkPolicy", "deny-all", policy).await
    }

    async fn second_day(&mut self) -> Result<(), Failure> {
        let maps = resources::config_maps();
        let dark = json!({"data": {"theme": "dark"}});
        self.patch(User::Alice, &maps, "ConfigMap", "app-config", dark, "sets the theme to dark in").await?;
        self.scale(User::Bob, 5).await?;
        let image = json!({"spec": {"template": {"spec": {"containers": [
            {"name": WEB, "image": "registry.example/shop/web:2.1"}]}}}});
        self.patch(
            User::Alice,
            &resources::deployments(),
            "Deployment",
            WEB,
            image,
            "rolls out version 2.1 in",
        )
        .await?;
        let flags = json!({"data": {"new-checkout": "on", "beta-users": "alice\nbob\n"}});
        self.patch(User::Bob, &maps, "ConfigMap", "feature-flags", flags, "switches a flag in").await?;
        self.delete(User::Alice, &maps, "ConfigMap", "scratch").await?;
        let label = json!({"metadata": {"labels": {"team": "storefront"}}});
        self.patch(User::Bob, &services(), "Service", WEB, label, "labels").await?;
        let banner =
            json!({"data": {"greeting": null, "banner.txt": "Spring sale!\n  - all boots: 20% off\n"}});
        self.patch(User::Alice, &maps, "ConfigMap", "app-config", banner, "writes a banner in").await?;
        self.delete(User::Bob, &cron_jobs(), "CronJob", "nightly-report").await
    }

    async fn create(
        &mut self,
        user: User,
        gvr: &Gvr,
        kind: &str,
        name: &str,
        mut body: Value,
    ) -> Result<(), Failure> {
        body["apiVersion"] = json!(gvr.api_version());
        body["kind"] = json!(kind);
        body["metadata"] = json!({"name": name, "labels": {"app": WEB}});
        let object: DynamicObject = serde_json::from_value(body)?;
        self.api(user, gvr, kind).create(&PostParams::default(), &object).await?;
        self.note(user, "creates", gvr, kind, name);
        Ok(())
    }

    async fn patch(
        &mut self,
        user: User,
        gvr: &Gvr,
        kind: &str,
        name: &str,
        change: Value,
        verb: &str,
    ) -> Result<(), Failure> {
        let patch = Patch::Strategic(&change);
        self.api(user, gvr, kind).patch(name, &PatchParams::default(), &patch).await?;
        self.note(user, verb, gvr, kind, name);
        Ok(())
    }

    async fn scale(&mut self, user: User, replicas: i32) -> Result<(), Failure> {
        let api = Api::<Deployment>::namespaced(self.stack.client(user), &self.mirror.spec.namespace);
        let change = json!({"spec": {"replicas": replicas}});
        api.patch_scale(WEB, &PatchParams::default(), &Patch::Merge(&change)).await?;
        let verb = format!("scales to {replicas}");
        self.note(user, &verb, &resources::deployments(), "Deployment", WEB);
        Ok(())
    }

    async fn delete(&mut self, user: User, gvr: &Gvr, kind: &str, name: &str) -> Result<(), Failure> {
        self.api(user, gvr, kind).delete(name, &DeleteParams::background()).await?;
        self.note(user, "deletes", gvr, kind, name);
        Ok(())
    }

    fn api(&self, user: User, gvr: &Gvr, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(&gvr.group, &gvr.version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &gvr.resource);
        Api::namespaced_with(self.stack.client(user), &self.mirror.spec.namespace, &resource)
    }

    fn note(&mut self, user: User, verb: &str, gvr: &Gvr, kind: &str, name: &str) {
        println!("  {:<6} {verb} {kind} {name}", user.name());
        self.edited.push(self.mirror.file_of(gvr, name));
    }

    /// Waits until nothing differs, or time is up; says what still differs then.
    async fn await_git(&self, what: &str) -> Result<Vec<Difference>, Failure> {
        step(what, async {
            let waited = try_eventually(what, IN_GIT_WITHIN, async || {
                let left = self.stack.differences(self.mirror).await;
                if left.is_empty() { Ok(()) } else { Err(left.len()) }
            });
            Ok(match waited.await {
                Ok(()) => Vec::new(),
                Err(_) => self.stack.differences(self.mirror).await,
            })
        })
        .await
    }
}

fn services() -> Gvr {
    Gvr::new("", "v1", "services")
}

fn cron_jobs() -> Gvr {
    Gvr::new("batch", "v1", "cronjobs")
}

fn deployment() -> Value {
    json!({"spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": WEB}},
        "template": {
            "metadata": {"labels": {"app": WEB}},
            "spec": {
                "serviceAccountName": WEB,
                "containers": [{
                    "name": WEB,
                    "image": "registry.example/shop/web:2.0",
                    "ports": [{"containerPort": 8080}],
                    "envFrom": [{"configMapRef": {"name": "app-config"}}],
                }],
            },
        },
    }})
}

fn cron_job() -> Value {
    json!({"spec": {
        "schedule": "15 3 * * *",
        "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "report", "image": "registry.example/shop/report:1.4"}],
        }}}},
    }})
}
