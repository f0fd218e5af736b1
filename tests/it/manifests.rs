//! The manifests that users install, on the real API server. All other tests run the operator with exactly their rights.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::Value;
use upriver_testkit::User;
use upriver_testkit::stack::{MANIFESTS, Stack};

use crate::support::stack;

/// Every file that a kustomization names, its folders included.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(folder.join("kustomization.yaml")).expect("a kustomization");
    let kustomization: Value = serde_saphyr::from_str(&text).expect("YAML");
    let named = kustomization["resources"].as_array().expect("resources");
    named
        .iter()
        .map(|name| folder.join(name.as_str().expect("a path")))
        .flat_map(|path| if path.is_dir() { files_of(&path) } else { vec![path] })
        .collect()
}

fn overlay(name: &str) -> PathBuf {
    Path::new(MANIFESTS).with_file_name("overlays").join(name)
}

/// The resources of an overlay that are not those of the base.
fn files_beside_the_base(folder: &Path) -> Vec<PathBuf> {
    files_of(folder)
        .into_iter()
        .filter(|file| !file.components().any(|part| part.as_os_str() == "base"))
        .collect()
}

/// Patches the Deployment of the base as an overlay does; the API server merges as kustomize would.
async fn patched(deployments: &Api<Deployment>, overlay: &Path) -> DeploymentSpec {
    let yaml = std::fs::read_to_string(overlay.join("deployment.yaml")).expect("an overlay");
    let patch: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let name = patch["metadata"]["name"].as_str().expect("a name");
    let patched = deployments.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
    patched.expect("the overlay's patch is accepted").spec.expect("a spec")
}

async fn apply(stack: &Stack, file: &Path) {
    let yaml = std::fs::read_to_string(file).expect("a manifest");
    if let Err(error) = stack.plane().apply_yaml(User::Admin, &yaml).await {
        panic!("{}: {error}", file.display());
    }
}

fn arguments(spec: DeploymentSpec) -> Vec<String> {
    let containers = spec.template.spec.expect("a pod").containers;
    let [only] = &containers[..] else { panic!("{containers:?}") };
    only.args.clone().unwrap_or_default()
}

#[tokio::test]
async fn every_manifest_is_named_and_accepted() {
    let stack = stack(0).await;
    let base = Path::new(MANIFESTS);
    let (single, ha) = (overlay("single"), overlay("ha"));
    let mut files = files_of(base);
    files.extend(files_beside_the_base(&ha));
    for file in &files {
        apply(&stack, file).await;
    }
    let named = |path: &Path| files.iter().any(|file| file == path);
    for folder in [base.to_owned(), base.join("rbac"), base.join("crds"), ha.clone()] {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let patch =
                path.starts_with(&ha) && path.file_name().is_some_and(|name| name == "deployment.yaml");
            let manifest =
                path.is_file() && path.file_name().is_some_and(|name| name != "kustomization.yaml");
            assert!(!manifest || patch || named(&path), "{} is in no kustomization", path.display());
        }
    }
    let deployments: Api<Deployment> = Api::namespaced(stack.client(User::Admin), "upriver-system");
    let spec = patched(&deployments, &single).await;
    assert_eq!(spec.replicas, Some(1));
    assert_eq!(spec.strategy.clone().and_then(|strategy| strategy.type_).as_deref(), Some("Recreate"));
    assert_eq!(arguments(spec), ["run", "--store=embedded"]);

    deployments.delete("upriver", &DeleteParams::default()).await.expect("deleted");
    apply(&stack, &base.join("deployment.yaml")).await;
    let spec = patched(&deployments, &ha).await;
    assert_eq!(spec.replicas, Some(3));
    let rolling = spec.strategy.clone().and_then(|strategy| strategy.rolling_update).expect("rolls");
    assert_eq!(
        rolling.max_unavailable,
        Some(IntOrString::Int(0)),
        "nobody leaves before a successor is there"
    );
    assert_eq!(arguments(spec), ["run", "--peer-cert-path=/etc/upriver/peer-tls"]);
}
