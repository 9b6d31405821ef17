//! HTTP calls of skills and tools to a server on a local port.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base::tasks::{OnPanic, Tasks};
use engine::action::ActionResult;
use engine::action::http::{HttpCaller, SecretFill};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::agent::HttpCall;
use types::allowed_secrets::SecretRefusal;

#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Value,
}

type ApiScript = dyn Fn(usize, &Seen) -> Response + Send + Sync;
type Shared = (Arc<Mutex<Vec<Seen>>>, Arc<ApiScript>);

struct ApiServer {
    seen: Arc<Mutex<Vec<Seen>>>,
    tasks: Tasks,
    port: u16,
}

impl ApiServer {
    /// Starts a server. The script returns the response to the n-th request.
    async fn start(script: impl Fn(usize, &Seen) -> Response + Send + Sync + 'static) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let script: Arc<ApiScript> = Arc::new(script);
        let router = Router::new().fallback(record).with_state((Arc::clone(&seen), script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, tasks) = (listener.local_addr().unwrap().port(), Tasks::new());
        let stop = tasks.stop_token();
        tasks.spawn("api", OnPanic::Log, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                ended = async { axum::serve(listener, router).await } => ended.unwrap(),
            }
        });
        Self { seen, tasks, port }
    }

    fn call(&self, extra: Value) -> HttpCall {
        let mut call = json!({"url": format!("http://127.0.0.1:{}/orders/{{id}}", self.port)});
        call.as_object_mut().unwrap().extend(params(extra));
        serde_json::from_value(call).unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn record(
    State((seen, script)): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
    let one = Seen { method, uri: uri.to_string(), headers, body };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(one.clone());
        seen.len() - 1
    };
    script(number, &one)
}

fn secrets() -> SecretFill {
    SecretFill::new(
        Arc::new(|token, host| match token {
            "${TOKEN}" => Ok("s3cret".into()),
            _ => Err(SecretRefusal::NotListed { name: token.into(), host: Some(host.into()) }.into()),
        }),
        Arc::new(|text| text.replace("s3cret", "***")),
    )
}

fn caller(allow: &[&str]) -> HttpCaller {
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    HttpCaller::new(secrets(), &allow).unwrap()
}

fn params(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).unwrap()
}

async fn call(call: &HttpCall, given: Value) -> ActionResult {
    caller(&["127.0.0.0/8"]).call(call, &params(given), "s1/m-1/0/act").await
}

fn text(result: &ActionResult) -> &str {
    result.error.as_deref().unwrap_or_default()
}

fn ok(value: &Value) -> Response {
    axum::Json(value).into_response()
}

#[tokio::test]
async fn every_part_of_a_call_is_filled() {
    let api = ApiServer::start(|_, _| ok(&json!({"status": "已发货"}))).await;
    let template = api.call(json!({
        "method": "post", "query": {"lang": "zh", "page": "{page}", "tag": "{tags}", "gone": "{gone}"},
        "headers": {"Authorization": "Bearer ${TOKEN}", "X-User": "{user.name}", "X-Gone": "{gone}"},
        "body": {"order": "{id}", "n": "{page}", "note": "for {user.name}: {note}", "gone": "{gone}", "fixed": [true]}
    }));
    let given =
        json!({"id": "A 1", "page": 2, "tags": ["a&b", "c"], "user": {"name": "李雷"}, "note": "${TOKEN} {id}"});
    let result = call(&template, given).await;
    let status = Some(200);
    assert_eq!(result, ActionResult { status, ..ActionResult::ok(json!({"status": "已发货"})) });
    let seen = &api.seen()[0];
    assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("POST", "/orders/A%201?lang=zh&page=2&tag=a%26b&tag=c"));
    assert_eq!(
        seen.body,
        json!({"order": "A 1", "n": 2, "note": "for 李雷: ${TOKEN} {id}", "fixed": [true]}),
        "types are kept, missing params are omitted, and inserted text is not expanded"
    );
    assert_eq!(seen.headers["authorization"], "Bearer s3cret");
    assert_eq!(seen.headers["x-user"].as_bytes(), "李雷".as_bytes());
    assert_eq!(seen.headers["idempotency-key"], "s1/m-1/0/act");
    assert!(!seen.headers.contains_key("x-gone"));
}

