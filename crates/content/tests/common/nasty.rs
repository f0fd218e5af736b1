//! Objects made to be misread: texts in which every rule of YAML 1.1 and 1.2 about scalars is likely to apply.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{nasty_text, number};

/// Every plain text that the type repository of YAML 1.1 or the core schema of 1.2 gives a meaning, in all its cases,
/// and what particular readers take for a number or a time besides.
pub const LOOKALIKES: &str = "y Y n N yes Yes YES no No NO true True TRUE false False FALSE on On ON off Off OFF
    null Null NULL ~ = << .inf .Inf .INF +.inf +.Inf +.INF -.inf -.Inf -.INF .nan .NaN .NAN nan NaN inf Inf -inf +inf infinity
    0 -0 +0 1 -1 +1 42 123_456 1__0 _1 1_ 0_1 00 01 012 -012 +012 08 09 018 0o14 0O14 -0o7 0o8 0x1F 0X1f -0x1 +0x1 0x 0xG
    0b1010 0B1 -0b1 +0b1 0b2 0b 0_x4 0b+0 1,000 190:20:30 12:30 12:30:45 1:2 -1:20 +190:20:30 60:60 1:60 190:20:30.15 0:0.
    1.0 1. .5 -.5 +.5 0.5 685_230.15 6.8523015e+5 685.230_15e+03 1e3 1E3 1e+3 1e-3 1.5e3 .5e3 .e3 1.e3 e3 E3 -e3 1e 1e+ . .. ._ -. +
    1e400 -1e400 1e-400 9223372036854775807 9223372036854775808 -9223372036854775809 18446744073709551615
    18446744073709551616 123456789012345678901234567890 0x7fffffffffffffff 0xffffffffffffffffff
    2001-12-14 2001-1-1 2001-12-14T21:59:43.10-05:00 2001-12-14t21:59:43Z 2024-02-29 2024-13-45 0000-00-00 20240229
    12e03 1e00 0e0 00e0 0.0 -0.0 +0.0 0x1p3 0x1.8p1 1f 1d 0777 0o 0.1.2 1.2.3 10.0.0.1 1:2:3 a:b 2001 199 1-1 1-2-3";

/// Words, each alone as a text.
pub fn lookalikes() -> impl Iterator<Item = &'static str> {
    LOOKALIKES.split_whitespace().chain([
        "",
        "2001-12-14 21:59:43.10 -5",
        "2001-12-15 2:59:43.10",
        "2001-12-14\t21:59:43",
        "1 000",
        " 1",
        "1 ",
        "true ",
    ])
}

/// Lines that mean something to a parser if they stand at the wrong place.
const LINES: [&str; 36] = [
    "",
    "",
    "",
    " ",
    "  ",
    "      ",
    "\t",
    "\tx",
    "  x",
    " x",
    "x",
    "x ",
    "x\t",
    "# c",
    " # c",
    "---",
    "--- x",
    "...",
    "-",
    "- a",
    "? a",
    ": a",
    "a: b",
    "a:",
    "%YAML 1.1",
    "%TAG ! !",
    "&a b",
    "*a",
    "!t",
    "|",
    ">-",
    "'",
    "\"",
    "{",
    "]",
    "🚀 é",
];

/// Characters that are line breaks, blanks or nothing at all to some readers.
const SPECIAL: [&str; 22] = [
    "\r",
    "\r\n",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\u{0}",
    "\u{1}",
    "\u{7}",
    "\u{8}",
    "\u{b}",
    "\u{c}",
    "\u{1b}",
    "\u{7f}",
    "\u{80}",
    "\u{9f}",
    "\u{a0}",
    "\u{ad}",
    "\u{fffe}",
    "\u{ffff}",
    "\u{10fffe}",
    "\u{1f600}",
];

/// Several lines, with all that can begin and end a block.
fn block() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        6 => prop::sample::select(LINES.to_vec()).prop_map(str::to_owned),
        1 => (0_usize..90, "[a-z ]{1,5}").prop_map(|(times, text)| text.repeat(times)),
        1 => nasty_text(),
    ];
    (0_usize..3, prop::collection::vec(line, 1..6), 0_usize..4)
        .prop_map(|(before, lines, behind)| "\n".repeat(before) + &lines.join("\n") + &"\n".repeat(behind))
}

/// A text of one line around one oddity.
fn around() -> impl Strategy<Value = String> {
    let oddity = prop_oneof![
        prop::sample::select(SPECIAL.to_vec()).prop_map(str::to_owned),
        prop::sample::select(LINES.to_vec()).prop_map(str::to_owned),
        prop::sample::select(vec![": ", " #", ":", "#", ",", "]", "}", "'", "\\", "\"", " - ", " ? "])
            .prop_map(str::to_owned),
    ];
    ("[a-z0-9 \n]{0,3}", oddity, "[a-z0-9 \n]{0,3}")
        .prop_map(|(before, oddity, behind)| before + &oddity + &behind)
}

/// A look-alike, or one with something before or behind it.
fn lookalike() -> impl Strategy<Value = String> {
    let words: Vec<&str> = lookalikes().collect();
    let word = prop::sample::select(words);
    prop_oneof![
        3 => word.clone().prop_map(str::to_owned),
        1 => (word.clone(), prop::sample::select(vec![":", " ", "\n", "#", " #", "_", "e", "-", "+", ".", ","]))
            .prop_map(|(word, end)| format!("{word}{end}")),
        1 => (prop::sample::select(vec!["-", "+", "- ", ".", "_", " ", "\n", "0", "!", "&"]), word)
            .prop_map(|(start, word)| format!("{start}{word}")),
    ]
}

/// Any text.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => nasty_text(), 4 => block(), 3 => around(), 3 => lookalike()]
}

/// Any key: now and then one around the length at which readers stop to look for its colon.
pub fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => text(),
        4 => "[a-z]{1,6}",
        1 => (990_usize..1040, "[a-z: #'\"é\n]").prop_map(|(length, text)| text.repeat(length)),
        1 => (120_usize..135, text()).prop_map(|(length, end)| "k".repeat(length) + &end),
    ]
}

/// Any JSON value; empty collections are as likely as full ones.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Array(Vec::new())),
        1 => Just(Value::Object(Map::new())),
        2 => number(),
        8 => text().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            entries(inner).prop_map(Value::Object),
        ]
    })
}

fn entries(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((key(), value), 0..5).prop_map(|entries| entries.into_iter().collect())
}

/// Any object.
pub fn object() -> impl Strategy<Value = Value> {
    entries(value()).prop_map(Value::Object)
}
