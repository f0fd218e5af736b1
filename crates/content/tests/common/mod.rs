//! What the tests of this crate share: random documents, and the folder of recorded cases.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod nasty;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Map, Value};

/// The folder with recorded cases: `UPRIVER_SHARED`, or `shared` beside the workspace. `None`, with a printed line, if
/// it is not there.
pub fn shared(part: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("UPRIVER_SHARED").map_or_else(beside, PathBuf::from).join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: no recorded cases at {} (set UPRIVER_SHARED)", folder.display());
    None
}

/// Every YAML file below a folder, in order.
pub fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            found.push(path);
        }
    }
}

/// Strings in which everything that YAML makes special is likely.
pub fn nasty_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,6}",
        2 => "[0-9_.,:+eExXoO\\-]{1,6}",
        2 => prop::sample::select(vec![
            " ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", ": ", " #", "#", "- ", "? ", "-", ":", "'", "\"", "\\", "%", "&",
            "*", "!", "|", ">", "@", "`", "{", "}", "[", "]", ",", "~", "=", "<<", "---", "...", "--- ", "\n---\n",
            "\u{85}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{7f}", "\u{0}", "\u{1b}", "\u{9f}", "\u{a0}", "\u{fffe}",
            "\u{ffff}", "\u{200d}", "é", "🚀", "\u{10ffff}", "\u{e000}", "\u{301}", "{{ .Values.x }}", "${A}",
        ])
        .prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            "y", "No", "yes", "ON", "off", "true", "False", "null", "Null", "NULL", "~", "0x1F", "0o17", "0b1", "012",
            "1e3", "1_000", ".5", ".inf", "-.INF", ".nan", "nan", "inf", "12:30:45", "2024-02-29", "2024-02-29T1:2:3Z",
            "2024-02-29 10:00:00", "1.", "+1", "-1", "=", "<<", "",
        ])
        .prop_map(str::to_owned),
        1 => "[+\\-]?[0-9]?_?[xob.,:]?_?[0-9a-f]{0,2}_?[eE]?_?[+\\-]?_?[0-9]{0,2}",
        1 => any::<char>().prop_map(String::from),
    ];
    prop_oneof![
        5 => prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
        1 => ("[a-z \n\t]{0,12}", 1_usize..200).prop_map(|(text, times)| text.repeat(times)),
    ]
}

/// Numbers of every sort that JSON and the API know.
pub fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        (-1000_i64..1000).prop_map(|number| Value::from(number as f64)),
        (-1000_i64..1000).prop_map(|number| Value::from(number as f64 / 8.0)),
        any::<f64>()
            .prop_filter("JSON knows finite numbers only", |number| number.is_finite())
            .prop_map(Value::from),
        (-320_i32..308).prop_map(|exponent| Value::from(10_f64.powi(exponent))),
    ]
}

/// Any JSON value, a few levels deep.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        2 => number(),
        6 => nasty_text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((nasty_text(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// A map of names to texts, as labels and annotations are.
fn names() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        nasty_text(),
        prop::sample::select(vec![
            "kro.run/x",
            "kubectl.kubernetes.io/last-applied-configuration",
            "kcp.io/cluster",
            "app",
            "a2",
            "a10",
            "cert-manager.io/inject-ca-from",
            "pv.kubernetes.io/bind-completed",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec((key, nasty_text().prop_map(Value::String)), 0..5)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

/// A live object: a type with or without rules of its own, server fields, and anything below the other keys.
pub fn object() -> impl Strategy<Value = Value> {
    let types = vec![
        ("v1", "ConfigMap"),
        ("v1", "Service"),
        ("v1", "Namespace"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "ServiceAccount"),
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ("example.test/v1", "Service"),
    ];
    let field = prop_oneof![
        3 => prop::sample::select(vec!["spec", "data", "rules", "status", "webhooks", "secrets", "aggregationRule"])
            .prop_map(str::to_owned),
        1 => nasty_text(),
    ];
    let name = nasty_text().prop_filter("a name is not empty", |name| !name.is_empty());
    (
        prop::sample::select(types),
        (name, prop_oneof![Just(String::new()), nasty_text()]),
        (names(), names()),
        prop::collection::vec((field, value()), 0..5),
    )
        .prop_map(|((api_version, kind), (name, namespace), (labels, annotations), fields)| {
            let mut metadata = Map::new();
            metadata.insert("name".into(), name.into());
            if !namespace.is_empty() {
                metadata.insert("namespace".into(), namespace.into());
            }
            metadata.insert("labels".into(), labels);
            metadata.insert("annotations".into(), annotations);
            metadata.insert("uid".into(), "00000000-0000-0000-0000-000000000000".into());
            metadata.insert("managedFields".into(), serde_json::json!([{"fieldsV1": {"f:data": {}}}]));
            let mut root: Map<String, Value> = fields.into_iter().collect();
            root.insert("apiVersion".into(), api_version.into());
            root.insert("kind".into(), kind.into());
            root.insert("metadata".into(), Value::Object(metadata));
            Value::Object(root)
        })
}

/// The same value as JSON text whose keys stand in another order, chosen by `seed`.
pub fn shuffled_json(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(u64, String)> = map
                .iter()
                .enumerate()
                .map(|(index, (key, value))| {
                    let index = u64::try_from(index).expect("few keys");
                    let rank = (seed ^ index).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
                    (rank, format!("{}:{}", Value::from(key.as_str()), shuffled_json(value, rank)))
                })
                .collect();
            entries.sort();
            let entries: Vec<String> = entries.into_iter().map(|(_, entry)| entry).collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| shuffled_json(item, seed)).collect();
            format!("[{}]", items.join(","))
        }
        leaf => leaf.to_string(),
    }
}
