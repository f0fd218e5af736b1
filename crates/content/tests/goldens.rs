//! Whole objects and what is written of them, byte for byte. A change here is a change in every user's repository.
//! `UPRIVER_BLESS=1` writes the files anew; read the diff.

use std::path::Path;

use upriver_content::{FileVerdict, SanitizeRules, judge, sanitize};

#[test]
fn objects_are_written_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    for name in ["configmap-script", "deployment", "numbers", "rbac-colon", "service-headless"] {
        let json = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("an input");
        let written = sanitize(&json, &SanitizeRules::default()).expect("an object");
        let yaml = written.to_yaml();
        let golden = folder.join(format!("{name}.yaml"));
        if std::env::var_os("UPRIVER_BLESS").is_some() {
            std::fs::write(&golden, &yaml).expect("a writable folder");
        }
        assert_eq!(yaml, std::fs::read_to_string(&golden).expect("a golden"), "{name}");
        assert_eq!(judge(yaml.as_bytes(), &written.identity), FileVerdict::Ours, "{name}");
    }
}
