//! Limits of a gateway for one client, so that others are not affected.

use crate::scenarios::sales;
use crate::support::backend::embedded;
use crate::support::engine::DEADLINE;
use crate::support::{background, eventually};
use gateway::{GatewayState, Limits, MAX_BODY};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

struct LimitedGateway {
    address: std::net::SocketAddr,
    stop: CancellationToken,
}

impl Drop for LimitedGateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl LimitedGateway {
    /// A gateway with the agent `sales` and the session `s1`, with these limits and tokens.
    async fn start(change: impl FnOnce(&mut Limits), tokens: &[&str]) -> Self {
        let backend = embedded().await;
        let mut settings = backend.settings.clone();
        settings.gateway.tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        let mut limits = Limits::new(&settings);
        change(&mut limits);
        let agent = serde_json::from_str(&sales().to_string().replace("{api}", "http://127.0.0.1:9")).unwrap();
        let agent = definitions::agent::AgentRecord::from_document(agent, base::clock::now()).unwrap();
        backend.store.put_agent(agent).await.unwrap();
        let state = GatewayState::new(backend.queue, backend.store, Arc::new(settings)).with_limits(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let token = stop.clone();
        background(async move { gateway::serve(listener, state, token).await.unwrap() });
        let gateway = Self { address, stop };
        if tokens.is_empty() {
            let body = json!({"session_id": "s1", "agent_id": "sales", "text": "hi"}).to_string();
            assert_eq!(status(&gateway.ask(&post(&body)).await), 202);
        }
        gateway
    }

    async fn open(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes and reads until the gateway closes.
    async fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.open().await;
        // The gateway may refuse and close the connection before everything is written.
        let _ = stream.write_all(request.as_ref()).await;
        rest(&mut stream).await
    }
}

/// Reads until the connection closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = async { while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {} };
    tokio::time::timeout(DEADLINE, read).await.expect("the connection ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until the gateway closes the connection, while the client slowly writes `drip`.
async fn cut_off(mut stream: TcpStream, drip: &[u8]) -> String {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let mut bytes = Vec::new();
    let read = async {
        loop {
            tokio::select! {
                // Reads first: writing to a closed connection may discard received bytes.
                biased;
                read = stream.read_buf(&mut bytes) => if !read.is_ok_and(|count| count > 0) { break },
                _ = pace.tick(), if !drip.is_empty() => drop(stream.write_all(drip).await),
            }
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("the connection is cut off");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `part` has arrived.
async fn until(stream: &mut TcpStream, part: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(part) {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "{}", String::from_utf8_lossy(&bytes));
        }
    };
    tokio::time::timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no `{part}`"));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

const GET: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const FOLLOW: &str = "GET /api/v1/sessions/s1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).unwrap_or_else(|| panic!("no response: {response:?}")).parse().unwrap()
}

fn code(response: &str) -> String {
    let body = response.split_once("\r\n\r\n").unwrap().1;
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"));
    body["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_however_it_is_sent() {
    let gateway = LimitedGateway::start(|_| {}, &[]).await;
    let large = post(&json!({"session_id": "s1", "text": "x".repeat(MAX_BODY)}).to_string());
    let answer = gateway.ask(&large).await;
    assert_eq!((status(&answer), code(&answer)), (413, "too_large".to_owned()));
    // In chunks, without a length, and without an end.
    let head = "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let mut stream = gateway.open().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0;
    // The gateway stops reading at its limit. Only the sockets buffer what is written beyond.
    while sent < 64 * MAX_BODY {
        match tokio::time::timeout(Duration::from_millis(500), stream.write_all(chunk.as_bytes())).await {
            Ok(Ok(())) => sent += 0x10000,
            Ok(Err(_)) | Err(_) => break,
        }
    }
    assert!(sent < 64 * MAX_BODY, "{sent} bytes were accepted");
    assert_eq!(status(&gateway.ask(GET).await), 200, "others are served");
}

#[tokio::test]
async fn a_head_over_the_limit_is_431_and_the_connection_ends() {
    let gateway = LimitedGateway::start(|_| {}, &[]).await;
    let limit = Limits::new(&base::config::Settings::default()).head_bytes;
    let with = |bytes: usize| {
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-a: {}\r\n\r\n", "a".repeat(bytes))
    };
    assert_eq!(status(&gateway.ask(with(limit / 2)).await), 200);
    assert_eq!(status(&gateway.ask(with(limit)).await), 431);
    let many = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x-a: 1\r\n".repeat(1_000));
    assert_eq!(status(&gateway.ask(many).await), 431);
    let line = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(2 * limit));
    assert!(matches!(status(&gateway.ask(line).await), 414 | 431));
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let gateway = LimitedGateway::start(|limits| limits.head_time = Duration::from_millis(300), &[]).await;
    for begun in ["", "GET /heal", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: "] {
        let mut stream = gateway.open().await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        // An occasional byte does not extend the limit.
        let drip: &[u8] = if begun.is_empty() { b"" } else { b"a" };
        cut_off(stream, drip).await;
    }
    // A connection that is in use may be reused any number of times.
    let mut stream = gateway.open().await;
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(status(&until(&mut stream, "}").await), 200);
    }
}

#[tokio::test]
async fn a_body_that_never_ends_is_cut_off_with_408() {
    let gateway = LimitedGateway::start(|limits| limits.body_time = Duration::from_millis(300), &[]).await;
    let head = "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for framing in ["content-length: 1000\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        let mut stream = gateway.open().await;
        stream.write_all(format!("{head}{framing}").as_bytes()).await.unwrap();
        let drip: &[u8] = if framing.contains("chunked") { b"1\r\n \r\n" } else { b" " };
        let answer = cut_off(stream, drip).await;
        assert_eq!((status(&answer), code(&answer)), (408, "slow_body".to_owned()));
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_holds_no_connection() {
    let gateway = LimitedGateway::start(|limits| limits.body_time = Duration::from_millis(300), &["t0ken"]).await;
    let head = "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    let mut stream = gateway.open().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert_eq!((status(&answer), code(&answer)), (401, "unauthorized".to_owned()));
}

#[tokio::test]
async fn further_connections_wait_until_one_closes() {
    let gateway = LimitedGateway::start(|limits| limits.connections = 2, &[]).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = gateway.open().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(status(&until(&mut stream, "}").await), 200);
        held.push(stream);
    }
    let mut waiting = gateway.open().await;
    waiting.write_all(GET.as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), waiting.read(&mut byte)).await;
    assert!(early.is_err(), "the third connection waits");
    held.pop();
    assert_eq!(status(&rest(&mut waiting).await), 200);
}

#[tokio::test]
async fn event_streams_have_a_cap_and_give_their_place_back() {
    let gateway = LimitedGateway::start(|limits| limits.streams = 2, &[]).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = gateway.open().await;
        stream.write_all(FOLLOW.as_bytes()).await.unwrap();
        assert_eq!(status(&until(&mut stream, "\r\n\r\n").await), 200);
        held.push(stream);
    }
    let more = FOLLOW.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let answer = gateway.ask(&more).await;
    assert_eq!((status(&answer), code(&answer)), (503, "too_many_streams".to_owned()));
    assert!(answer.to_lowercase().contains("\r\nretry-after: "), "{answer}");
    assert_eq!(status(&gateway.ask(GET).await), 200, "other requests are served");
    held.pop();
    eventually(DEADLINE, "a place is free again", || async {
        let mut stream = gateway.open().await;
        stream.write_all(FOLLOW.as_bytes()).await.unwrap();
        status(&until(&mut stream, "\r\n\r\n").await) == 200
    })
    .await;
}

