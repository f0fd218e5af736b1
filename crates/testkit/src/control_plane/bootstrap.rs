//! What does a fresh control plane need before a test can use it? Rights for its users, namespaces, CRDs.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::gvk::GroupVersionKind;
use serde_json::{Value, json};

use super::ControlPlane;
use super::access::{EDITORS, User};
use crate::TestkitError;
use crate::wait::try_eventually;

const EDIT_ROLE: &str = "upriver-test-editors";
const OPERATOR_BINDING: &str = "upriver-test-operator";

/// Lets the people edit everything everywhere, and the operator do anything.
pub(super) async fn grant_access(plane: &ControlPlane) -> Result<(), TestkitError> {
    let admin = plane.try_client(User::Admin)?;
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": EDIT_ROLE}, "rules": everything});
    let apply = PatchParams::apply("upriver-testkit").force();
    let roles = Api::<ClusterRole>::all(admin.clone());
    let refused = |what: &str| kube_error(format!("grant rights to {what}"));
    roles.patch(EDIT_ROLE, &apply, &Patch::Apply(&role)).await.map_err(refused("editors"))?;
    let bindings = Api::<ClusterRoleBinding>::all(admin);
    let editors = binding(EDIT_ROLE, EDIT_ROLE, &json!({"kind": "Group", "name": EDITORS}));
    bindings.patch(EDIT_ROLE, &apply, &Patch::Apply(&editors)).await.map_err(refused("editors"))?;
    let subject = json!({"kind": "User", "name": User::Upriver.name()});
    let operator = binding(OPERATOR_BINDING, "cluster-admin", &subject);
    bindings
        .patch(OPERATOR_BINDING, &apply, &Patch::Apply(&operator))
        .await
        .map_err(refused("the operator"))?;
    Ok(())
}

fn binding(name: &str, role: &str, subject: &Value) -> Value {
    let mut subject = subject.clone();
    subject["apiGroup"] = json!("rbac.authorization.k8s.io");
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

impl ControlPlane {
    /// Makes a namespace; one that exists is fine.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn create_namespace(&self, name: &str) {
        let namespaces = Api::<Namespace>::all(self.client(User::Admin));
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await
        {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("namespace {name} was refused: {error}"),
        }
    }

    /// Applies every `*.yaml` in a folder except `kustomization.yaml`, and waits until the CRDs among it are served.
    ///
    /// # Errors
    /// If a file is unreadable or an object is refused.
    pub async fn apply_crds(&self, dir: &Path) -> Result<(), TestkitError> {
        let unreadable = |source| TestkitError::Io { what: format!("read {}", dir.display()), source };
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .map_err(unreadable)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml"))
            .filter(|path| path.file_name().is_none_or(|name| name != "kustomization.yaml"))
            .collect();
        files.sort();
        for file in files {
            let yaml = std::fs::read_to_string(&file).map_err(unreadable)?;
            self.apply_yaml(User::Admin, &yaml).await?;
        }
        Ok(())
    }

    /// Applies the objects of a YAML text (server-side apply) as `user`, and waits for CRDs to be served. Objects
    /// without a namespace that need one land in `default`.
    ///
    /// # Errors
    /// If the text is unusable or an object is refused.
    pub async fn apply_yaml(&self, user: User, yaml: &str) -> Result<(), TestkitError> {
        let unusable = |why: String| TestkitError::Yaml { why };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| unusable(error.to_string()))?;
        let client = self.try_client(user)?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let object: DynamicObject =
                serde_json::from_value(document).map_err(|error| unusable(error.to_string()))?;
            let types =
                object.types.as_ref().ok_or_else(|| unusable("apiVersion or kind is missing".into()))?;
            let gvk = GroupVersionKind::try_from(types).map_err(|error| unusable(error.to_string()))?;
            let name =
                object.metadata.name.as_deref().ok_or_else(|| unusable("metadata.name is missing".into()))?;
            let what = format!("apply {} {name}", gvk.kind);
            let (resource, capabilities) =
                kube::discovery::pinned_kind(&client, &gvk).await.map_err(kube_error(what.clone()))?;
            let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
                (kube::discovery::Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
                (kube::discovery::Scope::Namespaced, namespace) => {
                    let namespace = namespace.as_deref().unwrap_or("default");
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
            };
            let params = PatchParams::apply(user.name()).force();
            api.patch(name, &params, &Patch::Apply(&object)).await.map_err(kube_error(what))?;
            if gvk.kind == "CustomResourceDefinition" {
                self.await_established(name).await?;
            }
        }
        Ok(())
    }

    /// Waits until a CRD is established and its objects can be listed: for a moment after Established the server still
    /// answers 429, "storage is (re)initializing".
    ///
    /// # Errors
    /// With the last sight if it is not within 30 seconds.
    pub async fn await_established(&self, name: &str) -> Result<(), TestkitError> {
        let client = self.try_client(User::Admin)?;
        let crds = Api::<CustomResourceDefinition>::all(client.clone());
        let what = format!("CRD {name} to be served");
        let waited = try_eventually(&what, Duration::from_secs(30), async || {
            let crd = crds.get(name).await.map_err(|error| error.to_string())?;
            let conditions =
                crd.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            if !conditions.iter().any(|c| c.type_ == "Established" && c.status == "True") {
                return Err(format!("{conditions:?}"));
            }
            for version in crd.spec.versions.iter().filter(|version| version.served) {
                let gvk = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
                let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
                let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
                objects.list(&ListParams::default().limit(1)).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        waited.await.map_err(|late| TestkitError::NotReady {
            server: "kube-apiserver",
            why: late.to_string(),
            log: String::new(),
        })
    }
}

fn kube_error(what: String) -> impl FnOnce(kube::Error) -> TestkitError {
    move |source| TestkitError::Kube { what, source: Box::new(source) }
}
