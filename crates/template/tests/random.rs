//! Random templates, compared with Go's text/template, and random text, which must do no harm.

mod common;

use std::cell::Cell;

use common::oracle::search;
use common::{Answer, Data, Go, Outcome, event, everything, group, message_data};
use proptest::prelude::*;
use upriver_template::{MessageData, MessageKind, Template, Value, check, render_or_default};

fn pick(words: &'static [&'static str]) -> BoxedStrategy<String> {
    prop::sample::select(words).prop_map(str::to_owned).boxed()
}

/// A word that stands for a value.
fn operand() -> BoxedStrategy<String> {
    prop_oneof![
        40 => pick(&[".", "$", "$.S", "$.E", "$.U", "$.N", "$.Z", "$.G", "$.F", "$.T", "$.B", "$.X", "$.L", "$.LE", "$.LS", "$.LN",
            "$.M", "$.ME", "$.M.a", "$.M.c.d", "$.M.n", "$.M.c", "$x", "$y", "$x", "$.Q", "$.H", "$.W"]),
        12 => pick(&["0", "1", "2", "-3", "+7", "0x10", "1.5", "1e6", "2.0", "1e-9", "'a'", "'\\n'", "017", "1_0", "9223372036854775807"]),
        16 => pick(&["\"\"", "\"a\"", "\"b c\"", "`raw`", "\"é\\n\"", "\"k\"", "\"c\"", "\"%v\"", "\"%d-%s\"", "\"%q|%5v\""]),
        8 => pick(&["true", "false"]),
        1 => pick(&[".S", ".M.c", ".Nope", "$.S.T", "$.M.nope", "$.X.y", "$z", ".L.a", "nil"]),
    ]
    .boxed()
}

/// A command: an operand, or a function and what it is given.
fn command(operand: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let function = pick(&[
        "and", "or", "not", "len", "index", "slice", "print", "printf", "println", "html", "js", "urlquery",
        "eq", "ne", "lt", "le", "gt", "ge",
    ]);
    let sensible = prop_oneof![
        1 => pick(&["index $.L 0", "index $.M \"c\"", "slice $.LS 1", "len $.L", "eq $.N 42", "not $.X", "printf \"%v\" $.L",
            "lt $.N 50", "len $.U", "slice $.S 2 4", "index $.L 4 1", "eq $.X nil", "index $.M \"none\"", "ge $.F 2.5"]),
        2 => (pick(&["print", "println", "html", "js", "urlquery", "and", "or", "not", "printf \"%v\"", "printf \"%s|%v\" 1"]),
            operand.clone())
            .prop_map(|(function, operand)| format!("{function} {operand}")),
        1 => (pick(&["print", "and", "or", "html", "printf \"%v|%v\""]), operand.clone(), operand.clone())
            .prop_map(|(function, one, two)| format!("{function} {one} {two}")),
    ];
    prop_oneof![
        30 => operand.clone(),
        30 => sensible,
        1 => (function, prop::collection::vec(operand.clone(), 0..4))
            .prop_map(|(function, operands)| format!("{function} {}", operands.join(" "))),
        1 => prop::collection::vec(operand, 1..3).prop_map(|operands| operands.join(" ")),
    ]
    .boxed()
}

fn pipe() -> BoxedStrategy<String> {
    let expression = operand().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            20 => command(inner.clone()).prop_map(|command| format!("({command})")),
            10 => (command(inner.clone()), pick(&["print 1", "html", "and 1"])).prop_map(|(first, second)| format!("({first} | {second})")),
            1 => (command(inner), pick(&[".a", ".c.d", ".k"])).prop_map(|(command, field)| format!("({command}){field}")),
        ]
    });
    let command = command(expression.boxed());
    let stage = pick(&[
        "not",
        "print",
        "printf \"<%v>\"",
        "html",
        "js",
        "urlquery",
        "and 1",
        "or 0",
        "printf \"%s %v\" 1",
    ]);
    let wild = pick(&["len", "eq 1", "index $.L", "slice $.LS", "ge 3", "3", ".S", "index $.M"]);
    prop_oneof![
        60 => command.clone(),
        20 => (command.clone(), stage.clone()).prop_map(|(command, stage)| format!("{command} | {stage}")),
        10 => (command.clone(), stage.clone(), stage).prop_map(|(command, one, two)| format!("{command} | {one} | {two}")),
        1 => (command.clone(), wild).prop_map(|(one, two)| format!("{one} | {two}")),
        1 => (command.clone(), command).prop_map(|(one, two)| format!("{one}|{two}")),
    ]
    .boxed()
}

