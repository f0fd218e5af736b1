use proptest::prelude::*;

use super::*;

fn path(group: &str, resource: &str, namespace: &str, name: &str) -> String {
    let gvr = Gvr::new(group, "v1", resource);
    let key = ObjectKey::new(namespace, name);
    let query = PlacementQuery { gvr: &gvr, kind: "K", key: &key, sensitivity: Sensitivity::Plain };
    canonical_path(&TargetPath::parse("live").expect("usable"), query).to_string()
}

#[test]
fn canonical_paths_are_these() {
    let long = "a".repeat(253);
    let table = [
        (path("", "configmaps", "shop", "web"), "live/shop/configmaps/web.yaml"),
        (path("apps", "deployments", "shop", "web"), "live/shop/apps/deployments/web.yaml"),
        (
            path("rbac.authorization.k8s.io", "clusterroles", "", "system:rc:auditor"),
            "live/_cluster/rbac.authorization.k8s.io/clusterroles/system%3Arc%3Aauditor.yaml",
        ),
        (path("", "configmaps", "rc", "con"), "live/rc/configmaps/%63on.yaml"),
        (path("", "configmaps", "con", "aux.v1"), "live/%63on/configmaps/%61ux.v1.yaml"),
        (path("x", "y", "", "ends-with-dot."), "live/_cluster/x/y/ends-with-dot%2E.yaml"),
        (path("x", "y", "", "-rf"), "live/_cluster/x/y/-rf.yaml"),
        (
            path("x", "y", "", "weird name with spaces, *?<>|\" and ~"),
            "live/_cluster/x/y/weird name with spaces, %2A%3F%3C%3E%7C%22 and ~.yaml",
        ),
        (path("x", "y", "", "../../etc/passwd"), "live/_cluster/x/y/..%2F..%2Fetc%2Fpasswd.yaml"),
        (path("x", "y", "", ".git"), "live/_cluster/x/y/%2Egit.yaml"),
        (path("x", "y", "", "é\n%"), "live/_cluster/x/y/%C3%A9%0A%25.yaml"),
        (
            path("", "configmaps", "shop", &long),
            &format!("live/shop/configmaps/{}%~32859a3ab65ac52932e16fad60606536.yaml", "a".repeat(216)),
        ),
    ];
    for (found, expected) in &table {
        assert_eq!(found, expected);
        assert!(found.split('/').all(|segment| segment.len() <= 255), "{found}");
    }
}

#[test]
fn sensitive_types_have_a_suffix_of_their_own() {
    let (gvr, key) = (Gvr::new("", "v1", "secrets"), ObjectKey::new("shop", "db"));
    let query = PlacementQuery { gvr: &gvr, kind: "Secret", key: &key, sensitivity: Sensitivity::Sensitive };
    assert_eq!(canonical_path(&TargetPath::root(), query).as_str(), "shop/secrets/db.sops.yaml");
}

#[test]
fn unusable_target_paths_are_refused_with_their_reason() {
    let reason = |path: &str| TargetPath::parse(path).expect_err(path);
    let p = |path: &str| path.to_owned();
    assert_eq!(reason("/etc"), PathError::Absolute { path: p("/etc") });
    assert_eq!(reason("a\\b"), PathError::Backslash { path: p("a\\b") });
    assert_eq!(reason("live/../../etc"), PathError::Parent { path: p("live/../../etc") });
    for path in [
        ".git/hooks",
        "a/.GIT/modules/x",
        ".git",
        "a/.git.",
        "a/.Git /x",
        "git~1/x",
        "a/.git::$INDEX",
        ".g\u{200c}it/x",
    ] {
        assert!(matches!(reason(path), PathError::GitFolder { .. }), "{path}");
    }
    assert!(matches!(reason("a\nb"), PathError::Control { .. }));
    assert!(matches!(reason(&"a".repeat(256)), PathError::TooLong { .. }));
}

