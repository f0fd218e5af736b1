//! Templates as people write them, and odd ones, each compared with Go's text/template.

mod common;

use common::{Answer, Data, Go, event, everything, group, message_data, reconcile};
use upriver_template::{MessageData, MessageKind};

/// For a window of several events.
const GROUP: &[&str] = &[
    "{{.Author}} on {{.GitTarget}}: {{.Count}} resource(s)",
    "{{range .Resources}}- {{.Namespace}}/{{.Name}}\n{{end}}",
    "{{range $i, $r := .Resources}}{{if $i}}, {{end}}{{$r.Name}}{{end}}",
    "{{range $r := .Resources}}{{$r.Name}} by {{$.Author}};{{end}}",
    "{{range $op, $n := .Operations}}{{$op}}={{$n}} {{end}}",
    "{{range $op, $n := .Operations}}{{if $n}}{{$op}}={{$n}} {{end}}{{end}}",
    "+{{.Operations.CREATE}} ~{{.Operations.UPDATE}} -{{.Operations.DELETE}}",
    "{{.Operations.PATCH}}",
    "{{index .Operations \"CREATE\"}} {{index .Operations \"PATCH\"}}",
    "{{(index .Resources 0).Name}} {{(index .Resources 9).Name}}",
    "{{(index .Resources 0).Name}} and {{len (slice .Resources 1)}} more",
    "{{len .Resources}} {{len .Operations}} {{len .Author}}",
    "{{with index .Resources 1}}{{.Name}}{{end}}",
    "{{.}}",
    "{{.Resources}} {{.Operations}}",
    "{{printf \"%v %+v\" (index .Resources 0) (index .Resources 0)}}",
    "{{range .Resources}}{{if eq .Name \"two\"}}{{break}}{{end}}{{.Name}} {{end}}",
    "{{range .Resources}}{{if eq .Name \"two\"}}{{continue}}{{end}}{{.Name}} {{end}}",
    "{{$first := true}}{{range .Resources}}{{if $first}}{{$first = false}}{{else}}, {{end}}{{.Name}}{{end}}",
    "{{$n := 0}}{{range .Resources}}{{if eq .Namespace \"a\"}}{{$n = .Name}}{{end}}{{end}}{{$n}}",
    "{{if gt .Count 1}}{{.Count}} changes{{else if eq .Count 1}}one change{{else}}nothing{{end}}",
    "{{if and .Author (gt .Count 2)}}many by {{.Author}}{{end}}",
    "{{if or (eq .Count 5) (ne .Author \"\")}}yes{{end}}",
    "{{eq (index .Resources 0) (index .Resources 0)}} {{eq (index .Resources 0) (index .Resources 1)}}",
    "{{eq . .}}",
    "{{eq .Resources .Resources}}",
    "{{eq .Count 1 2 3}} {{eq .Count 4 5}} {{lt .Count 4}} {{le .Count 3}} {{ge .Count 4}}",
    "{{eq .Count \"3\"}}",
    "{{lt .Resources 1}}",
    "{{.Nope}}",
    "{{.Author.Length}}",
    "{{.Resources.Name}}",
    "{{range .Author}}x{{end}}",
    "{{range .}}x{{end}}",
    "{{range .Count}}{{.}},{{end}}",
    "{{range $i, $v := .Count}}{{.}},{{end}}",
    "{{define \"line\"}}* {{.Name}} in {{.Namespace}}\n{{end}}{{range .Resources}}{{template \"line\" .}}{{end}}",
    "{{block \"who\" .Author}}by {{.}}{{end}}",
    "{{template \"missing\"}}",
    "{{define \"a\"}}{{template \"a\" .}}x{{end}}{{define \"b\"}}{{$}}{{end}}{{template \"b\" .Count}}",
    "{{- /* a comment */ -}}\n  {{ .Author -}}  \n x {{- .Count }}",
    "{{/* c */}}{{.Author}}{{/* d\n */ -}}   !",
    "{{range .Resources}}{{.Name}}{{else}}none{{end}}{{range slice .Resources 0 0}}x{{else}}none{{end}}",
    "{{printf \"%d of %s, %q, %5d|%-5s|%05d|%x|%t\" .Count .Author .GitTarget .Count .Author .Count .Author true}}",
    "{{printf \"%s\" .Resources}} {{printf \"%d\" .Operations}} {{printf \"%q\" .Resources}}",
    "{{.Count | printf \"%03d\"}} {{.Author | printf \"%s-%s\" \"x\" | len}}",
    "{{.Count | eq 3}} {{not .Author}} {{not .Count}}",
    "{{len 3}}",
    "{{index .Resources \"a\"}}",
    "{{index .Operations 1}}",
    "{{slice .Author 1}} {{slice .Author 1 3}} {{slice .Author 5}}",
    "{{slice .Author 0 2}}{{index .Author 0}}",
    "{{.Author | html}} {{js .Author}} {{urlquery .Author .Count}}",
    "{{print .Author .Count .Count true}}|{{println .Author .Count}}|{{print}}",
    "{{with .Author}}{{.}}{{else}}nobody{{end}} {{with \"\"}}x{{else with .Count}}{{.}}{{else}}y{{end}}",
    "{{with $x := .Count}}{{$x}}{{end}}",
    "{{with $x := .Count}}{{end}}{{$x}}",
    "{{$x := 1}}{{if true}}{{$x = 2}}{{$x := 3}}{{end}}{{$x}}",
    "{{.Author}",
    "{{.Author",
    "{{end}}",
    "{{if .Author}}",
    "{{else}}",
    "{{if}}x{{end}}",
    "{{upper .Author}}",
    "{{.Author .Count}}",
    "{{$undeclared}}",
    "{{break}}",
    "{{\"unclosed}}",
    "{{.Author | 3}}",
    "{{3 | .Author}}",
    "{{nil}}",
    "{{template \"x\" nil}}{{define \"x\"}}{{.}}{{end}}",
    "{{(((.Author)))}} {{(print 1 2)}} {{((print \"a\" \"b\") | len)}}",
];

