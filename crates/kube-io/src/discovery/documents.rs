//! The documents of discovery, in both of their forms.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;
use upriver_model::Gvr;

use super::{GroupVersionAnswer, ServedType};

/// What the server says of a group-version whose types it could not read.
const STALE: &str = "Stale";

/// What a root answered.
pub(super) enum Document {
    /// Everything.
    Aggregated(Vec<GroupVersionAnswer>),
    /// Only which group-versions there are.
    Plain(Vec<Listed>),
}

/// A group-version that a plain root lists.
pub(super) struct Listed {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) preferred: bool,
}

impl Listed {
    pub(super) fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

#[derive(Deserialize)]
struct Head {
    kind: String,
}

#[derive(Deserialize)]
struct AggregatedRoot {
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

#[derive(Deserialize)]
struct CoreVersions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<Version>,
    #[serde(default)]
    preferred_version: Option<Version>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: Option<bool>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

/// Reads `/api` or `/apis`, whichever form it has.
pub(super) fn root(body: &[u8]) -> Result<Document, String> {
    let failed = |error: serde_json::Error| format!("an unreadable document: {error}");
    let head: Head = serde_json::from_slice(body).map_err(failed)?;
    match head.kind.as_str() {
        "APIGroupDiscoveryList" => {
            let root: AggregatedRoot = serde_json::from_slice(body).map_err(failed)?;
            Ok(Document::Aggregated(root.items.into_iter().flat_map(aggregated_group).collect()))
        }
        "APIVersions" => {
            let core: CoreVersions = serde_json::from_slice(body).map_err(failed)?;
            let listed = |(index, version)| Listed { group: String::new(), version, preferred: index == 0 };
            Ok(Document::Plain(core.versions.into_iter().enumerate().map(listed).collect()))
        }
        "APIGroupList" => {
            let root: Groups = serde_json::from_slice(body).map_err(failed)?;
            Ok(Document::Plain(root.groups.into_iter().flat_map(plain_group).collect()))
        }
        other => Err(format!("an unknown document of kind {other:?}")),
    }
}

fn aggregated_group(group: AggregatedGroup) -> Vec<GroupVersionAnswer> {
    let name = group.metadata.name;
    let answer = |(index, version): (usize, AggregatedVersion)| {
        let types = version.resources.into_iter();
        let types = types.map(|resource| aggregated_type(&name, &version.version, index == 0, resource));
        GroupVersionAnswer {
            group: name.clone(),
            failure: (version.freshness == STALE)
                .then(|| "the API server cannot read it from its backend".to_owned()),
            types: types.collect(),
            version: version.version,
        }
    };
    // The versions come in the server's order of preference.
    group.versions.into_iter().enumerate().map(answer).collect()
}

fn aggregated_type(group: &str, version: &str, preferred: bool, resource: AggregatedResource) -> ServedType {
    let subresources = resource.subresources.into_iter().map(|entry| entry.subresource).collect();
    ServedType {
        gvr: Gvr::new(group, version, &resource.resource),
        kind: resource.response_kind.map(|response| response.kind).unwrap_or_default(),
        namespaced: match resource.scope.as_str() {
            "Namespaced" => Some(true),
            "Cluster" => Some(false),
            _ => None,
        },
        preferred,
        verbs: sorted(resource.verbs),
        subresources: sorted(subresources),
    }
}

fn plain_group(group: Group) -> Vec<Listed> {
    let preferred = group.preferred_version.map(|preferred| preferred.version);
    let preferred = preferred.or_else(|| group.versions.first().map(|first| first.version.clone()));
    let listed = |entry: Version| Listed {
        group: group.name.clone(),
        preferred: Some(&entry.version) == preferred.as_ref(),
        version: entry.version,
    };
    group.versions.into_iter().map(listed).collect()
}

/// Reads the plain document of one group-version, in which subresources are entries of their own.
pub(super) fn resources(body: &[u8], listed: &Listed) -> Result<Vec<ServedType>, String> {
    let list: ResourceList =
        serde_json::from_slice(body).map_err(|error| format!("an unreadable document: {error}"))?;
    let mut subresources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut types = Vec::new();
    for resource in list.resources {
        match resource.name.split_once('/') {
            Some((parent, name)) => {
                subresources.entry(parent.to_owned()).or_default().push(name.to_owned());
            }
            None => types.push(ServedType {
                gvr: Gvr::new(&listed.group, &listed.version, &resource.name),
                kind: resource.kind,
                namespaced: resource.namespaced,
                preferred: listed.preferred,
                verbs: sorted(resource.verbs),
                subresources: Vec::new(),
            }),
        }
    }
    for (parent, names) in subresources {
        match types.iter_mut().find(|served| *served.gvr.resource == *parent) {
            Some(served) => served.subresources = sorted(names),
            None => types.push(ServedType {
                gvr: Gvr::new(&listed.group, &listed.version, &parent),
                kind: String::new(),
                namespaced: None,
                preferred: listed.preferred,
                verbs: Vec::new(),
                subresources: sorted(names),
            }),
        }
    }
    Ok(types)
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// An answer that is not 200, in words: the server's own if it has some.
pub(super) fn complaint(path: &str, status: StatusCode, body: &[u8]) -> String {
    let message = match serde_json::from_slice::<Status>(body) {
        Ok(status) => status.message,
        Err(_) => String::from_utf8_lossy(body).chars().take(200).collect(),
    };
    format!("{path}: {status}: {}", message.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_group_version_is_a_failure_and_keeps_what_the_server_remembers() {
        let body = br#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"g"},"versions":[
            {"version":"v2","freshness":"Current","resources":[{"resource":"things","scope":"Namespaced",
             "responseKind":{"group":"g","version":"v2","kind":"Thing"},"verbs":["watch","get","list"],
             "subresources":[{"subresource":"scale","verbs":["get"]}]}]},
            {"version":"v1","freshness":"Stale","resources":[{"resource":"olds","scope":"Cluster","verbs":["get"]}]},
            {"version":"v0","freshness":"Stale"}]}]}"#;
        let Ok(Document::Aggregated(groups)) = root(body) else { panic!("an aggregated document") };
        let [v2, v1, v0] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((v2.failure.as_ref(), v2.types.len()), (None, 1));
        let things = &v2.types[0];
        assert_eq!((things.preferred, things.namespaced), (true, Some(true)));
        assert_eq!(
            (things.verbs.join(","), things.subresources.join(",")),
            ("get,list,watch".into(), "scale".into())
        );
        assert!(v1.failure.is_some() && v1.types.len() == 1 && !v1.types[0].preferred);
        assert!(v0.failure.is_some() && v0.types.is_empty());
    }

