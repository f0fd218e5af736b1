//! What does the API server have to know about our kinds?
//!
//! In: the Rust types. Out: six CRDs and their YAML, the same bytes on every run. The generator's habits are corrected
//! here: no `nullable` (an explicit null would be kept, and defaulting skipped), no titles, one-line descriptions.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::{ClusterProvider, ClusterWatchRule, CommitRequest, GitProvider, GitTarget, WatchRule};

/// Command that writes the files; in their header and in the message of the test that compares them.
pub const COMMAND: &str = "cargo run -p upriver-api --example print-crds -- deploy/kustomize/base/crds";

/// The six CRDs, by name.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        ClusterProvider::crd(),
        ClusterWatchRule::crd(),
        CommitRequest::crd(),
        GitProvider::crd(),
        GitTarget::crd(),
        WatchRule::crd(),
    ];
    for crd in &mut crds {
        tidy(crd);
    }
    crds
}

fn tidy(crd: &mut CustomResourceDefinition) {
    let names = &mut crd.spec.names;
    names.categories = names.categories.take().filter(|list| !list.is_empty());
    names.short_names = names.short_names.take().filter(|list| !list.is_empty());
    for version in &mut crd.spec.versions {
        version.selectable_fields = version.selectable_fields.take().filter(|list| !list.is_empty());
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy_schema(schema);
        }
    }
}

fn tidy_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(text) = &mut schema.description {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy_schema(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => tidy_schema(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy_schema),
        None => {}
    }
    match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(value)) => tidy_schema(value),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => {}
    }
}

/// A CRD as YAML with a header that says where it comes from.
///
/// # Panics
/// Never: a CRD is plain data.
#[must_use]
pub fn render(crd: &CustomResourceDefinition) -> String {
    let value = serde_json::to_value(crd).expect("a CRD is plain data");
    let body = serde_saphyr::to_string(&Sorted::from(value)).expect("sorted JSON is plain data");
    format!("# Generated, do not edit: {COMMAND}\n{}\n", body.trim_end())
}

