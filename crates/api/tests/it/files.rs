//! Are the CRD files in the repository those that the types make?

use std::collections::BTreeSet;
use std::path::PathBuf;

use upriver_api::crds;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/base/crds")
}

#[test]
fn the_files_are_what_the_types_make() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap_or_default();
    for crd in crds::all() {
        let name = crds::file_name(&crd);
        assert!(read(&name) == crds::render(&crd), "{name} is stale, run: {}", crds::COMMAND);
    }
    assert!(
        read("kustomization.yaml") == crds::kustomization(),
        "kustomization.yaml is stale, run: {}",
        crds::COMMAND
    );
}

#[test]
fn no_file_is_left_of_a_kind_that_is_gone() {
    let entries = std::fs::read_dir(folder()).expect("the folder exists");
    let found: BTreeSet<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    let mut expected: BTreeSet<String> = crds::all().iter().map(crds::file_name).collect();
    expected.insert("kustomization.yaml".into());
    assert_eq!(found, expected);
}