#[test]
fn usable_target_paths_are_cleaned() {
    for (path, cleaned) in [
        ("", ""),
        (".", ""),
        ("./", ""),
        (" live ", "live"),
        ("a//b/./c/", "a/b/c"),
        (".github/x", ".github/x"),
        ("a.git/b", "a.git/b"),
    ] {
        assert_eq!(TargetPath::parse(path).expect(path).as_str(), cleaned);
    }
    assert_eq!(TargetPath::root().to_string(), ".");
}

#[test]
fn paths_overlap_on_segment_boundaries_only() {
    let table = [
        ("a", "a", true),
        ("a", "a/b", true),
        ("a/b", "a", true),
        (".", "anything", true),
        ("a", "ab", false),
        ("a/b", "a/c", false),
        ("a/b", "a/bc", false),
    ];
    for (left, right, expected) in table {
        let (one, two) = (TargetPath::parse(left).expect(left), TargetPath::parse(right).expect(right));
        assert_eq!((one.overlaps(&two), two.overlaps(&one)), (expected, expected), "{left} {right}");
    }
}

fn compile(by_type: &[(&str, &str)], default: Option<&str>) -> Result<Placement, PlacementError> {
    let by_type = by_type.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    Placement::compile(&by_type, default)
}

#[test]
fn templates_are_checked_before_any_object_is_seen() {
    let default = |text: &str| compile(&[("v1/secrets", "{namespace}/{name}{sensitiveSuffix}")], Some(text));
    let wrong = |text: &str| default(text).expect_err(text);
    assert_eq!(wrong(" "), PlacementError::Empty);
    assert!(matches!(wrong("/x.yaml"), PlacementError::Path(PathError::Absolute { .. })));
    assert!(matches!(wrong("a\\x.yaml"), PlacementError::Path(PathError::Backslash { .. })));
    assert!(matches!(
        wrong("{namespace}/../../../{name}.yaml"),
        PlacementError::Path(PathError::Parent { .. })
    ));
    assert!(matches!(wrong(".git/{name}.yaml"), PlacementError::Path(PathError::GitFolder { .. })));
    assert!(matches!(wrong("{name}.json"), PlacementError::Suffix { .. }));
    assert!(matches!(wrong("{name.yaml"), PlacementError::Brace { .. }));
    assert!(matches!(wrong("name}.yaml"), PlacementError::Brace { .. }));
    assert_eq!(
        wrong("{uid}.yaml"),
        PlacementError::UnknownVariable { template: "{uid}.yaml".into(), variable: "uid".into() }
    );
    for key in ["secrets", "a/b/c/d", "/v1/x", "v1/", " v1/x", "v1/ x"] {
        let expected = PlacementError::TypeKey { key: key.to_owned() };
        assert_eq!(compile(&[(key, "{name}.yaml")], None), Err(expected));
    }
}

#[test]
fn secrets_are_never_bundled() {
    let bundle = "{namespaceOrCluster}/all.yaml";
    assert!(matches!(
        compile(&[("v1/secrets", "{name}.yaml")], None),
        Err(PlacementError::SecretsNotUnique { .. })
    ));
    assert!(matches!(compile(&[], Some(bundle)), Err(PlacementError::DefaultNeedsSecrets { .. })));
    let entry = ("v1/secrets", "{namespaceOrCluster}/{name}{sensitiveSuffix}");
    assert!(compile(&[entry], Some(bundle)).expect("complete").may_bundle());
    let complete = "{groupPath}/{version}/{resource}/{namespace}/{name}.yaml";
    assert!(!compile(&[], Some(complete)).expect("complete").may_bundle());
}