/// A template, nearly always a right one.
fn template() -> BoxedStrategy<String> {
    let open = || pick(&["{{", "{{", "{{", "{{- ", "{{ "]);
    let close = || pick(&["}}", "}}", "}}", " -}}", " }}"]);
    let leaf = prop_oneof![
        8 => pick(&["text", " ", "\n", "a b\n ", "-", "}", "{ {", "é", "  x  "]),
        16 => (open(), pipe(), close()).prop_map(|(open, pipe, close)| open + &pipe + &close),
        8 => (pick(&["$x", "$y"]), pick(&[" := ", " = ", ":="]), pipe())
            .prop_map(|(name, sign, pipe)| format!("{{{{{name}{sign}{pipe}}}}}")),
        3 => pick(&["{{/* note */}}", "{{- /* note */ -}}", "{{$x}}", "{{.}}"]),
        1 => pick(&["{{break}}", "{{continue}}", "{{template \"t\" .}}", "{{template \"t\"}}", "{{template \"nope\"}}",
            "{{template \"b\" .M}}"]),
    ];
    let node = leaf.prop_recursive(4, 24, 4, move |inner| {
        let body = prop::collection::vec(inner, 0..4).prop_map(|nodes| nodes.concat());
        let head = pick(&["if", "with", "if", "with", "with $y :=", "if $x :="]);
        let loops = pick(&[
            "range", "range $x :=", "range $x, $y :=", "range $x =", "range $x, $y =", "range $i, $x :=", "range $y, $x :=",
        ]);
        let list = prop_oneof![20 => pick(&["$.L", "$.LS", "$.LN", "$.M", "$.LE", "$.M.c", "3", "$.X"]), 1 => pipe()];
        prop_oneof![
            2 => (head.clone(), pipe(), body.clone()).prop_map(|(head, pipe, body)| format!("{{{{{head} {pipe}}}}}{body}{{{{end}}}}")),
            2 => (head, pipe(), body.clone(), body.clone())
                .prop_map(|(head, pipe, one, two)| format!("{{{{{head} {pipe}}}}}{one}{{{{else}}}}{two}{{{{end}}}}")),
            1 => (pipe(), body.clone(), pipe(), body.clone(), pick(&["if", "with"]), pick(&["if", "with"])).prop_map(
                |(one, first, two, second, head, again)| {
                    format!("{{{{{head} {one}}}}}{first}{{{{else {again} {two}}}}}{second}{{{{else}}}}-{{{{end}}}}")
                }
            ),
            1 => (loops.clone(), list.clone(), body.clone(), pipe(), pick(&["break", "continue"]), body.clone()).prop_map(
                |(head, list, one, pipe, leave, two)| {
                    format!("{{{{{head} {list}}}}}{one}{{{{if {pipe}}}}}{{{{{leave}}}}}{{{{end}}}}{two}{{{{end}}}}")
                }
            ),
            3 => (loops.clone(), list.clone(), body.clone())
                .prop_map(|(head, list, body)| format!("{{{{{head} {list}}}}}{body}{{{{end}}}}")),
            1 => (loops, list, body.clone(), body.clone())
                .prop_map(|(head, list, one, two)| format!("{{{{{head} {list}}}}}{one}{{{{else}}}}{two}{{{{end}}}}")),
            1 => (pick(&["b", "c"]), pipe(), body)
                .prop_map(|(name, pipe, body)| format!("{{{{block \"{name}\" {pipe}}}}}{body}{{{{end}}}}")),
        ]
    });
    let start = pick(&[
        "{{$x := 1}}{{$i := 2}}{{$y := .S}}{{define \"t\"}}({{.}}{{end}}",
        "{{$x := .M}}{{$i := 2}}{{$y := .L}}{{define \"t\"}}[{{print .}}]{{$x := .}}{{$x}}{{end}}",
    ]);
    (start, prop::collection::vec(node, 1..5)).prop_map(|(start, nodes)| start + &nodes.concat()).boxed()
}

