//! Logins with a cookie, and attacks on them.

use super::{Guarded, answered, code, opened};
use crate::scenarios::{answer, engine};
use crate::support::backend::{embedded, embedded_with};
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use base::config::Settings;
use reqwest::{Method, Response};
use serde_json::{Value, json};

fn entries() -> [Value; 3] {
    [
        json!({"name": "lead", "role": "operator"}),
        json!({"name": "looker", "role": "viewer"}),
        json!({"name": "web", "role": "channel", "channels": ["web"]}),
    ]
}

impl Guarded {
    fn origin(&self) -> String {
        self.gateway.base.clone()
    }

    async fn login(&self, token: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.gateway.client.post(format!("{}/api/v1/login", self.gateway.base));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.json(&json!({ "token": token })).send().await.unwrap()
    }

    /// The cookie of a login, as a browser sends it back.
    async fn cookie(&self, caller: &str) -> String {
        let response = self.login(&format!("{caller}-token"), &[]).await;
        assert_eq!(response.status(), 200);
        let cookie = set_cookie(&response);
        cookie.split(';').next().unwrap().to_owned()
    }

    /// A request of a browser's page: with the cookie, and the page's origin if it has one.
    async fn browse(&self, cookie: &str, method: Method, path: &str, origin: Option<&str>) -> (u16, Value) {
        let request = self.gateway.client.request(method.clone(), format!("{}{path}", self.gateway.base));
        let request = request.header("cookie", format!("theme=dark; {cookie}"));
        let request = match origin {
            Some(origin) => request.header("origin", origin),
            None => request,
        };
        let request = if method == Method::GET { request } else { request.json(&json!({})) };
        answered(request.send().await.unwrap()).await
    }
}