#[test]
fn templates_resolve_in_the_order_of_the_ladder() {
    let placement = compile(
        &[
            ("apps/v1/deployments", "apps/{kind}-{name}.yml"),
            ("v1/secrets", "{namespace}/{name}{sensitiveSuffix}"),
        ],
        Some("{scope}/{namespace}/{group}/{apiVersion}/{resource}/{name}.yaml"),
    )
    .expect("usable");
    let target = TargetPath::parse("live").expect("usable");
    let path = |group: &str, resource: &str, kind: &str, namespace: &str, sensitivity| {
        let (gvr, key) = (Gvr::new(group, "v1", resource), ObjectKey::new(namespace, "a:b"));
        placement
            .path_for(&target, PlacementQuery { gvr: &gvr, kind, key: &key, sensitivity })
            .map(|path| path.to_string())
    };
    let plain = Sensitivity::Plain;
    assert_eq!(
        path("apps", "deployments", "Deployment", "x", plain).expect("ok"),
        "live/apps/Deployment-a%3Ab.yml"
    );
    assert_eq!(
        path("", "secrets", "Secret", "x", Sensitivity::Sensitive).expect("ok"),
        "live/x/a%3Ab.sops.yaml"
    );
    assert_eq!(path("", "nodes", "Node", "", plain).expect("ok"), "live/cluster/v1/nodes/a%3Ab.yaml");
    assert_eq!(path("g", "r", "R", "n", plain).expect("ok"), "live/namespaced/n/g/g%2Fv1/r/a%3Ab.yaml");
    let wrong = path("g", "r", "R", "n", Sensitivity::Sensitive).expect_err("plain suffix");
    assert!(matches!(wrong, PathError::WrongSuffix { suffix: ".sops.yaml", .. }), "{wrong}");
}

#[test]
fn template_without_a_file_name_for_an_object_does_not_fall_through() {
    let placement = compile(&[("v1/nodes", "nodes/{namespace}.yaml")], None).expect("usable");
    let (gvr, key) = (Gvr::new("", "v1", "nodes"), ObjectKey::new("", "n"));
    let query = PlacementQuery { gvr: &gvr, kind: "Node", key: &key, sensitivity: Sensitivity::Plain };
    let error = placement.path_for(&TargetPath::root(), query).expect_err("no name");
    assert!(matches!(error, PathError::NoFileName { .. }), "{error}");
}

#[test]
fn values_cannot_build_gits_folder_out_of_parts() {
    let placement = compile(&[("v1/nodes", "{name}it/x.yaml")], None).expect("usable");
    let (gvr, key) = (Gvr::new("", "v1", "nodes"), ObjectKey::new("", ".g"));
    let query = PlacementQuery { gvr: &gvr, kind: "Node", key: &key, sensitivity: Sensitivity::Plain };
    let error = placement.path_for(&TargetPath::root(), query).expect_err("refused");
    assert!(matches!(error, PathError::GitFolder { .. }), "{error}");
}

#[test]
fn paths_that_differ_in_case_only_can_be_told_apart() {
    let (upper, lower) = (path("x", "y", "", "Admin"), path("x", "y", "", "admin"));
    assert_eq!(case_key(&upper), case_key(&lower));
    let moved = with_case_suffix(&RepoPath(upper.into()));
    assert_ne!(case_key(moved.as_str()), case_key(&lower));
    assert!(moved.as_str().starts_with("live/_cluster/x/y/Admin%~") && moved.as_str().ends_with(".yaml"));
}

proptest! {
    #[test]
    fn encoding_is_reversible_and_safe_everywhere(name in any::<String>()) {
        let segment = encode_segment(&name);
        prop_assert_eq!(decode_segment(&segment), Some(name));
        prop_assert!(segment.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"/\\:*?\"<>|".contains(&byte)));
        prop_assert!(!segment.ends_with(['.', ' ']));
        prop_assert!(target::check(&segment).is_ok() || segment.len() > 255);
    }

    #[test]
    fn every_path_stays_below_its_target(namespace in "[a-z.\\-]{0,9}", name in any::<String>(), long in 0_usize..300) {
        let name = format!("{name}{}", "é".repeat(long));
        let found = path("g", "r", &namespace, &name);
        prop_assert!(TargetPath::parse("live").expect("usable").contains(&found));
        prop_assert!(target::check(&found).is_ok(), "{}", found);
        prop_assert_eq!(found.split('/').count(), 5);
    }

    #[test]
    fn long_names_that_differ_get_paths_that_differ(a in "[a-b]{240,300}", b in "[a-b]{240,300}") {
        prop_assert_eq!(path("g", "r", "n", &a) == path("g", "r", "n", &b), a == b);
    }
}
