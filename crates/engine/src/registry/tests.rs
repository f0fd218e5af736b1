use super::*;
use crate::Dice;

fn denied(_: &str, resource: &str) -> bool {
    resource == "pods"
}

fn facts(group: &str, version: &str, resource: &str) -> TypeFacts {
    TypeFacts {
        gvr: Gvr::new(group, version, resource),
        kind: format!("Kind-{resource}").into(),
        scope: Some(TypeScope::Namespaced),
        preferred: true,
        verbs: ["get", "list", "watch"].map(Box::from).to_vec(),
        subresources: Vec::new(),
    }
}

fn with(change: impl FnOnce(&mut TypeFacts)) -> TypeFacts {
    let mut facts = facts("g", "v1", "things");
    change(&mut facts);
    facts
}

/// A scan in which `g/v1` and the core group answer.
fn scan(types: Vec<TypeFacts>) -> Scan {
    let core = Answer::Types(vec![facts("", "v1", "configmaps")]);
    let groups = [(GroupVersion::new("", "v1"), core), (GroupVersion::new("g", "v1"), Answer::Types(types))];
    Scan { groups: groups.into(), unread: BTreeMap::new() }
}

fn failing(stale: Vec<TypeFacts>) -> Scan {
    let mut failing = scan(Vec::new());
    failing
        .groups
        .insert(GroupVersion::new("g", "v1"), Answer::Failed { why: "backend is down".into(), stale });
    failing
}

fn unread() -> Scan {
    Scan { groups: BTreeMap::new(), unread: Root::ALL.map(|root| (root, "refused".into())).into() }
}

fn things() -> Gvr {
    Gvr::new("g", "v1", "things")
}

fn verdict(registry: &Registry) -> Verdict {
    registry.catalog().verdict(&things())
}

const SECOND: u64 = 1_000;

#[test]
fn every_check_names_its_cause() {
    let on = |types: Vec<TypeFacts>| {
        let mut registry = Registry::new(denied);
        registry.observe(scan(types), Tick(0));
        verdict(&registry)
    };
    let of = |change: fn(&mut TypeFacts)| on(vec![with(change)]);
    assert_eq!(of(|_| {}), Verdict::Followable);
    assert_eq!(on(vec![]), Verdict::Refused(Cause::NotServed));
    let bare = |facts: &mut TypeFacts| {
        facts.verbs.clear();
        facts.subresources = vec!["token".into()];
    };
    assert_eq!(of(bare), Verdict::Refused(Cause::SubresourceOnly));
    assert_eq!(of(|facts| facts.scope = None), Verdict::Refused(Cause::ScopeUnknown));
    assert_eq!(of(|facts| drop(facts.verbs.pop())), Verdict::Refused(Cause::MissingVerb));
    let other_kind = with(|facts| facts.kind = "Other".into());
    assert_eq!(on(vec![with(|_| {}), other_kind]), Verdict::Refused(Cause::GvrNotUnique));
    let other_resource = with(|facts| facts.gvr.resource = "stuff".into());
    assert_eq!(on(vec![with(|_| {}), other_resource]), Verdict::Refused(Cause::GvkNotUnique));
    let pods = with(|facts| facts.gvr.resource = "pods".into());
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![pods.clone()]), Tick(0));
    assert_eq!(registry.catalog().verdict(&pods.gvr), Verdict::Refused(Cause::DeniedByPolicy));
}

#[test]
fn a_type_with_a_scale_subresource_is_followed() {
    let scaled = with(|facts| facts.subresources = vec!["scale".into(), "status".into()]);
    assert!(scaled.has_subresource("scale"));
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![scaled]), Tick(0));
    assert_eq!(verdict(&registry), Verdict::Followable);
}

#[test]
fn a_subresource_is_no_second_bearer_of_a_kind() {
    let lone = with(|facts| {
        facts.gvr.resource = "lone".into();
        facts.verbs.clear();
        facts.subresources = vec!["status".into()];
    });
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![with(|_| {}), lone]), Tick(0));
    assert_eq!(verdict(&registry), Verdict::Followable);
}

#[test]
fn additions_act_at_once_and_removals_after_a_minute() {
    let mut registry = Registry::new(denied);
    assert_eq!(verdict(&registry), Verdict::Unknown(Cause::CatalogUnavailable));
    registry.observe(scan(vec![]), Tick(0));
    registry.observe(scan(vec![with(|_| {})]), Tick(SECOND));
    assert_eq!(verdict(&registry), Verdict::Followable);
    registry.observe(scan(vec![]), Tick(10 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::NotServed));
    registry.observe(scan(vec![]), Tick(69 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::NotServed));
    registry.observe(scan(vec![]), Tick(70 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Refused(Cause::AbsenceExpired));
    assert!(registry.catalog().was_dropped("things") && !registry.catalog().was_dropped("other"));
    registry.observe(scan(vec![with(|_| {})]), Tick(71 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Followable);
}

#[test]
fn a_group_version_that_is_gone_as_a_whole_is_missed_like_its_types() {
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![with(|_| {})]), Tick(0));
    let mut without = scan(vec![]);
    without.groups.remove(&GroupVersion::new("g", "v1"));
    registry.observe(without.clone(), Tick(SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::NotServed));
    registry.observe(without, Tick(61 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Refused(Cause::AbsenceExpired));
}

#[test]
fn a_failing_group_version_keeps_its_types_as_long_as_it_fails() {
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![with(|_| {})]), Tick(0));
    registry.observe(failing(vec![]), Tick(SECOND));
    registry.observe(failing(vec![]), Tick(3_600 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::DiscoveryDegraded));
    let failed: Vec<String> =
        registry.catalog().failed().map(|(group, why)| format!("{group}: {why}")).collect();
    assert_eq!(failed, ["g/v1: backend is down"]);
    // It answers again, without the type: only now the minute begins.
    registry.observe(scan(vec![]), Tick(3_601 * SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::NotServed));
    assert_eq!(registry.catalog().failed().count(), 0);
}

