//! What each kind of template sees, and what becomes of one that fails.

use upriver_api::git_provider::MessageSpec;
use upriver_content::placement::{Placement, TargetPath};
use upriver_engine::branch::TargetPlan;
use upriver_engine::window::WindowRule;
use upriver_model::{Gvr, IdSet, ObjectKey, ResourceVersion, Scope, TargetScope, TargetUid, WatchKey};
use upriver_store::Opening;

use super::*;

fn target(messages: MessageSpec) -> TargetSpec {
    TargetSpec {
        plan: TargetPlan {
            uid: TargetUid::new("uid"),
            window: WindowRule::default(),
            never_prune: false,
            suspended: false,
            recheck: None,
            subject: "".into(),
            subscriptions: Vec::new(),
        },
        namespace: "shop".to_owned(),
        name: "live".to_owned(),
        path: TargetPath::parse("live").expect("a good path"),
        placement: Placement::canonical(),
        committer_name: "Upriver".to_owned(),
        committer_email: "noreply@upriver.invalid".to_owned(),
        messages,
    }
}

fn templates(event: &str, group: &str, reconcile: &str) -> MessageSpec {
    let set = |text: &str| Some(text.to_owned());
    MessageSpec { event_template: set(event), group_template: set(group), reconcile_template: set(reconcile) }
}

fn change(operation: Operation, name: &str) -> Change {
    Change {
        gvr: Gvr::new("apps", "v1", "deployments"),
        kind: "Deployment".into(),
        key: ObjectKey::new("shop", name),
        operation,
        payload: Some("{}".into()),
    }
}

fn unit(author: Author, kind: UnitKind) -> Unit {
    let target = TargetUid::new("uid");
    Unit { target, author, kind, changes: Vec::new(), entries: IdSet::new(), time_ms: 0 }
}

fn jane() -> Author {
    Author::Resolved { username: "jane\n<jane@example.com>".into() }
}

fn replay(scope: Scope) -> UnitKind {
    let gvr = Gvr::new("apps", "v1", "deployments");
    let watch = WatchKey { cluster: "local".into(), gvr: gvr.clone(), scope: scope.clone() };
    UnitKind::Replay(Box::new(Replayed {
        scope: TargetScope { target: TargetUid::new("uid"), gvr, scope },
        kind: "Deployment".into(),
        generation: 1,
        spec_hash: "".into(),
        opening: Opening { watch, watch_epoch: 1, stream: 1, scope_hash: String::new() },
        list_rv: ResourceVersion::new("4711"),
        inventory: Vec::new(),
        reclaim: None,
        void: false,
    }))
}

fn say(messages: MessageSpec, author: Author, kind: UnitKind, made: &[Change]) -> String {
    let made: Vec<&Change> = made.iter().collect();
    message(&target(messages), &unit(author, kind), &made)
}

fn three() -> [Change; 3] {
    [change(Operation::Create, "a"), change(Operation::Update, "b"), change(Operation::Delete, "c")]
}

#[test]
fn without_templates_the_messages_are_the_documented_ones() {
    let default = MessageSpec::default;
    let one = [change(Operation::Delete, "web")];
    assert_eq!(say(default(), jane(), UnitKind::Window, &one), "[DELETE] apps/v1/deployments/web");
    let group = |author| say(default(), author, UnitKind::Window, &three());
    assert_eq!(group(jane()), "jane<jane@example.com> on live: 3 resource(s)");
    assert_eq!(group(Author::NotAttempted), "Upriver on live: 3 resource(s)");
    assert_eq!(group(Author::Unresolved), "Upriver on live: 3 resource(s)", "the sentinel names nobody");
    let replayed = say(default(), Author::NotAttempted, replay(Scope::Namespace("shop".into())), &three());
    assert_eq!(replayed, "reconciled 3 deployments (last resourceVersion: 4711)");
    assert_eq!(
        say(templates("", "", ""), jane(), UnitKind::Window, &one),
        "[DELETE] apps/v1/deployments/web"
    );
}

#[test]
fn an_event_template_sees_the_event() {
    let fields = "{{.Operation}}|{{.Group}}|{{.Version}}|{{.Resource}}|{{.Namespace}}|{{.Name}}|{{.APIVersion}}|\
                  {{.Username}}|{{.GitTarget}}";
    let one = [change(Operation::Update, "web")];
    let said = |author| say(templates(fields, "", ""), author, UnitKind::Window, &one);
    assert_eq!(said(jane()), "UPDATE|apps|v1|deployments|shop|web|apps/v1|jane<jane@example.com>|live");
    for nobody in [Author::NotAttempted, Author::Unresolved] {
        assert_eq!(said(nobody), "UPDATE|apps|v1|deployments|shop|web|apps/v1||live");
    }
}

#[test]
fn a_group_template_sees_every_operation_and_every_object() {
    let fields = "{{.Author}}|{{.GitTarget}}|{{.Count}}|{{.Operations.CREATE}}{{.Operations.UPDATE}}\
                  {{.Operations.DELETE}}{{range .Resources}}|{{.Group}}/{{.Version}}/{{.Resource}}/{{.Namespace}}/{{.Name}}{{end}}";
    let said = |author, made: &[Change]| say(templates("", fields, ""), author, UnitKind::Window, made);
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("apps/v1/deployments/shop/{name}"));
    assert_eq!(said(jane(), &three()), format!("jane<jane@example.com>|live|3|111|{a}|{b}|{c}"));
    let updates = [change(Operation::Update, "a"), change(Operation::Update, "b")];
    assert_eq!(said(Author::NotAttempted, &updates), format!("|live|2|020|{a}|{b}"), "zeros are there");
}

#[test]
fn a_reconcile_template_sees_the_list() {
    let fields = "{{.Count}}|{{.GitTarget}}|{{.Group}}|{{.Version}}|{{.Resource}}|{{.APIVersion}}|{{.Revision}}|{{.Namespace}}";
    let said = |scope| say(templates("", "", fields), Author::NotAttempted, replay(scope), &three());
    assert_eq!(said(Scope::Namespace("shop".into())), "3|live|apps|v1|deployments|apps/v1|4711|shop");
    assert_eq!(said(Scope::Cluster), "3|live|apps|v1|deployments|apps/v1|4711|");
}

#[test]
fn a_template_that_fails_costs_no_commit() {
    // Fine with every sample, and not with a window of two.
    let sometimes = "{{if eq .Count 2}}{{.Nope}}{{end}}{{.Count}} changes";
    assert!(upriver_template::check(MessageKind::Group, sometimes).is_ok());
    let two = [change(Operation::Create, "a"), change(Operation::Create, "b")];
    let said =
        |made: &[Change]| say(templates("", sometimes, ""), Author::NotAttempted, UnitKind::Window, made);
    assert_eq!(said(&two), "Upriver on live: 2 resource(s)");
    assert_eq!(said(&three()), "3 changes");
    for broken in ["{{", "{{.Nope}}", "  ", "{{if false}}x{{end}}"] {
        let templates = || templates(broken, broken, broken);
        let event = say(templates(), jane(), UnitKind::Window, &two[..1]);
        assert_eq!(event, "[CREATE] apps/v1/deployments/a", "{broken}");
        let replayed = say(templates(), Author::NotAttempted, replay(Scope::Cluster), &two);
        assert_eq!(replayed, "reconciled 2 deployments (last resourceVersion: 4711)", "{broken}");
    }
}

#[test]
fn a_fence_says_what_it_is_whatever_the_templates() {
    let said = say(templates("x", "x", "x"), Author::NotAttempted, UnitKind::Fence, &[]);
    assert!(said.starts_with("empty commit"), "{said}");
}