/// For one event.
const EVENT: &[&str] = &[
    "[{{.Operation}}] {{.APIVersion}}/{{.Resource}}/{{.Name}}",
    "{{if .Namespace}}{{.Namespace}}/{{end}}{{.Name}}: {{.Operation}} by {{or .Username \"nobody\"}}",
    "{{.Username}} {{.Username | html}} {{.Username | js}} {{.Username | urlquery}} {{printf \"%q\" .Username}}",
    "{{printf \"%-12s|%12s|%.3s|%8.3s\" .Name .Name .Resource .Resource}}",
    "{{if eq .Operation \"CREATE\" \"UPDATE\"}}write{{else}}removal{{end}}",
    "{{.Kind}}",
    "{{.operation}}",
    "{{.Group | printf \"%s/%s\" .Version}}",
];

/// For anything.
const ANY: &[&str] = &[
    "{{.X}} {{print .X}} {{printf \"%v|%d|%s\" .X .X .X}}",
    "{{.X.Y}}",
    "{{.L}} {{.M}} {{.F}} {{.Q}} {{.H}} {{.W}} {{.T}}",
    "{{with .X}}x{{else}}nil{{end}}{{range .X}}x{{else}}nil{{end}}{{if .X}}x{{end}}",
    "{{eq .X nil}} {{ne .N nil}} {{eq nil nil}} {{eq .LE nil}}",
    "{{index .L 2}} {{index .L 5 \"k\"}} {{index .L 4 1}} {{index .M \"c\" \"d\"}} {{index .M \"nope\"}}",
    "{{index .X 1}}",
    "{{index .M \"n\" \"k\"}}",
    "{{index nil 1}}",
    "{{index .N}} {{slice .S}}",
    "{{range .M}}{{.}} {{end}}{{range $k, $v := .M}}{{$k}}:{{$v}} {{end}}",
    "{{range $i, $e := .L}}{{$i}}={{$e}};{{end}}",
    "{{range $e := .LN}}{{$e}}{{end}}{{range .LE}}x{{else}}empty{{end}}",
    "{{1}} {{-1}} {{+1}} {{0x1F}} {{0b101}} {{0o17}} {{017}} {{1_000}} {{'a'}} {{'\\n'}} {{1.5}} {{1e3}} {{1e6}} {{.5}} {{1.}}",
    "{{08}}",
    "{{9223372036854775807}} {{-9223372036854775808}}",
    "{{9223372036854775808}}",
    "{{99999999999999999999}}",
    "{{1__0}}",
    "{{'ab'}}",
    "{{\"a\\tb\\u00e9\\x41\\101\\\"\"}} {{`raw \\n \"q\"`}}",
    "{{\"\\q\"}}",
    "{{true}} {{false}} {{and}} ",
    "{{and 1 0 2}} {{and 1 2}} {{or 0 \"\" 3}} {{or 0 \"\"}} {{and .X .Nope}}",
    "{{and .N .Nope}}",
    "{{0 | and 1}} {{3 | or 0}} {{not 0}} {{not .L}}",
    "{{lt 1 2}} {{lt 1.5 2.5}} {{lt \"a\" \"b\"}} {{gt \"b\" \"a\"}} {{le 2 2}} {{ge 1 2}}",
    "{{lt 1 1.5}}",
    "{{lt true false}}",
    "{{eq 1 1.0}}",
    "{{eq true true}} {{eq 1.5 1.5}} {{eq \"a\" \"b\" \"a\"}} {{eq (index \"abc\" 0) 97}}",
    "{{eq .L .L}}",
    "{{eq .L .M}}",
    "{{eq 1}}",
    "{{ne 1 2 3}}",
    "{{printf \"%d %s\" 1}}",
    "{{printf \"%d\" 1 2 \"x\" nil}}",
    "{{printf \"%z %!\" 1}}",
    "{{printf \"%d\" \"x\"}} {{printf \"%s\" 1}} {{printf \"%t\" 1}} {{printf \"%s\" .L}} {{printf \"%d\" .M}}",
    "{{printf \"%5t|%-7t|%q|%c|%U|%#U\" true false 'x' 'y' 'z' 'z'}}",
    "{{printf \"%6.2f|%-8.1f|%+d|% d|%08.3f|%e|%g|%G\" 3.14159 2.5 5 5 -3.14159 12345.678 1e21 1e-7}}",
    "{{printf \"%x|%X|% x|%#x|%#o|%b|%o|%O\" \"hi\" 255 \"hi\" 255 8 5 8 8}}",
    "{{printf \"%[2]d %[1]d|%[3]d\" 1 2}} {{printf \"%*d|%-*d|%.*f\" 5 1 5 1 2 3.14159}}",
    "{{printf \"%%|%5%|%\"}}",
    "{{printf 3}}",
    "{{printf .X}}",
    "{{printf}}",
    "{{printf \"%v %v\" .L .M}} {{printf \"%+q %#q\" .U .S}} {{printf \"%10v|%-10v|\" .S .N}}",
    "{{.U}} {{html .U}} {{js .U}} {{urlquery .U}} {{printf \"%q\" .U}} {{len .U}}",
    "{{html .X}} {{html 1 2 \"a\" 3}} {{js .L}} {{urlquery}}",
    "{{print 1 2 \"a\" 3 4 nil nil \"b\"}} {{println}}",
    "{{slice .LS 1 2}} {{slice .LS 1 2 3}} {{slice \"abc\" 3}}",
    "{{slice \"abc\" 1 2 3}}",
    "{{slice .LS 2 1}}",
    "{{slice .N 1}}",
    "{{$x := 5}}{{$y := $x}}{{$x = 6}}{{$x}}{{$y}}",
    "{{$x := .M}}{{$x.a}}{{$x.c.d}}",
    "{{$x, $y := .L}}",
    "{{range $a, $b, $c := .L}}{{end}}",
    "{{range $i, $x := .LN}}{{$x = 9}}{{$x}}{{end}}",
    "{{$i := 7}}{{$x := 0}}{{range $i, $x = .LN}}{{$x}}{{end}}{{$i}}{{$x}}",
    "{{$x := 0}}{{range $x = .LE}}{{end}}{{$x}}",
    "{{range .LN}}{{range $.LS}}{{if eq . \"y\"}}{{break}}{{end}}{{.}}{{end}}{{.}}{{end}}",
    "{{range .LN}}{{block \"b\" .}}{{break}}{{end}}{{end}}",
    "{{if true}}{{else}}{{else}}{{end}}",
    "{{if true}}{{else with 1}}{{end}}",
    "{{if false}}{{$q := 1}}{{else}}{{$q}}{{end}}",
    "{{$q = 1}}",
    "{{define \"x\"}}1{{end}}{{define \"x\"}}2{{end}}",
    "{{define \"x\"}} {{end}}{{define \"x\"}}2{{end}}{{template \"x\"}}",
    "{{define \"message\"}}defined{{end}}",
    "{{if true}}{{define \"x\"}}{{end}}{{end}}",
    "{{1 |}}",
    "{{| 1}}",
    "{{()}}",
    "{{(1}}",
    "{{1)}}",
    "{{.S.}}",
    "{{..S}}",
    "{{.S.T .U}}",
    "{{(.M).a}} {{(index .L 5).k}} {{.M.c.d}} {{(nil).x}}",
    "{{\"a\".b}}",
    "{{print.b}}",
    "{{.M.c.nil}} {{.M.c.nope}}",
    "{{- 3}}{{3 -}} x {{-3}}",
    "{{ - 3}}",
    "a{{-}}b",
    "{{/* never closed",
    "{{/* closed */ x}}",
    "{{.S}}{{\"}}\"}}{{`}}`}}",
    "{{.S\n}}",
    "{{\n.S | \nprintf \"%s\"\n}}",
    "{{\"a\nb\"}}",
    "{{`a\nb`}}",
    "{{.S;}}",
    "{{.S € }}",
    "{{range 3}}{{.}}{{end}}{{range $i := 2}}{{$i}}{{end}}{{range 0}}x{{else}}none{{end}}{{range -1}}x{{else}}none{{end}}",
    "{{range 1.5}}{{end}}",
    "{{range true}}{{end}}",
    "{{$}}",
    "{{$.S}} {{with .M}}{{$.S}}{{.a}}{{end}}",
    "{{if .E}}x{{else if .Z}}y{{else if .B}}z{{else}}none{{end}}",
    "",
    "no actions at all }} { {",
    "{{template \"x\" .M}}{{define \"x\"}}{{.a}}{{$.b}}{{with .c}}{{.d}}{{end}}{{end}}",
    "{{template .S}}",
    "{{template \"x\" $y := 3}}{{$y}}{{define \"x\"}}{{.}}{{end}}",
];

