//! What does a fresh control plane need before a test can use it? Rights for its users, namespaces, CRDs.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
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

    /// Takes the operator's right to do anything away and gives it what the manifests in `base` give its service account,
    /// so that whatever is tested afterwards also tests those.
    ///
    /// # Errors
    /// If a manifest is unreadable or refused.
    pub async fn grant_shipped_rights(&self, base: &Path) -> Result<(), TestkitError> {
        let read = |file: &str| {
            let path = base.join(file);
            let what = format!("read {}", path.display());
            std::fs::read_to_string(path).map_err(|source| TestkitError::Io { what, source })
        };
        for file in ["rbac/manager.yaml", "rbac/leases.yaml", "rbac/reader.yaml", "flow-schema.yaml"] {
            self.apply_yaml(User::Admin, &read(file)?).await?;
        }
        // A pod logs in as its service account; the operator of a test does so as a user.
        let account = "- kind: ServiceAccount\n  name: upriver\n  namespace: upriver-system\n";
        let user = format!(
            "- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {}\n",
            User::Upriver.name()
        );
        self.apply_yaml(User::Admin, &read("rbac/bindings.yaml")?.replace(account, &user)).await?;
        self.unbind(OPERATOR_BINDING).await
    }

    /// Takes all rights of the operator away; a test then gives it others. Again is fine.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn take_operator_rights(&self) -> Result<(), TestkitError> {
        for name in [OPERATOR_BINDING, "upriver-manager", "upriver-reader"] {
            self.unbind(name).await?;
        }
        let admin = self.try_client(User::Admin)?;
        let bindings = Api::<RoleBinding>::namespaced(admin, crate::operator::NAMESPACE);
        gone(bindings.delete("upriver-leases", &DeleteParams::default()).await.map(drop))
    }

    async fn unbind(&self, name: &str) -> Result<(), TestkitError> {
        let bindings = Api::<ClusterRoleBinding>::all(self.try_client(User::Admin)?);
        gone(bindings.delete(name, &DeleteParams::default()).await.map(drop))
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

/// What is not there need not be taken away.
fn gone(result: Result<(), kube::Error>) -> Result<(), TestkitError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map_err(kube_error("take the operator's rights".to_owned())),
    }
}

fn kube_error(what: String) -> impl FnOnce(kube::Error) -> TestkitError {
    move |source| TestkitError::Kube { what, source: Box::new(source) }
}
