//! Values of params, written by a model or by a user through it, cannot leave their place in the operator's template.

use super::{Raw, call, ok, text};
use serde_json::{Value, json};

const HERE: &[&str] = &["127.0.0.1"];

/// Values that try to be more than a value.
const HOSTILE: &[&str] = &[
    "../../admin",
    "..%2f..%2fadmin",
    "..\\..\\admin",
    "a/b;c=d?x=1&admin=true#frag",
    "a&admin=true",
    "a;admin=true",
    "a%26admin%3Dtrue",
    "a+b c",
    "@evil.example",
    "//evil.example/",
    "a\r\nx-evil: 1",
    "a\n\nGET /evil HTTP/1.1",
    "a\u{0}b",
    "a\u{85}b\u{2028}c",
    "{other}",
    "${TOKEN}",
    "${HOME}",
    "{{ other }}",
    "\"},\"admin\":{\"a\":\"",
    "<a>&amp;</a>",
    "订单 1",
];

fn lines(request: &str) -> (&str, Vec<&str>) {
    let head = request.split("\r\n\r\n").next().unwrap();
    let mut lines = head.split("\r\n");
    (lines.next().unwrap(), lines.collect())
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").unwrap().1
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

#[tokio::test]
async fn a_param_stays_one_segment_one_query_value_and_one_field() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let template = json!({
        "method": "POST", "url": api.url("/orders/{id}/items?fixed=1&in={id}"),
        "query": {"q": "{id}", "last": "1"}, "body": {"id": "{id}", "text": "for {id}!"},
    });
    for hostile in HOSTILE {
        let result = call(HERE, template.clone(), json!({"id": hostile, "other": "WRONG"})).await;
        assert!(result.ok, "{hostile:?}: {result:?}");
        let request = api.seen().pop().unwrap();
        let (line, headers) = lines(&request);
        let target = line.strip_prefix("POST ").unwrap().strip_suffix(" HTTP/1.1").unwrap();
        let (path, query) = target.split_once('?').unwrap();
        let segments: Vec<String> = path.split('/').map(decoded).collect();
        assert_eq!(segments, ["", "orders", hostile, "items"], "{line}");
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("fixed", "1"), ("in", *hostile), ("last", "1"), ("q", *hostile)], "{line}");
        assert!(headers.contains(&format!("host: 127.0.0.1:{}", api.port).as_str()), "{headers:?}");
        assert!(!headers.iter().any(|header| header.to_lowercase().starts_with("x-evil")), "{headers:?}");
        let sent: Value = serde_json::from_str(body(&request)).unwrap();
        assert_eq!(sent, json!({"id": hostile, "text": format!("for {hostile}!")}));
    }
    assert_eq!(api.seen().len(), HOSTILE.len(), "one request each");
}

#[tokio::test]
async fn a_param_that_would_leave_its_segment_is_refused() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    for (path, params) in [
        ("/orders/{id}", json!({"id": ".."})),
        ("/orders/{id}/x", json!({"id": "."})),
        ("/orders/{id}", json!({"id": ""})),
        ("/orders/{id}", json!({"id": null})),
        ("/orders/.{id}", json!({"id": "."})),
        ("/orders/{a}{id}", json!({"a": ".", "id": "."})),
    ] {
        let result = call(HERE, json!({"url": api.url(path)}), params.clone()).await;
        assert!(!result.ok && result.attempts == 1, "{path} {params}: {result:?}");
    }
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn a_param_never_names_the_host() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let host = format!("127.0.0.1:{}", api.port);
    for template in
        ["http://{h}/x", "{h}", "http:{h}", "http://u:{h}@127.0.0.1/", "http://127.0.0.1{h}/x", "http://127.0.0.1:{h}/"]
    {
        let result = call(HERE, json!({"url": template, "retries": 0}), json!({"h": host})).await;
        assert!(text(&result).contains("scheme and host must be fixed"), "{template}: {result:?}");
    }
    // Other headers may name any host, because the connection goes to the fixed address.
    let template = json!({"url": api.url("/x"), "headers": {"X-Forwarded-Host": "{h}"}});
    assert!(call(HERE, template, json!({"h": "evil.example"})).await.ok);
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn a_header_takes_no_second_line_and_no_other_name() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let template = json!({"url": api.url("/x"), "headers": {"X-User": "u-{name}", "X-Token": "${TOKEN}"}});
    for bad in ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rX-Evil: 1", "a\u{0}", "a\r\n\r\nGET /evil HTTP/1.1\r\n"] {
        let result = call(HERE, template.clone(), json!({"name": bad})).await;
        assert!(text(&result).contains("`X-User`") && !text(&result).contains("Evil"), "{result:?}");
    }
    assert!(api.seen().is_empty(), "nothing was sent");
    for fine in ["${TOKEN}", "{name}", "李雷", "a: b"] {
        assert!(call(HERE, template.clone(), json!({"name": fine})).await.ok, "{fine}");
        let request = api.seen().pop().unwrap();
        assert!(request.contains(&format!("\r\nx-user: u-{fine}\r\n")), "{request}");
        assert_eq!(request.matches("s3cret").count(), 1, "the secret is only where the operator wrote it");
    }
}

#[tokio::test]
async fn a_body_in_another_format_keeps_its_fields() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let typed = |kind: &str, body: &str| json!({"method": "POST", "url": api.url("/x"), "headers": {"content-type": kind}, "body": body});
    for hostile in HOSTILE {
        let form = typed("application/x-www-form-urlencoded; charset=utf-8", "id={id}&fixed=1&token=${TOKEN}");
        assert!(call(HERE, form, json!({"id": hostile})).await.ok);
        let request = api.seen().pop().unwrap();
        let pairs: Vec<_> = url::form_urlencoded::parse(body(&request).as_bytes()).into_owned().collect();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("id", *hostile), ("fixed", "1"), ("token", "s3cret")]);

        assert!(call(HERE, typed("text/xml", "<order id=\"{id}\">{id}</order>"), json!({"id": hostile})).await.ok);
        let request = api.seen().pop().unwrap();
        assert_eq!(body(&request).matches(['<', '>']).count(), 4, "{request}");
        assert_eq!(body(&request).matches('"').count(), 2, "{request}");

        assert!(call(HERE, typed("text/plain", "{id}"), json!({"id": hostile})).await.ok);
        assert_eq!(body(&api.seen().pop().unwrap()), *hostile, "plain text has no syntax to break");
    }
}

#[tokio::test]
async fn params_of_other_types_are_no_way_around() {
    let api = Raw::start(|_| ok(&json!({}))).await;
    let template = json!({"url": api.url("/o/{id}"), "query": {"q": "{id}"}, "headers": {"X": "{id}"}});
    for (given, path) in [
        (json!({"..": "/"}), "/o/%7B%22..%22%3A%22%2F%22%7D"),
        (json!(["..", "/"]), "/o/%5B%22..%22%2C%22%2F%22%5D"),
        (json!(true), "/o/true"),
        (json!(-1.5), "/o/-1.5"),
    ] {
        assert!(call(HERE, template.clone(), json!({"id": given})).await.ok, "{given}");
        let request = api.seen().pop().unwrap();
        assert!(lines(&request).0.starts_with(&format!("GET {path}?")), "{request}");
    }
}
