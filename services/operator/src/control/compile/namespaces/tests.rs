use serde_json::{Value, json};

use super::*;

const OWN: &str = "team";

fn cluster() -> BTreeMap<String, Labels> {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    BTreeMap::from([
        ("team".to_owned(), labels(&[])),
        ("blue".to_owned(), labels(&[("mirror", "yes")])),
        ("red".to_owned(), labels(&[("mirror", "no")])),
        ("teal".to_owned(), labels(&[("mirror", "yes")])),
    ])
}

#[derive(Clone)]
struct Case {
    items: &'static [&'static str],
    policy: Option<Value>,
    flag: bool,
    labels: &'static str,
    before: Option<&'static [&'static str]>,
}

fn case(items: &'static [&'static str], policy: Option<Value>, flag: bool) -> Case {
    Case { items, policy, flag, labels: "read", before: None }
}

impl Case {
    fn labels(mut self, labels: &'static str) -> Self {
        self.labels = labels;
        self
    }

    /// With an earlier grant for these items: `blue` for each.
    fn before(mut self, items: &'static [&'static str]) -> Self {
        self.before = Some(items);
        self
    }

    fn asked(items: &[&str]) -> Vec<String> {
        std::iter::once("team/t").chain(items.iter().copied()).map(str::to_owned).collect()
    }

    fn run(&self) -> (Reason, &'static str, Option<String>) {
        let policy: Option<NamespaceMatcher> =
            self.policy.clone().map(|value| serde_json::from_value(value).expect("a matcher"));
        let all = cluster();
        let labels = match self.labels {
            "read" => KnownLabels::Read(&all),
            "unread" => KnownLabels::Unread,
            _ => KnownLabels::Forbidden("no right"),
        };
        let question = Question {
            own: OWN,
            target: "t",
            items: self.items,
            policy: policy.as_ref(),
            may_override: self.flag,
            cluster: "default",
        };
        let before = self.before.map(|items| Grant {
            question: Self::asked(items),
            items: items.iter().map(|_| BTreeSet::from(["blue".to_owned()])).collect(),
        });
        let answer = evaluate(&question, &labels, before.as_ref());
        let verdict = match &answer.source {
            Source::Legacy | Source::Allowed { .. } | Source::Empty => "admitted",
            Source::Denied { .. } => "denied",
            Source::Unavailable { kept: true, .. } => "unavailable, kept",
            Source::Unavailable { .. } => "unavailable",
            Source::Checking { kept: true } => "unknown, kept",
            Source::Checking { .. } => "unknown",
        };
        let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
        let granted = answer.grant.map(|grant| {
            assert_eq!(grant.question, Self::asked(self.items), "a grant answers its own question");
            grant.items.iter().map(list).collect::<Vec<_>>().join(";")
        });
        (answer.source.reason(), verdict, granted)
    }
}

fn selector() -> Option<Value> {
    Some(json!({"selector": {"matchLabels": {"mirror": "yes"}}}))
}

fn broken() -> Option<Value> {
    Some(json!({"selector": {"matchExpressions": [{"key": "mirror", "operator": "Like"}]}}))
}

