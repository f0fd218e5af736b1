//! How do bytes reach an HTTP remote, and what exactly went wrong? In: the requests of `gix-transport`. Out: streams,
//! and beside them the status code, `Retry-After` and the deadline, which gix's own HTTP backend does not keep.
//! One [`Backend`] serves one operation and has one deadline for all of it. Redirects are followed for `GET` on the
//! same origin only, so that a login never travels to another host.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::blocking::{Client, Request, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};

/// Enough for a host's explanation, too little to hurt a status field.
const BODY_EXCERPT: u64 = 400;
const MAX_REDIRECTS: usize = 5;

/// What the HTTP layer knows about a failure.
#[derive(Clone, Debug)]
pub(crate) enum HttpFailure {
    /// The request never left: no address, no connection, no TLS session.
    NotSent(String),
    /// The connection broke after the request began to be sent.
    Broken(String),
    /// The operation's deadline passed, before or after the request was sent.
    TimedOut,
    /// An answer other than 2xx.
    Status { status: u16, retry_after: Option<Duration>, excerpt: String },
    /// A redirect that is not followed.
    Redirect(String),
}

/// Shared by the backend and its streams: the first failure is the cause, later ones are consequences.
#[derive(Clone, Default)]
pub(crate) struct FailureSlot(Arc<Mutex<Option<HttpFailure>>>);

impl FailureSlot {
    pub(crate) fn get(&self) -> Option<HttpFailure> {
        lock(&self.0).clone()
    }

    fn record(&self, failure: HttpFailure) -> io::Error {
        let error = io::Error::other(format!("{failure:?}"));
        lock(&self.0).get_or_insert(failure);
        error
    }
}

/// The HTTP side of one operation.
pub(crate) struct Backend {
    wire: Wire,
    redirected: Option<String>,
}

#[derive(Clone)]
struct Wire {
    client: Client,
    authorization: Option<HeaderValue>,
    deadline: Instant,
    failure: FailureSlot,
}

impl Backend {
    pub(crate) fn new(client: Client, authorization: Option<HeaderValue>, deadline: Instant) -> Self {
        let wire = Wire { client, authorization, deadline, failure: FailureSlot::default() };
        Self { wire, redirected: None }
    }

    pub(crate) fn failure(&self) -> FailureSlot {
        self.wire.failure.clone()
    }

    /// Follows redirects of the advertisement; later requests use the base that this leaves.
    fn get_following(&mut self, url: &str, base: &str, headers: HeaderMap) -> io::Result<Response> {
        let tail = url.strip_prefix(base).unwrap_or_default();
        let mut at = parse(url)?;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(Method::GET, at.clone());
            *request.headers_mut() = headers.clone();
            let response = self.wire.send_idempotent(request)?;
            if !response.status().is_redirection() {
                if let Some(new_base) = at.as_str().strip_suffix(tail).filter(|new_base| *new_base != base) {
                    self.redirected = Some(new_base.to_owned());
                }
                return self.wire.accept(response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let target = location.and_then(|location| at.join(location).ok());
            match target {
                Some(target) if target.origin() == at.origin() && target.as_str().ends_with(tail) => {
                    at = target
                }
                Some(target) => return Err(self.wire.failure.record(HttpFailure::Redirect(redact(&target)))),
                None => return self.wire.accept(response),
            }
        }
        Err(self.wire.failure.record(HttpFailure::Redirect(redact(&at))))
    }
}

impl Wire {
    fn send(&self, request: Request) -> io::Result<Response> {
        self.try_send(request).map_err(|failure| self.failure.record(failure))
    }

    /// As `send` for requests that change nothing: a pooled connection may have died unnoticed, so one that breaks
    /// without an answer gets a second chance.
    fn send_idempotent(&self, request: Request) -> io::Result<Response> {
        let again = request.try_clone();
        match (self.try_send(request), again) {
            (Err(HttpFailure::Broken(_)), Some(again)) => self.send(again),
            (result, _) => result.map_err(|failure| self.failure.record(failure)),
        }
    }

    fn try_send(&self, mut request: Request) -> Result<Response, HttpFailure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HttpFailure::NotSent("the time for the operation was used up".into()));
        }
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        *request.timeout_mut() = Some(left);
        self.client.execute(request).map_err(|error| {
            if error.is_connect() || error.is_builder() {
                HttpFailure::NotSent(chain(&error))
            } else if error.is_timeout() {
                HttpFailure::TimedOut
            } else {
                HttpFailure::Broken(chain(&error))
            }
        })
    }

    fn accept(&self, response: Response) -> io::Result<Response> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let target = target.and_then(|target| response.url().join(target).ok());
            return Err(self
                .failure
                .record(HttpFailure::Redirect(target.as_ref().map_or_else(String::new, redact))));
        }
        let retry_after = retry_after(status, response.headers());
        let mut excerpt = Vec::new();
        // A body that cannot be read must not hide the status.
        let _ = response.take(BODY_EXCERPT).read_to_end(&mut excerpt);
        let excerpt = crate::printable(&excerpt);
        Err(self.failure.record(HttpFailure::Status { status: status.as_u16(), retry_after, excerpt }))
    }
}

