//! The Chaos Mesh objects select what the manifests that users install deploy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("readable");
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifests() -> BTreeMap<PathBuf, Vec<Value>> {
    let folder = std::fs::read_dir(Path::new(ROOT).join("kubernetes")).expect("the folder is there");
    let files = folder.flatten().map(|entry| entry.path());
    files.map(|path| (path.clone(), documents(&path))).collect()
}

/// Every value of this key, at any depth.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key));
            fields.values().for_each(|field| all(field, key, found));
        }
        Value::Array(items) => items.iter().for_each(|item| all(item, key, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn selectors_name_the_pods_of_the_shipped_deployment_or_of_a_redis() {
    let deployment = &documents(&Path::new(ROOT).join("../deploy/kustomize/base/deployment.yaml"))[0];
    let namespace = &deployment["metadata"]["namespace"];
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0]["name"];
    let redis = serde_json::json!({"app.kubernetes.io/name": "redis"});
    let mut ours = 0;
    for (path, objects) in manifests() {
        for object in &objects {
            assert_eq!(object["metadata"]["namespace"], *namespace, "{}", path.display());
            let (mut selectors, mut containers) = (Vec::new(), Vec::new());
            all(object, "selector", &mut selectors);
            all(object, "containerNames", &mut containers);
            assert!(!selectors.is_empty(), "{} selects nothing", path.display());
            for selector in selectors {
                if selector["namespaces"][0] == *namespace {
                    assert_eq!(selector["labelSelectors"], *labels, "{}", path.display());
                    ours += 1;
                } else {
                    assert_eq!(selector["labelSelectors"], redis, "{}", path.display());
                }
            }
            for names in containers {
                assert_eq!(names[0], *container, "{}", path.display());
            }
        }
    }
    assert!(ours > 10, "{ours}");
}

#[test]
fn every_step_of_the_workflow_is_defined() {
    let workflow = &documents(&Path::new(ROOT).join("kubernetes/workflow.yaml"))[0];
    let templates = workflow["spec"]["templates"].as_array().expect("templates");
    let defined: Vec<&Value> = templates.iter().map(|template| &template["name"]).collect();
    let used = templates.iter().flat_map(|template| template["children"].as_array().into_iter().flatten());
    for step in used.chain([&workflow["spec"]["entry"]]) {
        assert!(defined.contains(&step), "{step}");
    }
}

#[test]
fn the_readme_names_every_manifest() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("readable");
    for path in manifests().into_keys() {
        let name = path.file_name().expect("a file").to_string_lossy();
        assert!(readme.contains(&*name), "{name}");
    }
}