#[tokio::test]
async fn bad_bodies_are_400_and_harm_nobody() {
    let gateway = LimitedGateway::start(|_| {}, &[]).await;
    let lists = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep = |levels: usize| format!(r#"{{"session_id":"s1","text":"hi","metadata":{{"a":{}}}}}"#, lists(levels));
    for body in [lists(10_000), "[".repeat(10_000), "{\"a\":".repeat(10_000), deep(10_000), deep(100)] {
        let answer = gateway.ask(post(&body)).await;
        assert_eq!(status(&answer), 400, "{}: {answer}", &body[..40]);
    }
    assert_eq!(status(&gateway.ask(post(&deep(20))).await), 202);
    let put = |body: &str| post(body).replace("POST /api/v1/messages", "PUT /api/v1/agents/a");
    let agent = |levels: usize| format!(r#"{{"id":"a","sop":"x","model":"offline","x":{}}}"#, lists(levels));
    assert_eq!(status(&gateway.ask(put(&agent(100))).await), 422);
    assert_eq!(status(&gateway.ask(put(&agent(20))).await), 200);

    for bytes in [&b"\xff\xfe"[..], b"{\"text\":\"\xc3\x28\"}", b"{\"text\":\"\xed\xa0\x80\"}", b"\x00", b""] {
        let mut request = post("").replace("length: 0", &format!("length: {}", bytes.len())).into_bytes();
        request.extend_from_slice(bytes);
        let answer = gateway.ask(&request).await;
        assert_eq!((status(&answer), code(&answer)), (400, "invalid_json".to_owned()), "{bytes:?}");
    }
    for path in ["/api/v1/sessions/%ff", "/api/v1/sessions/%c3%28/turns", "/api/v1/sessions/%00"] {
        let answer = gateway.ask(GET.replace("/healthz", path)).await;
        assert_eq!(status(&answer), 400, "{path}: {answer}");
    }
    for request in
        ["\r\n\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{0}\u{1}\u{2}\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let _ = gateway.ask(format!("{request}GET\r\n\r\n")).await;
    }
    // Two lengths, or a length and chunks: servers could interpret such a request differently, so it must be refused.
    let smuggled =
        "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!";
    assert_eq!(status(&gateway.ask(smuggled).await), 400);
    assert_eq!(status(&gateway.ask(GET).await), 200);
}

#[tokio::test]
async fn a_token_is_not_found_by_asking_in_other_ways() {
    let gateway = LimitedGateway::start(|_| {}, &["t0ken-t0ken"]).await;
    let ask = |headers: &str| {
        GET.replace("/healthz", "/api/v1/agents").replace("host: localhost", &format!("host: localhost\r\n{headers}"))
    };
    for headers in [
        "x-a: 1",
        "authorization: Bearer ",
        "authorization: Bearer",
        "authorization: bearer t0ken-t0ke",
        "authorization: Bearer t0ken-t0ken2",
        "authorization: Bearer T0KEN-T0KEN",
        "authorization: Basic t0ken-t0ken",
        "authorization: t0ken-t0ken",
        "authorization: Bearer wrong\r\nauthorization: Bearer t0ken-t0ken",
        "cookie: token=t0ken-t0ken",
        "authorization: Bearer \u{e9}",
    ] {
        let answer = gateway.ask(ask(headers)).await;
        assert_eq!((status(&answer), code(&answer)), (401, "unauthorized".to_owned()), "{headers}");
        assert!(!answer.contains("t0ken"), "{answer}");
    }
    assert_eq!(status(&gateway.ask(ask("authorization: bearer t0ken-t0ken")).await), 200);
    for path in
        ["/api/v1/agents/../../healthz", "//healthz", "/healthz/../api/v1/agents", "/API/v1/agents", "/healthz/"]
    {
        let answer = gateway.ask(GET.replace("/healthz", path)).await;
        assert!(matches!(status(&answer), 401 | 404), "{path}: {answer}");
        assert!(!answer.contains("sales"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_web_page_of_another_site_reaches_nothing() {
    let gateway = LimitedGateway::start(|_| {}, &[]).await;
    let close = |headers: &str| {
        format!(
            "POST /api/v1/sessions/s1/close HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
    };
    for headers in [
        "host: evil.example",
        "host: localhost\r\norigin: https://evil.example",
        "host: localhost\r\norigin: null",
        "host: 127.0.0.1.evil.example:8080",
    ] {
        let answer = gateway.ask(close(headers)).await;
        assert_eq!((status(&answer), code(&answer)), (403, "foreign_page".to_owned()), "{headers}");
    }
    assert_eq!(status(&gateway.ask(close("host: 127.0.0.1:8080\r\norigin: http://localhost:3000")).await), 202);
    // With a token this is allowed, because a browser does not add the token by itself.
    let gateway = LimitedGateway::start(|_| {}, &["t0ken"]).await;
    let asked =
        GET.replace("/healthz", "/api/v1/agents").replace("localhost", "chat.example\r\nauthorization: Bearer t0ken");
    assert_eq!(status(&gateway.ask(asked).await), 200);
}