/// File name of a CRD below `deploy/kustomize/base/crds`.
#[must_use]
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// The `kustomization.yaml` that lists the files of [`all`].
#[must_use]
pub fn kustomization() -> String {
    let mut text = format!(
        "# Generated, do not edit: {COMMAND}\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    );
    for crd in all() {
        text.push_str(&format!("- {}\n", file_name(&crd)));
    }
    text
}

/// JSON with sorted keys. Another crate's features decide how serde_json orders its maps; the files must not care.
#[derive(Serialize)]
#[serde(untagged)]
enum Sorted {
    Map(BTreeMap<String, Sorted>),
    List(Vec<Sorted>),
    Scalar(Value),
}

impl From<Value> for Sorted {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(map) => {
                Self::Map(map.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            // Limits are floats in the schema types; `minimum: 1` reads better than `minimum: 1.0`.
            Value::Number(number) => Self::Scalar(whole(&number).map_or(Value::Number(number), Value::from)),
            Value::Array(list) => Self::List(list.into_iter().map(Into::into).collect()),
            scalar @ (Value::Null | Value::Bool(_) | Value::String(_)) => Self::Scalar(scalar),
        }
    }
}

/// The integer that a float stands for, if it does.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    format!("{float:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(schema: &JSONSchemaProps, path: &str, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
        visit(path, schema);
        for (name, property) in schema.properties.iter().flatten() {
            walk(property, &format!("{path}.{name}"), visit);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            walk(item, &format!("{path}[]"), visit);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
            walk(value, &format!("{path}{{}}"), visit);
        }
    }

    fn each(mut visit: impl FnMut(&str, &JSONSchemaProps)) {
        for crd in all() {
            let schema =
                crd.spec.versions[0].schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            walk(schema.expect("every kind has a schema"), &crd.spec.names.kind, &mut visit);
        }
    }

    #[test]
    fn no_schema_is_nullable_or_composed_and_each_has_a_type() {
        each(|path, schema| {
            let composed = [&schema.any_of, &schema.one_of, &schema.all_of].iter().any(|list| list.is_some());
            assert!(!composed && schema.not.is_none(), "{path}");
            assert!(schema.type_.is_some(), "{path} has no type");
            assert_eq!(schema.nullable, None, "{path}");
        });
        for crd in all() {
            assert!(!render(&crd).contains("nullable"), "{}", crd.spec.names.kind);
        }
    }

    #[test]
    fn numbers_are_signed_and_every_field_of_ours_is_described() {
        each(|path, schema| {
            let format = schema.format.as_deref();
            let is_integer = schema.type_.as_deref() == Some("integer");
            assert!(!is_integer || matches!(format, Some("int32" | "int64")), "{path}: {format:?}");
            let is_field = !path.ends_with("[]") && !path.ends_with("{}") && path.contains(".spec");
            assert!(
                !is_field || path.ends_with(".spec") || schema.description.is_some(),
                "{path} says nothing"
            );
        });
    }

    #[test]
    fn list_and_map_types_are_those_of_the_contract_and_no_others() {
        each(|path, schema| {
            let list_type = schema.x_kubernetes_list_type.as_deref();
            let expected = match path.rsplit('.').next() {
                Some("conditions") => Some("map"),
                Some("names") => Some("set"),
                Some("matchExpressions" | "values") => Some("atomic"),
                _ => None,
            };
            assert_eq!(list_type, expected, "{path}");
            let keys = (expected == Some("map")).then(|| vec!["type".to_owned()]);
            assert_eq!(schema.x_kubernetes_list_map_keys, keys, "{path}");
            let map_type = path.ends_with(".selector").then_some("atomic");
            assert_eq!(schema.x_kubernetes_map_type.as_deref(), map_type, "{path}");
        });
    }

    #[test]
    fn cel_rules_are_the_eleven_of_the_contract() {
        let mut rules = Vec::new();
        each(|path, schema| {
            for rule in schema.x_kubernetes_validations.iter().flatten() {
                assert!(rule.message.is_some(), "{path}: {}", rule.rule);
                rules.push(format!("{path}: {}", rule.rule));
            }
        });
        assert_eq!(
            rules,
            [
                "ClusterProvider.spec: has(self.kubeConfig) == has(oldSelf.kubeConfig) && (!has(self.kubeConfig) || self.kubeConfig == oldSelf.kubeConfig)",
                "ClusterProvider.spec: !has(self.kubeConfig) || !has(self.kubeConfig.configMapRef)",
                "ClusterProvider.spec: !has(self.kubeConfig) || !has(self.kubeConfig.secretRef) || size(self.kubeConfig.secretRef.name) > 0",
                "ClusterProvider.spec.kubeConfig: has(self.configMapRef) || has(self.secretRef)",
                "ClusterProvider.spec.kubeConfig: !has(self.configMapRef) || !has(self.secretRef)",
                "CommitRequest.spec: self == oldSelf",
                "GitProvider.spec: self.url == oldSelf.url",
                "GitTarget.spec: self.providerRef == oldSelf.providerRef",
                "GitTarget.spec: self.branch == oldSelf.branch",
                "GitTarget.spec: self.path == oldSelf.path",
                "GitTarget.spec: self.clusterProviderRef == oldSelf.clusterProviderRef",
            ]
        );
    }

    #[test]
    fn defaults_are_those_of_the_contract_and_no_others() {
        let mut defaults = BTreeMap::new();
        each(|path, schema| {
            if let Some(default) = &schema.default {
                defaults.insert(path.to_owned(), default.0.to_string());
            }
        });
        let of = |path: &str| defaults.get(path).map(String::as_str);
        assert_eq!(of("GitTarget.spec.clusterProviderRef"), Some(r#"{"name":"default"}"#));
        assert_eq!(of("GitTarget.spec.prune.mode"), Some("\"OnEvent\""));
        assert_eq!(of("GitTarget.spec.encryption.provider"), Some("\"sops\""));
        assert_eq!(of("GitTarget.spec.encryption.age.enabled"), Some("false"));
        assert_eq!(of("GitProvider.spec.secretRef.group"), Some("\"\""));
        assert_eq!(of("GitProvider.spec.commit.signing.generateWhenMissing"), Some("false"));
        assert_eq!(of("GitProvider.spec.commit.committer.name"), Some("\"Upriver\""));
        assert_eq!(of("ClusterProvider.spec.allowSourceNamespaceOverride"), Some("false"));
        assert_eq!(of("ClusterWatchRule.spec.rules[].scope"), Some("\"Cluster\""));
        let leaf_names = ["group", "kind", "name", "email", "enabled", "mode", "provider", "scope"];
        for path in defaults.keys() {
            let leaf = path.rsplit('.').next().unwrap_or_default();
            let known = leaf_names.contains(&leaf)
                || [
                    "clusterProviderRef",
                    "extractFromSecret",
                    "generateWhenMissing",
                    "allowSourceNamespaceOverride",
                ]
                .contains(&leaf);
            assert!(known, "{path} has a default that the contract lacks");
        }
    }
}
