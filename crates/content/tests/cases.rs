//! The recorded cases, read in place. Each test is named after the rule, its case number stands in the text.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{shared, yaml_files};
use serde_json::Value;
use upriver_content::placement::{canonical_path, decode_segment};
use upriver_content::sanitize::sanitize_value;
use upriver_content::yaml::{read_document, to_yaml};
use upriver_content::{
    DocumentIdentity, FileVerdict, PathError, Placement, PlacementError, PlacementQuery, SanitizeRules,
    Sanitized, Sensitivity, TargetPath, equal, judge, policy,
};
use upriver_model::{Gvr, ObjectKey};

fn documents(folder: &Path, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(file)).expect("a case's input");
    text.split("\n---\n").map(|text| read_document(text).expect("a document")).collect()
}

fn clean(object: &Value) -> Sanitized {
    sanitize_value(object, &SanitizeRules::default()).expect("an object")
}

#[test]
fn con_03_empty_objects_survive_exactly() {
    let Some(inputs) = shared("cases/inputs") else { return };
    for object in documents(&inputs.join("CON-03"), "objects.yaml") {
        let cleaned = clean(&object);
        assert_eq!(cleaned.document, object, "nothing in these objects is the server's");
        assert_eq!(read_document(&cleaned.to_yaml()).as_ref(), Ok(&object));
    }
}

#[test]
fn con_05_what_a_controller_fills_in_makes_no_change() {
    let Some(inputs) = shared("cases/inputs") else { return };
    let objects = documents(&inputs.join("CON-05"), "objects.yaml");
    let [umbrella, part, hook] = &objects[..] else { panic!("three objects, not {}", objects.len()) };
    let mut filled = umbrella.clone();
    filled["rules"] = part["rules"].clone();
    assert_eq!(clean(&filled).to_yaml(), clean(umbrella).to_yaml());
    assert!(clean(umbrella).document.get("aggregationRule").is_some());
    assert_eq!(clean(part).document, *part, "a role without aggregation keeps its rules");
    let before = clean(hook).to_yaml();
    assert!(!before.contains("caBundle") && before.contains("url: https://127.0.0.1:9/none"), "{before}");
    for round in 1..=10 {
        let mut rotated = hook.clone();
        rotated["webhooks"][0]["clientConfig"]["caBundle"] = format!("round-{round}").into();
        assert_eq!(clean(&rotated).to_yaml(), before);
    }
}

#[test]
fn con_06_heartbeats_make_no_change() {
    let write = |second: u32, manager: &str| {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","data":{{"a":"b"}},"metadata":{{"name":"old-lock",
            "namespace":"rc","resourceVersion":"{second}","managedFields":[{{"manager":"{manager}"}}],"annotations":{{
            "control-plane.alpha.kubernetes.io/leader":"{{\"renewTime\":\"2026-01-01T00:00:{second:02}Z\"}}"}}}}}}"#
        );
        upriver_content::sanitize(&json, &SanitizeRules::default()).expect("an object").to_yaml()
    };
    assert!((1..=40).all(|second| write(second, &format!("fm{}", second % 3)) == write(0, "kubectl")));
    let excluded = [
        ("coordination.k8s.io", "leases"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("", "endpoints"),
        ("discovery.k8s.io", "endpointslices"),
    ];
    assert!(excluded.iter().all(|(group, resource)| policy::denied(group, resource)));
}

#[test]
fn yml_01_and_04_every_string_stays_the_same_string() {
    let Some(inputs) = shared("cases/inputs") else { return };
    for case in ["YML-01", "YML-04"] {
        let json = std::fs::read_to_string(inputs.join(case).join("object.json")).expect("a case's input");
        let object: Value = serde_json::from_str(&json).expect("JSON");
        let cleaned = clean(&object);
        let yaml = cleaned.to_yaml();
        assert_eq!(read_document(&yaml).as_ref(), Ok(&object), "{case}\n{yaml}");
        assert_eq!(judge(yaml.as_bytes(), &cleaned.identity), FileVerdict::Ours);
        if case == "YML-01" {
            let bare =
                yaml.lines().filter(|line| line.starts_with("  k") && !line.ends_with(['"', '\''])).count();
            assert_eq!(bare, 0, "{yaml}");
        } else {
            assert!(yaml.contains("emoji: deploy 🚀 👨\u{200d}👩\u{200d}👧 café e\u{301}\n"), "{yaml}");
            assert!(yaml.contains("tab-indent: |\n    root:\n    \tchild\n"), "{yaml}");
        }
    }
}