/// Pieces of syntax in any order.
fn soup() -> impl Strategy<Value = String> {
    let piece = pick(&[
        "{{",
        "}}",
        "{{",
        "}}",
        " ",
        " ",
        "-",
        "|",
        "(",
        ")",
        "$",
        "$x",
        ".",
        ".S",
        ".M.a",
        ":=",
        "=",
        ",",
        "if",
        "else",
        "end",
        "range",
        "with",
        "break",
        "continue",
        "define",
        "block",
        "template",
        "\"t\"",
        "`r`",
        "'c'",
        "1",
        "-1",
        "1.5",
        "0x",
        "nil",
        "true",
        "print",
        "len",
        "nope",
        "/*",
        "*/",
        "\n",
        "x",
        "{{end}}",
        "{{if .T}}",
        "{{range .L}}",
        "{{else}}",
        "{{- ",
        " -}}",
        "\"",
        "_",
        "é",
        "1i",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// Compares many templates. Few of them may need what we lack, or the comparison says little.
fn compare(cases: u32, templates: &impl Strategy<Value = String>, data: &[Data]) {
    let go = Go::start();
    let (all, refused, texts) = (Cell::new(0_u32), Cell::new(0_u32), Cell::new(0_u32));
    search(cases, templates, |template| {
        for data in data {
            all.set(all.get() + 1);
            match go.compare(&template, data)? {
                Answer::Refused(_) => refused.set(refused.get() + 1),
                Answer::Same(Outcome::Text(_)) => texts.set(texts.get() + 1),
                Answer::Same(_) => {}
            }
        }
        Ok(())
    });
    println!("{} templates, {} rendered, {} refused", all.get(), texts.get(), refused.get());
    assert!(refused.get() * 20 < all.get() && texts.get() * 20 > all.get());
}

/// Go would need hours for it, and its answer does not matter.
#[test]
fn a_template_without_end_is_not_shown_to_go() {
    let go = Go::start();
    let endless = "{{block \"b\" .}}{{range $.LN}}{{template \"b\" $}}{{end}}{{end}}";
    let answer = go.compare(endless, &everything()).expect("no difference");
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
}

#[test]
fn random_templates_come_to_what_go_makes_of_them() {
    compare(2500, &template(), &[everything()]);
}

#[test]
fn random_syntax_is_accepted_exactly_if_go_accepts_it() {
    compare(4000, &soup(), &[everything()]);
}

#[test]
fn random_formats_are_written_as_go_writes_them() {
    let verb = prop_oneof![
        8 => "%[#+\\- 0]{0,2}[0-9]{0,2}(\\.[0-9]?)?[vdsqxXtcUboOeEfFgGTz]",
        2 => "%[dsvq]",
        1 => "%\\[[0-3]?\\]?[0-9*]?(\\.\\*)?[dsvq%]",
        1 => "%[*.]{0,3}[ds%]?",
        2 => "[a-z% é]{0,3}",
    ];
    let value = pick(&[
        ".S",
        ".E",
        ".U",
        ".N",
        ".Z",
        ".G",
        ".F",
        ".T",
        ".X",
        ".L",
        ".LS",
        ".M",
        "'x'",
        "1e6",
        "1e5",
        "0.0001",
        "0.00001",
        "1e20",
        "1e21",
        "123456789.0",
        "-0.5",
        "-1",
        "(index .S 0)",
        "3",
        "\"a`b\"",
        "100.0",
        "0.1",
        "2.5",
        "1e100",
    ]);
    let pattern = prop::collection::vec(verb, 1..4).prop_map(|verbs| verbs.concat());
    let templates = (pattern, prop::collection::vec(value, 0..5))
        .prop_map(|(pattern, values)| format!("{{{{printf {pattern:?} {}}}}}", values.join(" ")));
    let go = Go::start();
    search(4000, &templates, |template| go.compare(&template, &everything()).map(|_| ()));
}

#[test]
fn random_literals_are_read_as_go_reads_them() {
    let literal = prop_oneof![
        3 => "[+-]?(0[xXbBoO])?[0-9_]{0,4}(\\.[0-9_]{0,3})?([eE][+-]?[0-9]{0,3})?",
        2 => "[+-]?[0-9]{15,22}",
        1 => "[+-]?0[xX][0-9a-fA-F_]{0,18}",
        3 => "\"(\\\\[abfnrtv\\\\'\"xuU0-9]|[0-9a-f]|[ -~é]){0,8}\"",
        2 => "'(\\\\[abfnrtv\\\\'\"xuU0-9]|[0-9a-f]|[ -~é]){0,3}'",
    ];
    let templates = literal.prop_map(|literal| format!("{{{{{literal}}}}}|{{{{printf \"%v\" {literal}}}}}"));
    let go = Go::start();
    search(4000, &templates, |template| go.compare(&template, &everything()).map(|_| ()));
}

/// Characters whose standing has not changed for years: Go and Rust may have tables of different ages.
fn known_text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range('\0', '\u{7f}'),
        2 => prop::char::range('\u{80}', '\u{24f}'),
        1 => prop::char::range('\u{300}', '\u{36f}'),
        1 => prop::char::range('\u{2000}', '\u{206f}'),
        1 => prop::char::range('\u{4e00}', '\u{9fff}'),
        1 => prop::char::range('\u{e000}', '\u{e0ff}'),
        1 => prop::char::range('\u{feff}', '\u{feff}'),
        1 => prop::char::range('\u{fff0}', '\u{ffff}'),
        1 => prop::char::range('\u{1f600}', '\u{1f64f}'),
        1 => prop::char::range('\u{e0000}', '\u{e01ff}'),
        1 => prop::char::range('\u{10fff0}', '\u{10ffff}'),
    ];
    prop::collection::vec(character, 0..12).prop_map(String::from_iter)
}

#[test]
fn any_text_as_a_value_is_written_as_go_writes_it() {
    let go = Go::start();
    let template = "{{.}}|{{printf \"%q|%+q|%x|%.2s|%4s|%#q\" . . . . . .}}|{{html .}}|{{js .}}|{{urlquery .}}|{{len .}}|{{print . 1 .}}";
    search(1500, &known_text(), |text| go.compare(template, &common::any_data(text.into())).map(|_| ()));
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        soup(),
        template(),
        any::<String>(),
        "\\{\\{printf \"%[#+0 -]?[0-9]{0,7}(\\.[0-9]{1,7})?[vdsqxXcUboOeEfFgGt]\" ([0-9]{1,4}|1\\.5|\"x\"|\\.)\\}\\}",
        "\\{\\{.{0,40}\\}\\}",
        (soup(), 1_usize..300).prop_map(|(text, times)| text.repeat(times))
    ]
}

#[test]
fn no_text_does_any_harm_as_a_template() {
    let values: Vec<Value> = vec![
        everything().value,
        message_data(&MessageData::Event(event())).value,
        message_data(&MessageData::Group(group())).value,
    ];
    search(1500, &hostile(), |text| {
        if let Ok(template) = Template::parse(&text) {
            for value in &values {
                if let Ok(message) = template.render(value) {
                    prop_assert!(message.len() <= 64 * 1024);
                }
            }
        }
        for kind in MessageKind::ALL {
            if let Err(error) = check(kind, &text) {
                prop_assert!(error.line >= 1 && error.column >= 1 && !error.message.is_empty());
            }
        }
        let rendered = render_or_default(Some(&text), &MessageData::Group(group()));
        prop_assert!(!rendered.message.trim().is_empty());
        if check(MessageKind::Group, &text).is_err() && rendered.fault.is_some() {
            prop_assert_eq!(rendered.message, "jane on prod: 3 resource(s)");
        }
        Ok(())
    });
}