/// Seconds only: the date form needs a clock that agrees with the host's, and no known Git host sends it.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let limits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN, StatusCode::SERVICE_UNAVAILABLE];
    let value = headers.get(RETRY_AFTER).filter(|_| limits.contains(&status))?;
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

impl Http for Backend {
    type Headers = Headers;
    type ResponseBody = BufReader<Body>;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Self::Headers, Self::ResponseBody>> {
        let response =
            self.get_following(url, base_url, header_map(headers)).map_err(gix::Error::from_error)?;
        let exchange = Exchange { wire: self.wire.clone(), request: None, response: Some(response) };
        let (headers, body, _) = exchange.into_streams();
        Ok(GetResponse { headers, body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>> {
        let mut request = Request::new(Method::POST, parse(url).map_err(gix::Error::from_error)?);
        *request.headers_mut() = header_map(headers);
        let exchange =
            Exchange { wire: self.wire.clone(), request: Some((request, Vec::new())), response: None };
        let (headers, body, post_body) = exchange.into_streams();
        Ok(PostResponse { post_body, headers, body })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

/// One request and its answer. A `POST` is collected in memory, so that it goes out with a `Content-Length`, and is
/// sent when somebody first reads.
struct Exchange {
    wire: Wire,
    request: Option<(Request, Vec<u8>)>,
    response: Option<Response>,
}

impl Exchange {
    fn into_streams(self) -> (Headers, BufReader<Body>, PostBody) {
        let shared = Arc::new(Mutex::new(self));
        let headers = Headers { exchange: Arc::clone(&shared), text: None };
        let body = BufReader::with_capacity(64 << 10, Body { exchange: Arc::clone(&shared) });
        (headers, body, PostBody { exchange: shared })
    }

    fn response(&mut self) -> io::Result<&mut Response> {
        if let Some((mut request, body)) = self.request.take() {
            *request.body_mut() = Some(body.into());
            let response = self.wire.send(request)?;
            self.response = Some(self.wire.accept(response)?);
        }
        self.response.as_mut().ok_or_else(|| io::Error::other("the request failed before"))
    }
}

/// The response's headers as lines.
pub(crate) struct Headers {
    exchange: Arc<Mutex<Exchange>>,
    text: Option<Cursor<Vec<u8>>>,
}

impl Headers {
    fn text(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        if self.text.is_none() {
            let mut lines = Vec::new();
            for (name, value) in lock(&self.exchange).response()?.headers() {
                lines.extend_from_slice(name.as_str().as_bytes());
                lines.push(b':');
                lines.extend_from_slice(value.as_bytes());
                lines.push(b'\n');
            }
            self.text = Some(Cursor::new(lines));
        }
        self.text.as_mut().ok_or_else(|| io::Error::other("headers were just read"))
    }
}

impl Read for Headers {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.text()?.read(buf)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.text()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Some(text) = &mut self.text {
            text.consume(amount);
        }
    }
}

/// The response's body.
pub(crate) struct Body {
    exchange: Arc<Mutex<Exchange>>,
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut exchange = lock(&self.exchange);
        let result = exchange.response()?.read(buf);
        result.map_err(|error| {
            let late = Instant::now() >= exchange.wire.deadline;
            let failure = if late { HttpFailure::TimedOut } else { HttpFailure::Broken(chain(&error)) };
            exchange.wire.failure.record(failure)
        })
    }
}

/// Collects the request's body.
pub(crate) struct PostBody {
    exchange: Arc<Mutex<Exchange>>,
}

impl Write for PostBody {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut lock(&self.exchange).request {
            Some((_, body)) => body.extend_from_slice(buf),
            None => return Err(io::Error::other("the request is already sent")),
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse(url: &str) -> io::Result<Url> {
    Url::parse(url).map_err(io::Error::other)
}

fn header_map(headers: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in headers {
        let Some((name, value)) = line.as_ref().split_once(':') else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim()))
        {
            map.append(name, value);
        }
    }
    map
}

/// The error with its causes, without the URL: a user name may be in it, and the caller names the remote anyway.
fn chain(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let text = text.split(" for url (").next().unwrap_or_default().to_owned();
        if parts.last() != Some(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

fn redact(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_query(None);
    let text = url.to_string();
    text.strip_suffix("/info/refs").map(str::to_owned).unwrap_or(text)
}

/// The state behind these locks is valid after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
