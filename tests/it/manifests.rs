//! The manifests that users install, on the real API server. All other tests run the operator with exactly their rights.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::Value;
use upriver_testkit::User;
use upriver_testkit::stack::MANIFESTS;

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

#[tokio::test]
async fn every_manifest_is_named_and_accepted() {
    let stack = stack(0).await;
    let base = Path::new(MANIFESTS);
    let files = files_of(base);
    for file in &files {
        let yaml = std::fs::read_to_string(file).expect("a manifest");
        if let Err(error) = stack.plane().apply_yaml(User::Admin, &yaml).await {
            panic!("{}: {error}", file.display());
        }
    }
    let named = |path: &Path| files.iter().any(|file| file == path);
    for folder in [base.to_owned(), base.join("rbac"), base.join("crds")] {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let manifest =
                path.is_file() && path.file_name().is_some_and(|name| name != "kustomization.yaml");
            assert!(!manifest || named(&path), "{} is in no kustomization", path.display());
        }
    }
    // The patch of the overlay fits what it patches.
    let single = base.join("../overlays/single/deployment.yaml");
    let yaml = std::fs::read_to_string(single).expect("an overlay");
    let patch: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let deployments: Api<Deployment> = Api::namespaced(stack.client(User::Admin), "upriver-system");
    let name = patch["metadata"]["name"].as_str().expect("a name");
    let patched = deployments.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
    let spec = patched.expect("the overlay's patch is accepted").spec.expect("a spec");
    assert_eq!(spec.replicas, Some(1));
    assert_eq!(spec.strategy.and_then(|strategy| strategy.type_).as_deref(), Some("Recreate"));
    let containers = spec.template.spec.expect("a pod").containers;
    let [only] = &containers[..] else { panic!("{containers:?}") };
    assert_eq!(only.args.as_deref(), Some(&["run".to_owned(), "--store=embedded".to_owned()][..]));
}