#[tokio::test]
async fn without_a_template_the_params_are_the_body_and_a_given_body_replaces_both() {
    let api = ApiServer::start(|_, _| StatusCode::NO_CONTENT.into_response()).await;
    let result = call(&api.call(json!({"method": "PUT"})), json!({"id": "1", "a": [1]})).await;
    assert_eq!((result.ok, result.result, result.status), (true, None, Some(204)));
    let desk = api.call(json!({"body": {"never": "sent"}}));
    let given = json!({"text": "{id} ${TOKEN}"});
    caller(&["*"]).post(&desk, &params(json!({"id": "1"})), &given, "k").await;
    call(&api.call(json!({})), json!({"id": "1"})).await;
    let seen = api.seen();
    assert_eq!((seen[0].method.as_str(), &seen[0].body), ("PUT", &json!({"id": "1", "a": [1]})));
    assert_eq!((seen[1].method.as_str(), &seen[1].body), ("POST", &given));
    assert_eq!((seen[2].method.as_str(), &seen[2].body), ("GET", &json!("")));
}

#[tokio::test]
async fn a_param_cannot_leave_its_place() {
    let api = ApiServer::start(|_, _| ok(&json!({}))).await;
    let template = api.call(json!({"query": {"q": "{id}"}}));
    for (id, uri) in [
        ("../admin", "/orders/..%2Fadmin?q=..%2Fadmin"),
        ("a?b=c&d", "/orders/a%3Fb%3Dc%26d?q=a%3Fb%3Dc%26d"),
        ("@evil.example/x", "/orders/%40evil.example%2Fx?q=%40evil.example%2Fx"),
    ] {
        assert!(call(&template, json!({"id": id})).await.ok);
        assert_eq!(api.seen().last().unwrap().uri, uri);
    }
    for id in ["..", "."] {
        assert!(text(&call(&template, json!({"id": id})).await).contains("path segment"));
    }
    let missing = call(&template, json!({})).await;
    assert!(text(&missing).contains("`id` is missing"), "{missing:?}");
    let header = api.call(json!({"headers": {"X-A": "{a}"}}));
    let broken = call(&header, json!({"id": "1", "a": "x\r\nX-Evil: 1"})).await;
    assert!(text(&broken).contains("`X-A` holds a line break"), "{broken:?}");
    let host: HttpCall = serde_json::from_value(json!({"url": "http://{id}/x"})).unwrap();
    assert!(text(&call(&host, json!({"id": "evil.example"})).await).contains("scheme and host must be fixed"));
    let secret = api.call(json!({"headers": {"X-A": "${OTHER}"}}));
    assert!(text(&call(&secret, json!({"id": "1"})).await).contains("`secrets.allow`"));
    assert_eq!(api.seen().len(), 3, "a call with an invalid param is not sent");
}

#[tokio::test]
async fn passing_faults_are_repeated_under_one_key() {
    let api = ApiServer::start(|number, _| match number {
        0 => StatusCode::BAD_GATEWAY.into_response(),
        1 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
        _ => ok(&json!([1])),
    })
    .await;
    let begun = std::time::Instant::now();
    let result = call(&api.call(json!({"method": "POST"})), json!({"id": "1"})).await;
    assert_eq!((result.ok, result.attempts, result.result), (true, 3, Some(json!([1]))));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let keys: Vec<_> = api.seen().iter().map(|seen| seen.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["s1/m-1/0/act"; 3]);
}

