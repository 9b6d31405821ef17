//! Targets of skills: private addresses are refused in every notation, and no detour avoids the check.

use super::{Raw, call, ok, text};
use base::http_client::private::{Guard, GuardedResolver, Lookup};
use futures::FutureExt;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Notations of the server's address, and names that resolve to it.
const LOOPBACK: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "0.0.0.0",
    "0",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[::]",
    "[::1]",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "localhost",
    "LOCALHOST",
    "ｌｏｃａｌｈｏｓｔ",
    "user@127.0.0.1",
    "8.8.8.8@localhost",
];

#[tokio::test]
async fn loopback_is_refused_however_it_is_written() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    for host in LOOPBACK {
        let url = format!("http://{host}:{}/inside", api.port);
        let result = call(&["10.0.0.0/8", "crm.internal"], json!({"url": url}), json!({})).await;
        assert!(!result.ok && result.attempts == 1, "{host}: {result:?}");
        assert!(text(&result).contains("is a private address"), "{host}: {result:?}");
    }
    // Not every resolver accepts the name with a trailing dot.
    let url = format!("http://localhost.:{}/inside", api.port);
    assert!(!call(&[], json!({"url": url, "retries": 0}), json!({})).await.ok);
    assert!(api.seen().is_empty(), "no request arrived: {:?}", api.seen());
}

#[tokio::test]
async fn an_entry_opens_what_it_says_and_no_more() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let url = |host: &str| json!({"url": format!("http://{host}:{}/x", api.port), "retries": 0});
    for (allow, host, open) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "2130706433", true),
        ("127.0.0.1", "[::ffff:127.0.0.1]", true),
        ("127.0.0.1", "localhost", true),
        ("127.0.0.0/8", "127.0.0.1", true),
        ("localhost", "localhost", true),
        ("LocalHost.", "localhost.", true),
        ("*", "127.0.0.1", true),
        ("localhost", "127.0.0.1", false),
        ("127.0.0.2", "127.0.0.1", false),
        ("127.0.0.0/31", "127.0.0.2", false),
        ("127.0.0.1", "[::1]", false),
        ("::1", "127.0.0.1", false),
        ("0.0.0.0/0", "[::1]", false),
        ("host", "localhost", false),
    ] {
        let result = call(&[allow], url(host), json!({})).await;
        assert_eq!(text(&result).contains("is a private address"), !open, "{allow} {host}: {result:?}");
    }
}

#[tokio::test]
async fn a_redirect_leads_to_nothing_private() {
    let api = Raw::start(|request| {
        let to = request.split(' ').nth(1).unwrap().trim_start_matches("/to/");
        match percent_encoding::percent_decode_str(to).decode_utf8().unwrap().as_ref() {
            "inside" => ok(&json!({"inside": true})),
            to => format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\n\r\n"),
        }
    })
    .await;
    // The name is allowed, its addresses are not.
    for host in LOOPBACK.iter().filter(|host| !host.to_lowercase().contains("localhost") && !host.contains('ｌ')) {
        let target = format!("http://{host}:{}/to/inside", api.port);
        let url = format!("http://localhost:{}/to/{{target}}", api.port);
        let result = call(&["localhost"], json!({"url": url, "retries": 0}), json!({"target": target})).await;
        assert!(!result.ok, "{host}: {result:?}");
        assert!(text(&result).contains("is a private address"), "{host}: {result:?}");
    }
    assert!(api.seen().iter().all(|request| !request.starts_with("GET /to/inside")));
}

#[tokio::test]
async fn a_redirect_takes_no_secret_to_another_server() {
    let other = Raw::start(|_| ok(&json!({}))).await;
    let (away, port) = (other.url("/steal"), other.port);
    let api = Raw::start(move |request| {
        let status = if request.starts_with("GET") { "302 Found" } else { "307 Temporary Redirect" };
        match request.split(' ').nth(1).unwrap() {
            "/away" => format!("HTTP/1.1 {status}\r\nlocation: {away}\r\n\r\n"),
            "/slashes" => format!("HTTP/1.1 {status}\r\nlocation: //127.0.0.1:{port}/steal\r\n\r\n"),
            "/moved" => format!("HTTP/1.1 {status}\r\nlocation: /here\r\n\r\n"),
            _ => ok(&json!({"here": true})),
        }
    })
    .await;
    for method in ["GET", "POST"] {
        let template = |path: &str| json!({"method": method, "url": api.url(path), "headers": {"X-Api-Key": "${TOKEN}"}, "retries": 0});
        for path in ["/away", "/slashes"] {
            let result = call(&["*"], template(path), json!({"a": 1})).await;
            assert!(text(&result).contains("redirects to another server"), "{path}: {result:?}");
        }
        assert!(
            call(&["*"], template("/moved"), json!({"a": 1})).await.ok,
            "redirects on the same server are followed"
        );
    }
    assert!(other.seen().is_empty(), "{:?}", other.seen());
}

/// A client whose resolver returns `answers` in order.
fn client(allow: &[&str], answers: Vec<Vec<&'static str>>) -> (reqwest::Client, Arc<AtomicUsize>) {
    let (asked, count) = (Arc::new(AtomicUsize::new(0)), answers.len());
    let (counted, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers)));
    let lookup: Lookup = Arc::new(move |_| {
        let at = counted.fetch_add(1, Ordering::SeqCst).min(count - 1);
        let found = answers.lock().unwrap()[at].iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
        async move { Ok(found) }.boxed()
    });
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    let resolver = GuardedResolver::with_lookup(Arc::new(Guard::new(&allow).unwrap()), lookup);
    let client = base::http_client::builder().no_proxy().dns_resolver(resolver).build().unwrap();
    (client, asked)
}

fn causes(error: &reqwest::Error) -> String {
    let mut causes = vec![error.to_string()];
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes.join(": ")
}

#[tokio::test]
async fn names_that_resolve_to_private_addresses_are_refused() {
    for answer in [
        vec!["127.0.0.1"],
        vec!["10.0.0.1", "192.168.0.1"],
        vec!["169.254.169.254"],
        vec!["100.100.100.200"],
        vec!["::1"],
        vec!["::ffff:10.0.0.1"],
        vec!["fd00:ec2::254"],
        vec!["fe80::1"],
        vec!["0.0.0.0"],
    ] {
        let (client, asked) = client(&["172.16.0.0/12"], vec![answer.clone()]);
        let error = client.get("http://metadata.example:1/").send().await.unwrap_err();
        assert!(causes(&error).contains("`metadata.example` is a private address"), "{answer:?}: {}", causes(&error));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let error = client.get("http://localhost.:1/").send().await.unwrap_err();
        assert!(causes(&error).contains("is a private address"), "{answer:?}: {}", causes(&error));
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    // The second address would be refused, but no lookup happens between check and connection.
    let (client, asked) = client(&["127.0.0.1"], vec![vec!["127.0.0.1"], vec!["127.0.0.2"]]);
    let url = format!("http://rebind.example:{}/", api.port);
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one lookup");
    // The server closes each connection. The next one needs a new lookup, which is checked, too.
    let error = client.get(&url).send().await.unwrap_err();
    assert!(causes(&error).contains("`rebind.example` is a private address (127.0.0.2)"), "{}", causes(&error));
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn of_several_addresses_only_admitted_ones_are_tried() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let (client, _) = client(&["127.0.0.1"], vec![vec!["127.0.0.2", "::1", "127.0.0.1"]]);
    let answer = client.get(format!("http://mixed.example:{}/", api.port)).send().await.unwrap();
    assert_eq!(answer.remote_addr().unwrap().ip().to_string(), "127.0.0.1");
}