#[test]
fn what_only_a_stale_answer_shows_is_retained_and_what_nobody_shows_is_unknown() {
    let mut registry = Registry::new(denied);
    registry.observe(failing(vec![]), Tick(0));
    assert_eq!(verdict(&registry), Verdict::Unknown(Cause::DiscoveryDegraded));
    registry.observe(failing(vec![with(|_| {})]), Tick(SECOND));
    assert_eq!(verdict(&registry), Verdict::Retained(Cause::DiscoveryDegraded));
}

#[test]
fn an_unread_root_carries_everything_over() {
    let mut registry = Registry::new(denied);
    registry.observe(scan(vec![with(|_| {})]), Tick(0));
    let revision = registry.catalog().revision();
    assert!(!registry.observe(unread(), Tick(3_600 * SECOND)));
    assert_eq!(verdict(&registry), Verdict::Followable);
    assert_eq!(registry.catalog().revision(), revision);
}

#[test]
fn nothing_is_observed_before_both_roots_were_read() {
    let mut registry = Registry::new(denied);
    let mut half = scan(vec![with(|_| {})]);
    half.unread.insert(Root::Core, "refused".into());
    half.groups.remove(&GroupVersion::new("", "v1"));
    registry.observe(half, Tick(0));
    assert!(!registry.catalog().is_observed());
    registry.observe(scan(vec![]), Tick(SECOND));
    assert!(registry.catalog().is_observed());
}

/// What the property test remembers by itself.
#[derive(Default)]
struct Shadow {
    served_at: BTreeMap<Gvr, Tick>,
}

fn random_answer(dice: &mut Dice, group: &str) -> Option<Answer> {
    let types = ["a", "b", "c"].into_iter().filter(|_| dice.between(0, 2) > 0).collect::<Vec<_>>();
    let types = types.into_iter().map(|name| facts(group, "v1", name)).collect();
    match dice.between(0, 9) {
        0..=5 => Some(Answer::Types(types)),
        6..=7 => Some(Answer::Failed { why: format!("{}", dice.between(0, 99)).into(), stale: types }),
        _ => None,
    }
}

fn random_scan(dice: &mut Dice) -> Scan {
    let mut scan = Scan::default();
    for root in Root::ALL {
        if dice.between(0, 9) == 0 {
            scan.unread.insert(root, "refused".into());
        }
    }
    for group in ["", "g", "h"] {
        let key = GroupVersion::new(group, "v1");
        if scan.has_read(key.root())
            && let Some(answer) = random_answer(dice, group)
        {
            scan.groups.insert(key, answer);
        }
    }
    scan
}

#[test]
fn what_was_served_in_the_last_minute_or_fails_is_never_dropped_and_equal_scans_change_nothing() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut registry = Registry::new(denied);
        let mut shadow = Shadow::default();
        let mut now = Tick(0);
        for step in 0..40 {
            now = now + dice.between(0, 45) * SECOND;
            let scan = random_scan(&mut dice);
            let before = registry.catalog().clone();
            let changed = registry.observe(scan.clone(), now);
            check(&format!("seed {seed}, step {step}"), &registry, &before, changed, &mut shadow, &scan, now);
        }
    }
}

fn check(
    at: &str,
    registry: &Registry,
    before: &Catalog,
    changed: bool,
    shadow: &mut Shadow,
    scan: &Scan,
    now: Tick,
) {
    let catalog = registry.catalog();
    assert_eq!(catalog.revision() > before.revision(), changed, "{at}");
    assert!(changed || catalog == before, "{at}: a change without a new revision");
    for (group, answer) in &scan.groups {
        match answer {
            Answer::Types(types) => {
                for facts in types {
                    shadow.served_at.insert(facts.gvr.clone(), now);
                    assert_eq!(catalog.verdict(&facts.gvr), Verdict::Followable, "{at}: {}", facts.gvr);
                }
            }
            Answer::Failed { .. } => {
                for known in before.types().filter(|known| GroupVersion::of(&known.facts.gvr) == *group) {
                    assert!(catalog.verdict(&known.facts.gvr).is_selectable(), "{at}: {}", known.facts.gvr);
                }
            }
        }
    }
    for (gvr, served) in &shadow.served_at {
        let young = now.since(*served) < GRACE_MS;
        assert!(!young || catalog.verdict(gvr).is_selectable(), "{at}: {gvr} was dropped");
    }
    let mut again = Registry {
        denied: registry.denied,
        known: registry.known.clone(),
        failed: registry.failed.clone(),
        dropped: registry.dropped.clone(),
        read: registry.read.clone(),
        catalog: catalog.clone(),
    };
    assert!(!again.observe(scan.clone(), now), "{at}: an equal scan at the same time changed something");
}