type Row = (&'static str, Case, Reason, &'static str, Option<&'static str>);

fn readable() -> Vec<Row> {
    use Reason::{
        LegacySourceNamespace as Legacy, NoAdmittedSourceNamespaces as Nothing,
        SourceNamespaceAllowed as Allowed, SourceNamespaceNotAllowed as NotAllowed,
    };
    let names = |list: Value| Some(json!({"names": list}));
    let all = Some(json!({"selector": {}}));
    vec![
        ("own, no policy, no flag", case(&["team"], None, false), Legacy, "admitted", Some("team")),
        ("other, no policy", case(&["blue"], None, true), NotAllowed, "denied", None),
        ("star, no policy", case(&["*"], None, true), NotAllowed, "denied", None),
        ("other, flag off", case(&["blue"], selector(), false), NotAllowed, "denied", None),
        ("star, flag off", case(&["*"], selector(), false), NotAllowed, "denied", None),
        ("own, policy without it", case(&["team"], selector(), true), NotAllowed, "denied", None),
        (
            "own, policy names it",
            case(&["team"], names(json!(["team"])), false),
            Allowed,
            "admitted",
            Some("team"),
        ),
        ("own, empty policy", case(&["team"], Some(json!({})), false), NotAllowed, "denied", None),
        ("other, by label", case(&["blue"], selector(), true), Allowed, "admitted", Some("blue")),
        ("other, wrong label", case(&["red"], selector(), true), NotAllowed, "denied", None),
        ("other, not there", case(&["gone"], selector(), true), NotAllowed, "denied", None),
        (
            "other, named, not there",
            case(&["gone"], names(json!(["gone"])), true),
            Allowed,
            "admitted",
            Some("gone"),
        ),
        ("star by label", case(&["*"], selector(), true), Allowed, "admitted", Some("blue,teal")),
        ("star by everything", case(&["*"], all, true), Allowed, "admitted", Some("blue,red,teal,team")),
        ("star, empty policy", case(&["*"], Some(json!({})), true), Nothing, "admitted", Some("")),
        (
            "star by names or label",
            case(
                &["*"],
                Some(json!({"names": ["gone"], "selector": {"matchLabels": {"mirror": "no"}}})),
                true,
            ),
            Allowed,
            "admitted",
            Some("gone,red"),
        ),
        ("one denied item", case(&["blue", "red"], selector(), true), NotAllowed, "denied", None),
        ("two items", case(&["blue", "*"], selector(), true), Allowed, "admitted", Some("blue;blue,teal")),
    ]
}

fn unread() -> Vec<Row> {
    use Reason::{
        CheckingSourceNamespacePolicy as Checking, SourceNamespaceAllowed as Allowed,
        SourceNamespacePolicyUnavailable as Unavailable,
    };
    let unread = |items, policy| case(items, policy, true).labels("unread");
    let star = || unread(&["*"], selector());
    let named = || Some(json!({"names": ["blue"], "selector": {"matchLabels": {"mirror": "no"}}}));
    let names = Some(json!({"names": ["a"]}));
    vec![
        ("a name needs no labels", unread(&["blue"], named()), Allowed, "admitted", Some("blue")),
        ("star of names needs none", unread(&["*"], names), Allowed, "admitted", Some("a")),
        ("unread", star(), Checking, "unknown", None),
        ("unread, granted before", star().before(&["*"]), Checking, "unknown, kept", Some("blue")),
        ("unread, another question", star().before(&["red"]), Checking, "unknown", None),
        ("unknown beats admitted", unread(&["blue", "red"], named()), Checking, "unknown", None),
        ("unavailable beats unknown", unread(&["*"], broken()), Unavailable, "unavailable", None),
    ]
}

fn forbidden() -> Vec<Row> {
    use Reason::{LegacySourceNamespace as Legacy, SourceNamespacePolicyUnavailable as Unavailable};
    let star = || case(&["*"], selector(), true).labels("forbidden");
    let own = case(&["team"], None, false).labels("forbidden");
    vec![
        ("own needs no labels", own, Legacy, "admitted", Some("team")),
        ("forbidden", star(), Unavailable, "unavailable", None),
        ("forbidden, granted before", star().before(&["*"]), Unavailable, "unavailable, kept", Some("blue")),
    ]
}

fn broken_policies() -> Vec<Row> {
    use Reason::{SourceNamespaceNotAllowed as NotAllowed, SourceNamespacePolicyUnavailable as Unavailable};
    let star = || case(&["*"], broken(), true);
    let both = case(&["blue", "*"], broken(), true).before(&["blue", "*"]);
    let stored = case(&["*"], Some(json!({"names": ["x-*"]})), true);
    let denied = case(&["*", "red"], broken(), false).before(&["*", "red"]);
    vec![
        ("one namespace", case(&["blue"], broken(), true), Unavailable, "unavailable", None),
        ("star", star(), Unavailable, "unavailable", None),
        ("star, granted before", star().before(&["*"]), Unavailable, "unavailable, kept", Some("blue")),
        ("a stored bad name", stored, Unavailable, "unavailable", None),
        ("two items keep two grants", both, Unavailable, "unavailable, kept", Some("blue;blue")),
        ("denied beats unavailable", denied, NotAllowed, "denied", None),
    ]
}

#[test]
fn every_verdict_and_its_precedence() {
    for (name, case, reason, verdict, granted) in
        [readable(), unread(), forbidden(), broken_policies()].concat()
    {
        assert_eq!(case.run(), (reason, verdict, granted.map(str::to_owned)), "{name}");
    }
}
