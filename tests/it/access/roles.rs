//! Every endpoint with every role, from the OpenAPI description. The rules here are those of the contract, written
//! down a second time: an endpoint that is new must be in a rule, or belongs to `admin` alone.

use super::{Guarded, answered, code};
use crate::support::backend::embedded;
use reqwest::Method;
use serde_json::{Value, json};
use types::access::Role;

/// The rights in the contract.
fn is_allowed(role: Role, method: &str, path: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    let checks =
        ["/api/v1/decisions/validate", "/api/v1/agents/validate", "/api/v1/workflows/validate"].contains(&path);
    let starts_a_run = ends(&["/run"]);
    let starts_runs = method == "post" && path == "/api/v1/workflows/{workflow_id}/runs";
    let reads = method == "get" && !starts_a_run && path != "/api/v1/audit";
    let talks =
        method == "post" && ends(&["/reply", "/release", "/claim", "/unclaim", "/transfer", "/notes", "/typing"]);
    let controls = method == "post"
        && (path.contains("/sessions/{session_id}/") || path.contains("/dead/") || path.contains("/runs"));
    let authors = ["/api/v1/session", "/api/v1/chat/", "/api/v1/workflow/", "/api/v1/authoring/"];
    let authors = authors.iter().any(|start| path.starts_with(start)) && !path.starts_with("/api/v1/sessions");
    // A replay shows messages of other users.
    let replays = path.starts_with("/api/v1/workflow/{session_id}/replay");
    let (reads, authors) = (reads && !replays, authors && !replays);
    match role {
        Role::Admin => true,
        Role::Channel => {
            let session = "/api/v1/sessions/{session_id}";
            ["/openapi.json", "/api/v1/me", "/api/v1/events"].contains(&path)
                || (method == "post" && path == "/api/v1/messages")
                || (method == "get" && (path == session || path == format!("{session}/events")))
        }
        Role::Author => {
            ["/openapi.json", "/api/v1/me"].contains(&path)
                || path.starts_with("/api/v1/decisions/")
                || authors
                || starts_a_run
                || starts_runs
        }
        Role::Viewer => reads || checks,
        Role::Agent => reads || checks || talks,
        Role::Operator => reads || checks || talks || controls || starts_a_run || authors || replays,
    }
}

/// All operations of the description that need a token: method and path.
async fn operations(guarded: &Guarded) -> Vec<(String, String, Value)> {
    let (status, document) = guarded.get("root", "/openapi.json").await;
    assert_eq!(status, 200);
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            found.push((method.clone(), path.clone(), operation["security"].clone()));
        }
    }
    found.retain(|(_, path, _)| !matches!(path.as_str(), "/healthz" | "/readyz" | "/api/v1/login" | "/api/v1/logout"));
    assert!(found.len() > 50, "{}", found.len());
    found
}

/// The path with ids of things that do not exist.
fn asked(path: &str) -> String {
    path.replace("{session_id}", "s1")
        .replace("{turn_id}", "t1")
        .replace("{agent_id}", "a1")
        .replace("{source}", "kb")
        .replace("{workflow_id}", "w1")
        .replace("{run_id}", "r1")
        .replace("{user_id}", "u1")
        .replace("{which}", "7")
        .replace("{hash}", "h1")
        .replace("{action_type}", "respond")
        .replace("{replay_id}", "p1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_may_call_what_the_contract_allows_and_nothing_else() {
    let entries = Role::ALL.map(|role| json!({"name": role, "role": role}));
    let guarded = Guarded::start(&embedded().await, &entries).await;
    for (method, path, security) in operations(&guarded).await {
        let mut described: Vec<&str> =
            security.as_array().unwrap().iter().filter_map(|one| one["bearer"][0].as_str()).collect();
        let mut by_cookie: Vec<&str> =
            security.as_array().unwrap().iter().filter_map(|one| one["cookie"][0].as_str()).collect();
        by_cookie.sort_unstable();
        described.sort_unstable();
        let mut allowed: Vec<&str> =
            Role::ALL.into_iter().filter(|role| is_allowed(*role, &method, &path)).map(Role::as_str).collect();
        allowed.sort_unstable();
        assert_eq!((&described, &by_cookie), (&allowed, &allowed), "{method} {path}");
        for role in Role::ALL {
            let verb: Method = method.to_uppercase().parse().unwrap();
            let body = (method != "get").then(|| json!({}));
            let response = guarded.ask(role.as_str(), verb, &asked(&path), body.as_ref()).await;
            // A stream of events has no end.
            if response.headers()["content-type"] == "text/event-stream" {
                assert!(is_allowed(role, &method, &path), "{role} {method} {path}");
                continue;
            }
            let (status, body) = answered(response).await;
            assert_eq!(status != 403, is_allowed(role, &method, &path), "{role} {method} {path}: {status} {body}");
            if status == 403 {
                assert_eq!(code(&body), "forbidden", "{role} {method} {path}");
                let message = body["error"]["message"].as_str().unwrap();
                assert!(described.iter().all(|needed| message.contains(&format!("`{needed}`"))), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn nobody_is_let_in_without_a_token_that_is_known() {
    let guarded = Guarded::start(&embedded().await, &[json!({"name": "web", "role": "admin"})]).await;
    for caller in ["nobody", "web-token ", "WEB"] {
        for (method, path, _) in operations(&guarded).await.into_iter().take(5) {
            let response = guarded.ask(caller, method.to_uppercase().parse().unwrap(), &asked(&path), None).await;
            assert_eq!(response.status(), 401, "{caller} {method} {path}");
        }
    }
    let plain = guarded.gateway.get("/api/v1/sessions").await;
    assert_eq!(plain.status(), 401);
}