    #[test]
    fn plain_documents_say_the_same() {
        let groups = br#"{"kind":"APIGroupList","groups":[{"name":"g","versions":[{"groupVersion":"g/v1","version":"v1"},
            {"groupVersion":"g/v2","version":"v2"}],"preferredVersion":{"groupVersion":"g/v2","version":"v2"}}]}"#;
        let Ok(Document::Plain(listed)) = root(groups) else { panic!("a plain document") };
        assert_eq!(listed.iter().map(|entry| entry.preferred).collect::<Vec<_>>(), [false, true]);
        let body =
            br#"{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing","namespaced":true,
            "verbs":["get"]},{"name":"things/scale","kind":"Scale","namespaced":true,"verbs":["get"]},
            {"name":"lone/token","kind":"Token","namespaced":true,"verbs":["create"]}]}"#;
        let types = resources(body, &listed[1]).expect("readable");
        assert_eq!(types[0].gvr, Gvr::new("g", "v2", "things"));
        assert_eq!(types[0].subresources, ["scale"]);
        assert!(types[1].verbs.is_empty() && types[1].subresources == ["token"]);
    }

    #[test]
    fn what_is_no_document_says_so() {
        assert!(root(b"<html>").is_err());
        assert!(root(br#"{"kind":"Status"}"#).is_err());
        let said =
            complaint("/apis", StatusCode::SERVICE_UNAVAILABLE, br#"{"kind":"Status","message":"down"}"#);
        assert_eq!(said, "/apis: 503 Service Unavailable: down");
    }
}
