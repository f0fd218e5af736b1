//! Which types does the API server serve, which of its group-versions could it not tell us about?
//!
//! In: a client. Out: one [`ApiScan`] per look. Aggregated discovery first (two requests, an unchanged answer costs a 304
//! each), the old document per group-version where a server does not know it. The library's own discovery is not used:
//! it drops the `freshness` of a group-version, so an aggregated API whose backend is down looks like one without types,
//! and its older form fails as a whole. Absent: what the absence of a type means.

mod documents;

use std::time::Duration;

use futures::{StreamExt, TryFutureExt};
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use upriver_model::Gvr;

use documents::Document;

/// Longest wait for one document of discovery (W1.35).
const DEADLINE: Duration = Duration::from_secs(15);
/// Documents of group-versions that are read at the same time, from servers without aggregated discovery.
const AT_ONCE: usize = 8;
/// Largest document. A cluster with thousands of CRDs stays below a tenth of it.
const LARGEST: usize = 64 << 20;
/// The aggregated document, in its final form or the one of Kubernetes 1.26 to 1.29, else the plain one.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                          application/json";

/// One served type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedType {
    /// Group, version, resource.
    pub gvr: Gvr,
    /// Kind.
    pub kind: String,
    /// `Some(true)` if its objects live in namespaces; `None` if the server does not say.
    pub namespaced: Option<bool>,
    /// True for the version that the server prefers in its group.
    pub preferred: bool,
    /// Verbs that it offers, sorted. None if only its subresources are served.
    pub verbs: Vec<String>,
    /// Names of its subresources, sorted, for example `scale`.
    pub subresources: Vec<String>,
}

/// One group-version of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersionAnswer {
    /// Group, `""` for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Why its types could not be read just now.
    pub failure: Option<String>,
    /// Its types; with a failure those that the server remembers, if any.
    pub types: Vec<ServedType>,
}

/// One look at the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiScan {
    /// Every group-version that the roots list.
    pub groups: Vec<GroupVersionAnswer>,
    /// Why `/api` could not be read. Then `groups` says nothing about the core group.
    pub core_failure: Option<String>,
    /// Why `/apis` could not be read. Then `groups` says nothing about any other group.
    pub named_failure: Option<String>,
}

/// Reads discovery, and remembers the last answer of each root for as long as the server says that it is unchanged.
pub struct Discovery {
    client: Client,
    accept: &'static str,
    core: Remembered,
    named: Remembered,
}

/// The last aggregated answer of a root, with its tag.
type Remembered = Option<(HeaderValue, Vec<GroupVersionAnswer>)>;

struct Fetched {
    status: StatusCode,
    tag: Option<HeaderValue>,
    body: Vec<u8>,
}

impl Discovery {
    /// Discovery through a client, preferably one whose library repeats nothing: a failing backend is an answer here.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, accept: AGGREGATED, core: None, named: None }
    }

    /// The same without asking for aggregated documents, as servers before 1.26 answer.
    #[must_use]
    pub fn plain(client: Client) -> Self {
        Self { accept: "application/json", ..Self::new(client) }
    }

    /// Looks once. Never fails as a whole: what could not be read is named in the result.
    pub async fn scan(&mut self) -> ApiScan {
        let (core, named) = (self.core.take(), self.named.take());
        let (core, named) = futures::join!(self.root("/api", core), self.root("/apis", named));
        let mut scan = ApiScan::default();
        match core {
            Ok((groups, remembered)) => {
                scan.groups.extend(groups);
                self.core = remembered;
            }
            Err(why) => scan.core_failure = Some(why),
        }
        match named {
            Ok((groups, remembered)) => {
                scan.groups.extend(groups);
                self.named = remembered;
            }
            Err(why) => scan.named_failure = Some(why),
        }
        scan
    }

    async fn root(
        &self,
        path: &str,
        remembered: Remembered,
    ) -> Result<(Vec<GroupVersionAnswer>, Remembered), String> {
        let tag = remembered.as_ref().map(|(tag, _)| tag.clone());
        let fetched = fetch(&self.client, path, self.accept, tag).await?;
        if let (StatusCode::NOT_MODIFIED, Some((tag, groups))) = (fetched.status, remembered) {
            return Ok((groups.clone(), Some((tag, groups))));
        }
        if fetched.status != StatusCode::OK {
            return Err(documents::complaint(path, fetched.status, &fetched.body));
        }
        match documents::root(&fetched.body).map_err(|error| format!("{path}: {error}"))? {
            Document::Aggregated(groups) => {
                let remembered = fetched.tag.map(|tag| (tag, groups.clone()));
                Ok((groups, remembered))
            }
            Document::Plain(listed) => {
                let answers = futures::stream::iter(listed)
                    .map(|entry| self.group_version(entry))
                    .buffered(AT_ONCE)
                    .collect()
                    .await;
                Ok((answers, None))
            }
        }
    }

    async fn group_version(&self, listed: documents::Listed) -> GroupVersionAnswer {
        let path = listed.path();
        let read = fetch(&self.client, &path, "application/json", None).await.and_then(|fetched| {
            if fetched.status == StatusCode::OK {
                documents::resources(&fetched.body, &listed).map_err(|error| format!("{path}: {error}"))
            } else {
                Err(documents::complaint(&path, fetched.status, &fetched.body))
            }
        });
        let (types, failure) = match read {
            Ok(types) => (types, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        GroupVersionAnswer { group: listed.group, version: listed.version, failure, types }
    }
}

async fn fetch(
    client: &Client,
    path: &str,
    accept: &str,
    tag: Option<HeaderValue>,
) -> Result<Fetched, String> {
    let mut request = Request::get(path).header(ACCEPT, accept);
    if let Some(tag) = tag {
        request = request.header(IF_NONE_MATCH, tag);
    }
    let request = request.body(Body::empty()).map_err(|error| format!("{path}: {error}"))?;
    let exchange = async {
        let answer = client.send(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST).collect().map_err(|error| error.to_string()).await?;
        Ok(Fetched {
            status: head.status,
            tag: head.headers.get(ETAG).cloned(),
            body: body.to_bytes().to_vec(),
        })
    };
    match tokio::time::timeout(DEADLINE, exchange).await {
        Ok(fetched) => fetched.map_err(|error: String| format!("{path}: {error}")),
        Err(_) => Err(format!("{path}: no answer within {} s", DEADLINE.as_secs())),
    }
}
