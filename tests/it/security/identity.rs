//! Attempts to act as another user: no param, no later message and no run chooses the session for which an API is called.

use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::ScriptedModel;
use ::commands::runs::{NewRun, start_run};
use serde_json::{Value, json};
use types::session::Role;
use types::turn::TurnRecord;

on_both_backends!(
    params_shadow_no_fact_of_the_session,
    a_session_keeps_the_user_of_its_first_message,
    a_call_that_needs_a_user_is_not_made_without_one,
    runs_act_for_the_user_of_their_session,
);

/// A call that names the session everywhere, in addition to the params.
fn http() -> Value {
    json!({
        "method": "POST", "url": "{api}/orders/{session.user_id}/{m}", "query": {"s": "{session.id}"},
        "headers": {"Idempotency-Key": "ignored", "traceparent": "{session.user_id}"},
        "body": {"id": "{session.id}", "user": "{session.user_id}", "text": "of {session.user_id} on {session.channel}",
                 "m": "{m}", "param": "{session}"},
    })
}

/// An agent that calls its tool with params that pose as the session.
fn agent() -> Value {
    let forged = json!({"m": "{message}", "session": {"id": "forged", "user_id": "forged"}, "session.id": "forged",
        "session.user_id": "forged", "session.channel": "forged"});
    json!({
        "id": "sales", "sop": "x", "model": "offline", "tools": [{"id": "t", "params": {"type": "object"}, "http": http()}],
        "handoff": {"mode": "notify", "http": {"method": "POST", "url": "{api}/desk/{session.user_id}"}},
        "rules": [
            {"when": {"result_of": "t"}, "decide": {"next_status": "typing", "response": "{result.done} {error}"}},
            {"when": {"contains": ["human"]}, "decide": {"next_status": "transferred", "response": "One moment.",
                "action": {"type": "SYSTEM", "target": "handoff"}}},
            {"when": {"always": true}, "decide": {"next_status": "processing",
                "action": {"type": "TOOL", "target": "t", "params": forged}}},
        ],
    })
}

async fn engine(backend: Backend) -> Engine {
    let engine = Engine::start(backend, ScriptedModel::answering(vec![json!({})]).await, 1).await;
    engine.apply(agent()).await;
    engine
}

/// Says something as a user, or without one.
async fn say(engine: &Engine, job_id: &str, text: &str, user_id: Option<&str>) -> TurnRecord {
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": job_id, "text": text,
        "user_id": user_id, "channel": "web"});
    engine.publish_job("s1", job).await;
    engine.turn("s1", job_id).await
}

async fn params_shadow_no_fact_of_the_session(backend: Backend) {
    let engine = engine(backend).await;
    say(&engine, "m-1", "I am @forged", Some("li.si@example.com")).await;
    let call = &engine.api.calls("/orders")[0];
    assert_eq!(call.path, "/orders/li.si%40example.com/I%20am%20%40forged?s=s1");
    assert_eq!(call.traceparent, "li.si@example.com", "a header");
    let user = "li.si@example.com";
    let body = json!({"id": "s1", "user": user, "text": format!("of {user} on web"), "m": "I am @forged",
        "param": {"id": "forged", "user_id": "forged"}});
    assert_eq!(call.body, body);
    say(&engine, "m-2", "a human", None).await;
    assert_eq!(engine.api.calls("/desk")[0].path, "/desk/li.si%40example.com");
}

async fn a_session_keeps_the_user_of_its_first_message(backend: Backend) {
    let engine = engine(backend).await;
    say(&engine, "m-1", "first", Some("li")).await;
    say(&engine, "m-2", "second", Some("wang")).await;
    say(&engine, "m-3", "third", None).await;
    let users: Vec<_> = engine.api.calls("/orders").iter().map(|call| call.body["user"].clone()).collect();
    assert_eq!(users, ["li", "li", "li"]);
    let session = engine.session("s1").await;
    assert_eq!(session.user_id, "li");
    let said = session.history.iter().filter(|entry| entry.role == Role::User);
    let senders: Vec<_> = said.map(|entry| (entry.text.as_str(), entry.metadata.get("user_id"))).collect();
    let wang = json!("wang");
    assert_eq!(senders, [("first", None), ("second", Some(&wang)), ("third", None)], "no message is lost");
}

async fn a_call_that_needs_a_user_is_not_made_without_one(backend: Backend) {
    let engine = engine(backend).await;
    say(&engine, "m-1", "anonymous", None).await;
    assert!(engine.api.calls("/orders").is_empty());
    let said = engine.said("s1").await.last().unwrap().1.clone();
    assert!(said.contains("`{session.user_id}` has no value"), "{said}");
    say(&engine, "m-2", "known", Some("li")).await;
    assert_eq!(engine.api.calls("/orders")[0].body["user"], "li");
}

async fn runs_act_for_the_user_of_their_session(backend: Backend) {
    let engine = engine(backend).await;
    let params = json!({"m": "run", "session": {"user_id": "forged"}});
    engine
        .apply(json!({
            "id": "task", "system_prompt": "x", "model": "offline",
            "tools": [{"id": "t", "params": {"type": "object"}, "http": http()}],
            "rules": [
                {"when": {"result_of": "t"}, "decide": {"response": "{result} {error}"}},
                {"when": {"always": true}, "decide": {"action": {"type": "TOOL", "target": "t", "params": params}}},
            ],
        }))
        .await;
    say(&engine, "m-1", "first", Some("li")).await;
    engine.api.forget();
    for (run_id, session_id, user_id, seen) in [
        ("r1", Some("s1"), Some("wang"), Some(("s1", "li"))),
        ("r2", Some("s2"), Some("wang"), Some(("s2", "wang"))),
        ("r3", None, Some("wang"), None),
    ] {
        let new = NewRun {
            run_id: Some(run_id.into()),
            session_id: session_id.map(str::to_owned),
            user_id: user_id.map(str::to_owned),
            ..NewRun::new("task", "go")
        };
        start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap();
        eventually(DEADLINE, "the run has ended", || async {
            engine.store.run(run_id).await.unwrap().is_some_and(|run| run.status.has_ended())
        })
        .await;
        let calls: Vec<_> = engine.api.calls("/orders").iter().map(|call| call.body.clone()).collect();
        let seen = seen.map(|(id, user)| (json!(id), json!(user)));
        assert_eq!(calls.last().map(|body| (body["id"].clone(), body["user"].clone())), seen, "{run_id}");
        engine.api.forget();
    }
}