fn set_cookie(response: &Response) -> String {
    response.headers()["set-cookie"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_login_gives_a_cookie_that_counts_as_its_token() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let response = guarded.login("looker-token", &[]).await;
    let cookie = set_cookie(&response);
    for part in ["turnwheel_session=", "Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.split("; ").any(|found| found.starts_with(part)), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains("looker-token"), "{cookie}");
    let (status, body) = answered(response).await;
    assert_eq!((status, &body["name"], &body["role"]), (200, &json!("looker"), &json!("viewer")));

    let cookie = cookie.split(';').next().unwrap();
    let (status, me) = guarded.browse(cookie, Method::GET, "/api/v1/me", None).await;
    assert_eq!((status, &me["name"], &me["login"]), (200, &json!("looker"), &json!("cookie")), "{me}");
    assert_eq!(me["expires_at"], body["expires_at"]);
    assert_eq!((&me["backend"], &me["version"]), (&json!("embedded"), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(guarded.browse(cookie, Method::GET, "/api/v1/sessions", None).await.0, 200);

    let by_token = guarded.get("looker", "/api/v1/me").await.1;
    assert_eq!((&by_token["login"], &by_token["expires_at"]), (&json!("token"), &Value::Null));
}

#[tokio::test]
async fn over_https_the_cookie_is_for_https_only() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    for (proto, secure) in [("https", true), ("https, http", true), ("http", false)] {
        let response = guarded.login("lead-token", &[("x-forwarded-proto", proto)]).await;
        assert_eq!(set_cookie(&response).ends_with("; Secure"), secure, "{proto}");
    }
}

#[tokio::test]
async fn a_logout_removes_the_cookie() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let response = guarded.gateway.client.post(format!("{}/api/v1/logout", guarded.gateway.base)).send().await.unwrap();
    assert_eq!(response.status(), 204);
    let cookie = set_cookie(&response);
    assert!(cookie.starts_with("turnwheel_session=; ") && cookie.contains("Max-Age=0"), "{cookie}");
}

#[tokio::test]
async fn without_tokens_everybody_on_this_machine_is_an_administrator_without_a_login() {
    let backend = embedded_with(Settings::default()).await;
    let gateway = crate::gateway::Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let me = gateway.json("/api/v1/me").await;
    assert_eq!((&me["login"], &me["role"], &me["dev"]), (&json!("none"), &json!("admin"), &json!(true)), "{me}");
    assert_eq!(gateway.post("/api/v1/login", &json!({"token": "x"})).await.status(), 401);
}

#[tokio::test]
async fn a_wrong_token_is_refused_wherever_it_is_given() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    for token in ["wrong", "", "lead-token x", "LEAD-TOKEN"] {
        let (status, body) = answered(guarded.login(token, &[]).await).await;
        assert_eq!((status, code(&body)), (401, "unauthorized"), "{token}");
    }
    // Addresses are logged and remembered by many programs, so a token in one counts for nothing.
    for path in ["/api/v1/me?token=lead-token", "/api/v1/sessions?token=lead-token&access_token=lead-token"] {
        assert_eq!(guarded.gateway.get(path).await.status(), 401, "{path}");
    }
    let plain = guarded.browse("turnwheel_session=lead-token", Method::GET, "/api/v1/me", None).await;
    assert_eq!(plain.0, 401);
}

#[tokio::test]
async fn a_forged_cookie_is_refused() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let (lead, looker) = (guarded.cookie("lead").await, guarded.cookie("looker").await);
    assert_eq!(guarded.browse(&lead, Method::GET, "/api/v1/me", None).await.0, 200);
    let (content, signature) = lead.split_once('.').unwrap();
    let other = looker.split_once('.').unwrap();
    let changed = |at: usize| {
        let mut bytes = content.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        format!("{}.{signature}", String::from_utf8(bytes).unwrap())
    };
    let mut forged = vec![
        format!("{content}.{}", other.1),
        format!("{}.{signature}", other.0),
        content.to_owned(),
        format!("{content}."),
        format!("{content}.{signature}A"),
        format!("{content}.{}", &signature[..signature.len() - 4]),
        "turnwheel_session=".to_owned(),
        "turnwheel_session=.".to_owned(),
        "turnwheel_session=e30.e30".to_owned(),
    ];
    forged.extend((20..content.len() - 1).step_by(37).map(changed));
    for cookie in forged {
        let (status, body) = guarded.browse(&cookie, Method::GET, "/api/v1/me", None).await;
        assert_eq!((status, code(&body)), (401, "unauthorized"), "{cookie}");
    }
    // Another installation has another secret.
    let elsewhere = Guarded::start(&embedded().await, &entries()).await;
    assert_eq!(elsewhere.browse(&lead, Method::GET, "/api/v1/me", None).await.0, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookie_of_a_removed_or_replaced_token_ends() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let (lead, looker) = (guarded.cookie("lead").await, guarded.cookie("looker").await);
    std::fs::write(guarded._tokens.path().join("lead"), "another-token\n").unwrap();
    eventually(DEADLINE, "the old token's cookie is refused", || async {
        guarded.browse(&lead, Method::GET, "/api/v1/me", None).await.0 == 401
    })
    .await;
    assert_eq!(guarded.login("lead-token", &[]).await.status(), 401);
    assert_eq!(guarded.login("another-token", &[]).await.status(), 200);
    assert_eq!(guarded.browse(&looker, Method::GET, "/api/v1/me", None).await.0, 200, "others stay");
}

#[tokio::test]
async fn a_cookie_ends_when_the_rights_of_its_token_change() {
    let backend = embedded().await;
    let before = Guarded::start(&backend, &entries()).await;
    let (lead, looker) = (before.cookie("lead").await, before.cookie("looker").await);
    let changed =
        [json!({"name": "lead", "role": "operator", "channels": ["web"]}), json!({"name": "looker", "role": "viewer"})];
    let after = Guarded::start(&backend, &changed).await;
    assert_eq!(after.browse(&lead, Method::GET, "/api/v1/me", None).await.0, 401);
    assert_eq!(after.browse(&looker, Method::GET, "/api/v1/me", None).await.0, 200);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let lead = guarded.cookie("lead").await;
    let post =
        async |origin: Option<&str>| guarded.browse(&lead, Method::POST, "/api/v1/sessions/s9/cancel", origin).await;
    for origin in [None, Some("https://evil.example"), Some("null"), Some("http://127.0.0.1:1")] {
        let (status, body) = post(origin).await;
        assert_eq!((status, code(&body)), (403, "foreign_origin"), "{origin:?}");
    }
    let (status, body) = post(Some(&guarded.origin())).await;
    assert_eq!((status, code(&body)), (404, "unknown_session"));
    // A foreign page can neither log a browser in, nor out.
    let evil = [("origin", "https://evil.example")];
    assert_eq!(guarded.login("lead-token", &evil).await.status(), 403);
    assert_eq!(guarded.browse(&lead, Method::POST, "/api/v1/logout", Some("https://evil.example")).await.0, 403);
    // With a bearer token there is no cookie to abuse.
    let (status, _) = guarded.post("lead", "/api/v1/sessions/s9/cancel", &json!({})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_login_has_the_role_and_the_scope_of_its_token() {
    let guarded = Guarded::start(&embedded().await, &entries()).await;
    let (looker, web) = (guarded.cookie("looker").await, guarded.cookie("web").await);
    let origin = guarded.origin();
    let (status, body) =
        guarded.browse(&looker, Method::POST, "/api/v1/sessions/s1/cancel", Some(origin.as_str())).await;
    assert_eq!((status, code(&body)), (403, "forbidden"));
    assert_eq!(guarded.browse(&web, Method::GET, "/api/v1/sessions", None).await.0, 403);
    assert_eq!(guarded.browse(&web, Method::GET, "/api/v1/me", None).await.1["role"], "channel");
}

async fn all_gateways_know_a_login_and_its_commands_have_its_name(backend: Backend) {
    let engine = engine(backend, answer("好"), vec![answer("好"); 3]).await;
    let (one, two) = (Guarded::of(&engine, &entries()).await, Guarded::of(&engine, &entries()).await);
    let lead = one.cookie("lead").await;
    assert_eq!(two.browse(&lead, Method::GET, "/api/v1/me", None).await.1["name"], "lead");
    opened(&two, &engine, "w-1", "web").await;
    let cancelled = two.browse(&lead, Method::POST, "/api/v1/sessions/w-1/close", Some(two.origin().as_str())).await;
    assert_eq!(cancelled.0, 202, "{}", cancelled.1);
    eventually(DEADLINE, "the audit trail names the login", || async {
        let (_, audit) = two.get("root", "/api/v1/audit").await;
        audit.to_string().contains(r#""by":"lead""#)
    })
    .await;
}

crate::scenarios::on_both_backends!(all_gateways_know_a_login_and_its_commands_have_its_name);