#[tokio::test]
async fn other_refusals_are_not_repeated_and_reach_the_model() {
    let api = ApiServer::start(|number, _| match number {
        0 => (StatusCode::NOT_FOUND, "订单不存在 (s3cret)").into_response(),
        1 => (StatusCode::BAD_REQUEST, "x".repeat(100_000)).into_response(),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "still broken").into_response(),
    })
    .await;
    let one = call(&api.call(json!({})), json!({"id": "1"})).await;
    assert_eq!((one.ok, one.status, one.attempts), (false, Some(404), 1));
    assert_eq!(text(&one), "HTTP 404: 订单不存在 (***)");
    let two = call(&api.call(json!({})), json!({"id": "1"})).await;
    assert!(text(&two).len() < 2_200, "{}", text(&two).len());
    let three = call(&api.call(json!({"retries": 1})), json!({"id": "1"})).await;
    assert_eq!((three.status, three.attempts, text(&three)), (Some(500), 2, "HTTP 500: still broken"));
}

#[tokio::test]
async fn an_answer_over_the_limit_is_a_failure_and_one_at_the_limit_is_not() {
    let api = ApiServer::start(|number, _| "x".repeat((1 << 20) + number).into_response()).await;
    assert!(call(&api.call(json!({})), json!({"id": "1"})).await.ok);
    let over = call(&api.call(json!({})), json!({"id": "1"})).await;
    assert_eq!((over.ok, over.attempts), (false, 1));
    assert!(text(&over).contains("larger than 1 MiB"), "{over:?}");
}

#[tokio::test]
async fn the_timeout_bounds_each_attempt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let silent: HttpCall = serde_json::from_value(json!({"url": url, "timeout": "100ms", "retries": 1})).unwrap();
    let result = call(&silent, json!({})).await;
    assert_eq!((result.ok, result.attempts), (false, 2));
    assert!(text(&result).contains("within 100ms"), "{result:?}");
}

#[tokio::test]
async fn nobody_there_is_a_failed_result_without_secrets() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/?key=${{TOKEN}}", listener.local_addr().unwrap());
    drop(listener);
    let gone: HttpCall = serde_json::from_value(json!({"url": url, "retries": 0})).unwrap();
    let result = call(&gone, json!({})).await;
    assert!(!result.ok && !text(&result).is_empty() && !text(&result).contains("s3cret"), "{result:?}");
}

#[tokio::test]
async fn private_targets_are_refused_unless_allowed() {
    let api = ApiServer::start(|_, seen| match seen.uri.as_str() {
        "/away" => {
            (StatusCode::FOUND, [("location", format!("http://127.0.0.1:{}/inside", port(seen)))]).into_response()
        }
        "/round" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/round")]).into_response(),
        "/moved" => (StatusCode::PERMANENT_REDIRECT, [("location", "/here")]).into_response(),
        _ => ok(&json!({})),
    })
    .await;
    let at = |host: &str, path: &str| -> HttpCall {
        serde_json::from_value(json!({"url": format!("http://{host}:{}{path}", api.port)})).unwrap()
    };
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let refused = caller(&["10.0.0.0/8", "crm.internal"]).call(&at(host, "/"), &Map::new(), "k").await;
        assert!(!refused.ok && refused.attempts == 1, "{host}: {refused:?}");
        assert!(text(&refused).contains("`http.allow_private`"), "{host}: {refused:?}");
    }
    assert_eq!(api.seen().len(), 0);
    let by_name = caller(&["localhost"]);
    assert!(by_name.call(&at("localhost", "/moved"), &Map::new(), "k").await.ok);
    let redirected = by_name.call(&at("localhost", "/away"), &Map::new(), "k").await;
    assert!(text(&redirected).contains("`127.0.0.1` is a private address"), "{redirected:?}");
    assert!(api.seen().iter().all(|seen| seen.uri != "/inside"));
    let before = api.seen().len();
    let round = by_name.call(&at("localhost", "/round"), &Map::new(), "k").await;
    assert!(text(&round).contains("more than 5 redirects") && round.attempts == 1, "{round:?}");
    assert_eq!(api.seen().len() - before, 6);
}

fn port(seen: &Seen) -> &str {
    seen.headers["host"].to_str().unwrap().rsplit(':').next().unwrap()
}
