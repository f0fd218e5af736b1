//! What no template and no data may do, and what people get to read instead.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use upriver_template::{
    ErrorKind, EventData, GroupData, MessageData, MessageKind, Operations, ResourceRef, Template,
    TemplateError, Value, check, render_or_default,
};

fn fails(template: &str, data: &Value) -> TemplateError {
    match Template::parse(template).and_then(|template| template.render(data)) {
        Ok(text) => panic!("{} bytes from {}", text.len(), &template[..template.len().min(200)]),
        Err(error) => error,
    }
}

fn group_of(count: u32) -> MessageData {
    let resource = |number| ResourceRef { name: format!("object-{number}"), ..ResourceRef::default() };
    MessageData::Group(GroupData {
        author: "jane".into(),
        git_target: "prod".into(),
        count,
        operations: Operations { create: count, ..Operations::default() },
        resources: (0..count).map(resource).collect(),
    })
}

#[test]
fn loops_and_calls_without_end_are_stopped() {
    let list = Value::List((0..1000).map(Value::Int).collect());
    let started = Instant::now();
    for template in [
        "{{range 9223372036854775807}}{{end}}",
        "{{range .}}{{range $}}{{range $}}{{range $}}{{end}}{{end}}{{end}}{{end}}",
        "{{define \"a\"}}{{template \"a\"}}{{end}}{{template \"a\"}}",
        "{{define \"a\"}}{{template \"b\" .}}{{end}}{{define \"b\"}}{{with (((1)))}}{{template \"a\" .}}{{end}}{{end}}{{template \"a\"}}",
        "{{$x := \"aaaaaaaaaaaaaaaa\"}}{{range 100}}{{$x = print $x $x}}{{end}}",
        "{{$x := printf \"%60000d\" 1}}{{range 1000}}{{$x = js $x}}{{end}}",
        "{{$x := printf \"%60000d\" 1}}{{range 100000}}{{if eq $x $x $x $x $x $x $x $x}}{{end}}{{end}}",
        "{{range .}}{{range $}}{{slice $ 0 1000}}{{end}}{{end}}",
        "{{printf \"%1000000d\" 1}}",
        "{{printf \"%.1000000d\" 1}}",
        "{{printf \"%01000000d\" 1}}",
        "{{printf \"%*d\" 1000000 1}}",
        "{{printf \"%.1000000f\" 1.5}}",
        "{{printf \"%.1000000U\" 1}}",
        "{{printf \"%.70000U\" 1}}",
        "{{printf \"%70000U\" 1}}",
        "{{printf \"%.70000d\" 1}}",
        "{{printf \"%070000d\" 1}}",
        "{{printf \"%070000f\" 1.5}}",
        "{{printf \"%-70000q\" \"x\"}}",
        "{{range 70000}}x{{end}}",
    ] {
        assert_eq!(fails(template, &list).kind, ErrorKind::Limit, "{template}");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn nesting_ends_in_an_error_and_not_in_the_stack() {
    let deep = |open: &str, middle: &str, close: &str, times: usize| {
        open.repeat(times) + middle + &close.repeat(times)
    };
    for template in [
        format!("{{{{{}}}}}", deep("(", "1", ")", 4000)),
        format!("{{{{{}}}}}", "(".repeat(8000)),
        deep("{{if 1}}", "x", "{{end}}", 900),
        deep("{{range .}}", "x", "{{end}}", 800),
        deep("{{if 1}}{{else}}", "x", "{{end}}", 600),
        deep("{{with 1}}{{block \"x\" .}}", "x", "{{end}}{{end}}", 300),
        deep("{{if 1}}", "", "", 1500),
    ] {
        assert_eq!(fails(&template, &Value::Nil).kind, ErrorKind::Limit, "{}", &template[..40]);
    }
    let allowed = deep("{{with (((1)))}}{{if 1}}", "x", "{{end}}{{end}}", 18);
    assert_eq!(
        Template::parse(&allowed).and_then(|template| template.render(&Value::Nil)).as_deref(),
        Ok("x")
    );
    // Deepest in both respects at once, on a thread with the usual two megabytes.
    let body = deep("{{if (((((((1)))))))}}", "{{template \"a\"}}", "{{end}}", 30);
    let both = format!("{{{{define \"a\"}}}}{body}{{{{end}}}}{{{{template \"a\"}}}}");
    assert_eq!(fails(&both, &Value::Nil).kind, ErrorKind::Limit);
    let mut chain = "{{if 0}}".to_owned();
    for number in 0..900 {
        write!(chain, "{{{{else if 0}}}}{number}").expect("memory");
    }
    chain.push_str("{{else}}last{{end}}");
    assert_eq!(
        Template::parse(&chain).and_then(|template| template.render(&Value::Nil)).as_deref(),
        Ok("last")
    );
}

#[test]
fn long_templates_are_refused() {
    assert_eq!(fails(&"x".repeat(16 * 1024 + 1), &Value::Nil).kind, ErrorKind::Limit);
    assert!(Template::parse(&"x".repeat(16 * 1024)).is_ok());
}

#[test]
fn an_error_names_its_place_and_what_to_do() {
    let data = MessageData::Event(EventData::default()).to_value();
    let table = [
        (
            "{{.Nope}}",
            "line 1, column 3: there is no .Nope here; there are Operation, Group, Version, Resource, Namespace, Name, APIVersion, \
             Username, GitTarget",
        ),
        (
            "a\nbé {{upper .Name}}",
            "line 2, column 6: there is no function upper; there are and, or, not, len, index",
        ),
        ("{{if .Name}}\nx", "line 2, column 2: the template ends too early: an {{end}} is missing"),
        ("{{.Name", "these braces have no end: close them with }}"),
        ("x {{$who}}", "line 1, column 5: the variable $who is not declared; write $who := first"),
        ("{{.Name.First}}", "line 1, column 3: there is no .First in string"),
        ("{{range .Name}}{{end}}", "a string holds nothing to range over"),
        ("{{lt .Name 3}}", "line 1, column 3: a string cannot be compared with a int"),
        ("{{.Name .Group}}", "only functions take arguments"),
        ("{{len}}", "len wants 1 argument, but gets 0"),
        ("{{eq}}", "eq wants 1 argument or more, but gets 0"),
    ];
    for (template, message) in table {
        let error = fails(template, &data).to_string();
        assert!(error.contains(message), "{template}\n{error}");
    }
}

#[test]
fn the_check_finds_what_only_some_data_shows() {
    assert_eq!(
        check(MessageKind::Group, "{{.Operations.CREATE}} {{.Operations.UPDATE}} {{.Operations.DELETE}}"),
        Ok(())
    );
    for kind in MessageKind::ALL {
        assert_eq!(check(kind, kind.default_template()), Ok(()));
    }
    for (kind, template) in [
        (MessageKind::Group, "{{.Nope}}"),
        (MessageKind::Group, "{{.Operations.PATCH}}"),
        (MessageKind::Group, "{{(index .Resources 1).Name}}"),
        (MessageKind::Group, "{{if eq .Operations.CREATE 1}}fine{{else}}{{.Nope}}{{end}}"),
        (MessageKind::Group, "{{.Author}}"),
        (MessageKind::Event, "{{if .Username}}fine{{else}}{{.User}}{{end}}"),
        (MessageKind::Event, "{{if eq .Operation \"DELETE\"}}{{.Count}}{{else}}fine{{end}}"),
        (MessageKind::Event, "{{slice .Namespace 0 2}}"),
        (MessageKind::Reconcile, "{{.Resource}}"),
        (MessageKind::Reconcile, "{{.Author}}"),
        (MessageKind::Event, ""),
        (MessageKind::Event, "{{/* nothing */}}\n"),
        (MessageKind::Event, "zero {{printf \"%c\" 0}}"),
    ] {
        assert!(check(kind, template).is_err(), "{template}");
    }
}

#[test]
fn a_template_never_costs_a_commit() {
    let data = group_of(3);
    let fine = render_or_default(Some("{{.Count}} by {{.Author}}"), &data);
    assert_eq!((&*fine.message, fine.fault), ("3 by jane", None));
    for template in ["{{.Nope}}", "{{", " \n", "{{range .Resources}}{{printf \"%60000d\" 1}}{{end}}"] {
        let rendered = render_or_default(Some(template), &data);
        assert_eq!(rendered.message, "jane on prod: 3 resource(s)");
        assert!(rendered.fault.is_some(), "{template}");
    }
    let default = render_or_default(None, &data);
    assert_eq!((&*default.message, default.fault), ("jane on prod: 3 resource(s)", None));
}

#[test]
fn a_list_of_thousands_is_written() {
    let template = "{{.Count}} objects{{range .Resources}}\n- {{.Name}}{{end}}";
    let rendered = render_or_default(Some(template), &group_of(3000));
    assert_eq!((rendered.fault, rendered.message.lines().count()), (None, 3001));
    let rendered = render_or_default(Some(template), &group_of(30_000));
    assert_eq!(rendered.fault.map(|fault| fault.kind), Some(ErrorKind::Limit));
    assert_eq!(rendered.message, "jane on prod: 30000 resource(s)");
}
