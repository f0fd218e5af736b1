use super::*;
use upriver_engine::Tick;
use upriver_engine::registry::{Answer, GroupVersion, Registry, Scan, TypeFacts};

fn served(group: &str, version: &str, resource: &str, preferred: bool, scope: TypeScope) -> TypeFacts {
    TypeFacts {
        gvr: Gvr::new(group, version, resource),
        kind: format!("Kind-{resource}").into(),
        scope: Some(scope),
        preferred,
        verbs: ["get", "list", "watch"].map(Box::from).to_vec(),
        subresources: Vec::new(),
    }
}

fn scan(types: Vec<TypeFacts>) -> Scan {
    let mut scan = Scan::default();
    for facts in types {
        let answer =
            scan.groups.entry(GroupVersion::of(&facts.gvr)).or_insert_with(|| Answer::Types(Vec::new()));
        if let Answer::Types(types) = answer {
            types.push(facts);
        }
    }
    scan
}

fn all_types() -> Vec<TypeFacts> {
    use TypeScope::{Cluster, Namespaced};
    let mut silent = served("example.net", "v1", "silent", true, Namespaced);
    silent.verbs.pop();
    vec![
        served("", "v1", "configmaps", true, Namespaced),
        served("", "v1", "pods", true, Namespaced),
        served("", "v1", "nodes", true, Cluster),
        served("example.net", "v1", "things", false, Namespaced),
        served("example.net", "v2", "things", true, Namespaced),
        served("example.net", "v1", "olds", false, Namespaced),
        served("example.net", "v0", "olds", false, Namespaced),
        served("a.net", "v1", "twins", true, Namespaced),
        served("b.net", "v1", "twins", true, Namespaced),
        served("configbutler.ai", "v1", "gittargets", true, Namespaced),
        served("configbutler.ai", "v1", "commitrequests", true, Namespaced),
        silent,
    ]
}

fn catalog_of(scans: impl IntoIterator<Item = Scan>) -> Catalog {
    let mut registry = Registry::new(upriver_content::policy::denied);
    for scan in scans {
        registry.observe(scan, Tick(0));
    }
    registry.catalog().clone()
}

struct Item {
    resources: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
}

fn item(resources: &[&str], groups: &[&str], versions: &[&str]) -> Item {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Item { resources: texts(resources), groups: texts(groups), versions: texts(versions) }
}

fn run(item: &Item, scope: RuleScope, types: &Catalog) -> Resolution {
    let selector = Selector {
        resources: &item.resources,
        operations: &[],
        api_groups: &item.groups,
        api_versions: &item.versions,
        scope,
    };
    resolve(&selector, types)
}

fn names_in(item: &Item, scope: RuleScope) -> Vec<String> {
    let resolution = run(item, scope, &catalog_of([scan(all_types())]));
    resolution.selected.iter().map(|selected| selected.gvr.to_string()).collect()
}

fn names(item: &Item) -> Vec<String> {
    names_in(item, RuleScope::Namespaced)
}

#[test]
fn a_name_selects_the_preferred_version_unless_versions_are_named() {
    assert_eq!(names(&item(&[" ConfigMaps "], &[""], &[])), ["v1/configmaps"]);
    assert_eq!(names(&item(&["things"], &[], &[])), ["example.net/v2/things"]);
    assert_eq!(names(&item(&["things"], &["*"], &["*"])), ["example.net/v2/things"]);
    assert_eq!(names(&item(&["things"], &[], &["v1"])), ["example.net/v1/things"]);
    assert_eq!(names(&item(&["things"], &[], &["v1", "v2"])), ["example.net/v2/things"], "one per resource");
    assert_eq!(
        names(&item(&["olds"], &[], &[])),
        ["example.net/v0/olds"],
        "the lowest, if none is preferred"
    );
}