#[test]
fn yml_04_one_changed_line_changes_one_line() {
    let write = |line: &str| {
        let text: String =
            (0..60).map(|n| if n == 30 { format!("{line}\n") } else { format!("line {n}  \n") }).collect();
        to_yaml(&serde_json::json!({"data": {"conf": text}}))
    };
    let (before, after) = (write("old"), write("new value"));
    assert_eq!(before.lines().zip(after.lines()).filter(|(before, after)| before != after).count(), 1);
    assert_eq!(before.lines().count(), after.lines().count());
}

#[test]
fn git_12_names_become_portable_reversible_file_names() {
    let Some(inputs) = shared("cases/inputs") else { return };
    let mut seen = BTreeMap::new();
    for object in documents(&inputs.join("GIT-12"), "objects.yaml") {
        let identity = DocumentIdentity::of(&object).expect("complete");
        let gvr = Gvr::new(&identity.group, "v1", &format!("{}s", identity.kind.to_lowercase()));
        let key = ObjectKey::new(&identity.namespace, &identity.name);
        let query =
            PlacementQuery { gvr: &gvr, kind: &identity.kind, key: &key, sensitivity: Sensitivity::Plain };
        let path = canonical_path(&TargetPath::root(), query);
        let file = path.as_str().rsplit('/').next().expect("a file name").to_owned();
        let stem = file.strip_suffix(".yaml").expect("a YAML file");
        assert_eq!(decode_segment(stem).as_deref(), Some(&*identity.name));
        assert!(!file.contains(['\\', ':', '*', '?', '"', '<', '>', '|']) && file.is_ascii(), "{file}");
        seen.insert(file, identity.name);
    }
    let files: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(
        files,
        [
            "%61ux.v1.yaml",
            "%63on.yaml",
            "-rf.yaml",
            "ends-with-dot%2E.yaml",
            "system%3Arc%3Aauditor.yaml",
            "weird name with spaces, %2A%3F%3C%3E%7C%22 and ~.yaml",
        ]
    );
}

#[test]
fn git_15_paths_and_templates_that_lead_out_are_refused() {
    let Some(inputs) = shared("cases/inputs") else { return };
    let text = std::fs::read_to_string(inputs.join("GIT-15/targets.yaml")).expect("a case's input");
    let targets: Vec<Value> =
        text.split("\n---\n").map(|text| read_document(text).expect("a document")).collect();
    let path = |index: usize| {
        TargetPath::parse(targets[index]["spec"]["path"].as_str().expect("a path"))
            .map(|path| path.to_string())
    };
    assert!(matches!(path(0), Err(PathError::Parent { .. })), "{:?}", path(0));
    assert!(matches!(path(1), Err(PathError::GitFolder { .. })), "{:?}", path(1));
    assert!(matches!(path(2), Err(PathError::GitFolder { .. })), "{:?}", path(2));
    let default = targets[3]["spec"]["placement"]["default"].as_str();
    let refused = Placement::compile(&BTreeMap::new(), default);
    assert!(matches!(refused, Err(PlacementError::Path(PathError::Parent { .. }))), "{refused:?}");
}

#[test]
fn files_people_wrote_are_read_and_written_without_loss() {
    let Some(corpus) = shared("corpus") else { return };
    let mut files = Vec::new();
    yaml_files(&corpus, &mut files);
    let (mut objects, mut ours) = (0, 0);
    for path in &files {
        let text = std::fs::read_to_string(path).expect("text");
        for text in text.split("\n---\n") {
            let Ok(document) = read_document(text) else { continue };
            let written = to_yaml(&document);
            let read = read_document(&written).expect("what we write is YAML");
            assert!(equal(&read, &document), "{}\n{written}", path.display());
            let Some(identity) = DocumentIdentity::of(&document) else { continue };
            objects += 1;
            ours += usize::from(judge(text.as_bytes(), &identity) == FileVerdict::Ours);
            let cleaned = clean(&document);
            assert_eq!(
                judge(cleaned.to_yaml().as_bytes(), &identity) == FileVerdict::Ours,
                document.get("sops").is_none()
            );
        }
    }
    println!("{} files, {objects} objects, {ours} of them in our spelling", files.len());
    assert!(objects > 100, "the corpus has hundreds of objects, found {objects}");
}