fn data() -> (Data, Data, Data) {
    (message_data(&MessageData::Event(event())), message_data(&MessageData::Group(group())), everything())
}

#[test]
fn templates_come_to_what_go_makes_of_them() {
    let go = Go::start();
    let (event, group, everything) = data();
    let mut failures = Vec::new();
    for (templates, data) in [(EVENT, &event), (GROUP, &group), (ANY, &everything)] {
        for template in templates {
            match go.compare(template, data) {
                Ok(Answer::Same(_)) => {}
                Ok(Answer::Refused(refused)) => failures.push(format!("{template}\nrefused: {}", refused.0)),
                Err(error) => failures.push(error.to_string()),
            }
        }
    }
    let count = EVENT.len() + GROUP.len() + ANY.len();
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 80);
}

#[test]
fn default_templates_come_to_what_go_makes_of_them() {
    let go = Go::start();
    let mut empty = event();
    empty.username.clear();
    let one_type = upriver_template::ReconcileData { resource: "deployments".into(), ..reconcile() };
    let no_revision = upriver_template::ReconcileData { revision: String::new(), ..reconcile() };
    for data in [
        MessageData::Event(event()),
        MessageData::Event(empty),
        MessageData::Group(group()),
        MessageData::Group(upriver_template::GroupData::default()),
        MessageData::Reconcile(reconcile()),
        MessageData::Reconcile(one_type),
        MessageData::Reconcile(no_revision),
    ] {
        for kind in MessageKind::ALL {
            let answer = go
                .compare(kind.default_template(), &message_data(&data))
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(matches!(answer, Answer::Same(_)), "{kind:?}: {answer:?}");
        }
    }
}

#[test]
fn what_go_knows_and_we_do_not_is_refused_with_words() {
    let (_, _, everything) = data();
    let table = [
        ("a\n  {{call .S}}", "line 2, column 5: call is not known here"),
        ("{{1i}}", "complex numbers"),
        ("{{0x1p4}}", "floats in base 16"),
        ("{{\"\\xff\"}}", "no UTF-8"),
        ("{{slice \"é\" 1}}", "cuts a character in half"),
        ("{{printf \"%p\" .L}}", "%p is not known here"),
        ("{{printf \"%#v\" .L}}", "%#v is not known here"),
        ("{{printf \"%x\" 1.5}}", "floats cannot be written like this"),
    ];
    for (template, reason) in table {
        match common::ours(template, &everything) {
            Err(common::Refused(error)) => assert!(error.to_string().contains(reason), "{template}: {error}"),
            Ok(outcome) => panic!("{template}: {outcome:?}"),
        }
    }
}