#[test]
fn what_selects_nothing_says_why() {
    let types = catalog_of([scan(all_types())]);
    let reason = |item: Item| run(&item, RuleScope::Namespaced, &types).unmatched.join("; ");
    assert!(reason(item(&["deploymnets"], &[], &[])).contains("no such resource"));
    assert!(reason(item(&["twins"], &[], &[])).contains("a.net, b.net"));
    assert_eq!(names(&item(&["twins"], &["b.net"], &[])), ["b.net/v1/twins"]);
    assert_eq!(names(&item(&["twins"], &["*"], &[])), ["a.net/v1/twins", "b.net/v1/twins"]);
    assert!(reason(item(&["nodes"], &[], &[])).contains("cluster-scoped"));
    assert!(reason(item(&["pods"], &[], &[])).contains("never mirrored"));
    assert!(reason(item(&["silent"], &[], &[])).contains("missing-verb"));
    assert!(reason(item(&["configmaps"], &["apps"], &[])).contains("not served in that group"));
    assert!(reason(item(&["*"], &["nowhere.net"], &[])).contains("nothing that can be mirrored"));
    let cluster = run(&item(&["configmaps"], &[], &[]), RuleScope::Cluster, &types);
    assert!(cluster.unmatched.join("; ").contains("use a WatchRule"));
}

#[test]
fn a_wildcard_means_what_can_be_mirrored_in_its_scope_and_nothing_else_is_complained_about() {
    let wanted = [
        "v1/configmaps",
        "a.net/v1/twins",
        "b.net/v1/twins",
        "configbutler.ai/v1/gittargets",
        "example.net/v0/olds",
        "example.net/v2/things",
    ];
    assert_eq!(names(&item(&["*"], &[], &[])), wanted);
    assert_eq!(names(&item(&["*"], &["*"], &["*"])), wanted);
    assert_eq!(
        names(&item(&["*"], &["example.net"], &["v1"])),
        ["example.net/v1/olds", "example.net/v1/things"]
    );
    assert_eq!(names_in(&item(&["*"], &[], &[]), RuleScope::Cluster), ["v1/nodes"]);
    let resolution =
        run(&item(&["*", "things"], &[], &[]), RuleScope::Namespaced, &catalog_of([scan(all_types())]));
    assert_eq!(resolution.unmatched, Vec::<String>::new());
    let of = |resource: &str| {
        let found = resolution.selected.iter().filter(|found| &*found.gvr.resource == resource);
        found.map(|found| found.selection).collect::<Vec<_>>()
    };
    assert_eq!(of("twins"), [Selection::Wildcard, Selection::Wildcard]);
    assert_eq!(of("things"), [Selection::Wildcard, Selection::Named]);
    assert_eq!(names(&item(&["commitrequests"], &[], &[])), ["configbutler.ai/v1/commitrequests"]);
}

#[test]
fn a_type_that_is_away_for_a_moment_stays_selected_and_an_unread_group_is_named() {
    let without = |group: &str| {
        let types = all_types().into_iter().filter(|facts| &*facts.gvr.group != group).collect();
        scan(types)
    };
    let mut failing = without("example.net");
    for version in ["v1", "v2"] {
        let answer = Answer::Failed { why: "its backend is down".into(), stale: Vec::new() };
        failing.groups.insert(GroupVersion::new("example.net", version), answer);
    }
    let things = item(&["things"], &[], &[]);
    for second in [without("example.net"), failing.clone()] {
        let types = catalog_of([scan(all_types()), second]);
        let resolution = run(&things, RuleScope::Namespaced, &types);
        assert_eq!(resolution.selected.len(), 1, "{resolution:?}");
        assert_eq!(resolution.selected[0].gvr, Gvr::new("example.net", "v2", "things"));
    }
    let unseen = catalog_of([failing]);
    let said = run(&item(&["*"], &[], &[]), RuleScope::Namespaced, &unseen).unmatched.join("; ");
    assert!(said.contains("* in example.net/v2: its backend is down"), "{said}");
    let said = run(&item(&["things"], &["example.net"], &[]), RuleScope::Namespaced, &unseen).unmatched;
    assert!(said.iter().any(|text| text.contains("backend is down")), "{said:?}");
}
