//! Every reason that the operator can show is explained in docs/reasons.md.

use std::collections::BTreeSet;
use std::path::Path;

use upriver_model::{FailureClass, Outcome};

fn reasons_in(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("the sources are here").flatten() {
        let path = entry.path();
        if path.is_dir() {
            reasons_in(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        for rest in text.split("Reason::").skip(1) {
            let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
            if name.starts_with(|first: char| first.is_ascii_uppercase()) {
                found.insert(name);
            }
        }
    }
}

#[test]
fn every_reason_has_a_line_that_says_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/reasons.md")).expect("the page exists");
    let mut shown = BTreeSet::new();
    reasons_in(&root.join("src/control"), &mut shown);
    assert!(shown.len() > 20, "the scan finds reasons: {shown:?}");
    shown.extend(FailureClass::ALL.map(|class| class.outcome().as_str().to_owned()));
    shown.extend(Outcome::ALL.map(|outcome| outcome.as_str().to_owned()));
    let missing: Vec<&String> =
        shown.iter().filter(|reason| !page.contains(&format!("`{reason}`"))).collect();
    assert_eq!(missing, Vec::<&String>::new(), "add them to docs/reasons.md");
}
