//! The requests whose responses are compared with the document.

use reqwest::Method;
use serde_json::{Value, json};

/// A request, and the path that describes it.
pub(super) struct DescribedRequest {
    pub(super) method: Method,
    pub(super) described: &'static str,
    pub(super) path: &'static str,
    pub(super) body: Option<Value>,
    pub(super) status: u16,
}

fn asked(
    method: Method,
    described: &'static str,
    path: &'static str,
    body: Option<Value>,
    status: u16,
) -> DescribedRequest {
    DescribedRequest { method, described, path, body, status }
}

pub(super) fn requests() -> Vec<DescribedRequest> {
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let session = "/api/v1/sessions/{session_id}";
    let turn = "/api/v1/sessions/{session_id}/turns/{turn_id}";
    let prompt = "/api/v1/sessions/{session_id}/turns/{turn_id}/prompts/{key}";
    let message = |text: &str| {
        Some(
            json!({"session_id": "s2", "agent_id": "sales", "text": text, "job_id": "m-1", "user_id": "u1", "channel": "web",
                    "sent_at": "2026-01-02T03:04:05Z", "metadata": {"k": 1},
                    "attachments": [{"type": "image", "url": "https://example.com/a.png", "size": 1}]}),
        )
    };
    let words = Some(json!({"text": "我来处理", "by": "李雷"}));
    let agent = "/api/v1/agents/{agent_id}";
    let (source, search) = ("/api/v1/knowledge/{agent_id}/{source}", "/api/v1/knowledge/search");
    let document = |id: &str| {
        Some(
            json!({"id": id, "name": "二号", "sop": "问候", "rules": [{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好"}}]}),
        )
    };
    vec![
        asked(get.clone(), "/healthz", "/healthz", None, 200),
        asked(get.clone(), "/readyz", "/readyz", None, 200),
        asked(get.clone(), "/api/v1/sessions", "/api/v1/sessions?status=ready&limit=5", None, 200),
        asked(
            get.clone(),
            "/api/v1/sessions",
            "/api/v1/sessions?channel=web&user_id=u1&waiting=false&since=2026-01-02T03:04:05Z&q=hi",
            None,
            200,
        ),
        asked(get.clone(), "/api/v1/sessions", "/api/v1/sessions?limit=0", None, 400),
        asked(get.clone(), session, "/api/v1/sessions/s1", None, 200),
        asked(get.clone(), session, "/api/v1/sessions/nobody", None, 404),
        asked(get.clone(), session, "/api/v1/sessions/a.b", None, 400),
        asked(
            get.clone(),
            "/api/v1/sessions/{session_id}/decisions",
            "/api/v1/sessions/s1/decisions?replay=true",
            None,
            200,
        ),
        asked(get.clone(), "/api/v1/sessions/{session_id}/turns", "/api/v1/sessions/s1/turns", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-1", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-2", None, 200),
        asked(get.clone(), turn, "/api/v1/sessions/s1/turns/m-9", None, 404),
        asked(get.clone(), prompt, "/api/v1/sessions/s1/turns/m-1/prompts/0%2Fdecide", None, 200),
        asked(get.clone(), prompt, "/api/v1/sessions/s1/turns/m-1/prompts/9%2Fdecide", None, 404),
        asked(get.clone(), "/api/v1/me", "/api/v1/me", None, 200),
        asked(get.clone(), "/api/v1/events", "/api/v1/events?after=x", None, 400),
        asked(post.clone(), "/api/v1/login", "/api/v1/login", Some(json!({"token": "wrong"})), 401),
        asked(get.clone(), "/api/v1/sessions/{session_id}/events", "/api/v1/sessions/nobody/events", None, 404),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", message("你好"), 202),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", Some(json!({"session_id": 7})), 400),
        asked(post.clone(), "/api/v1/messages", "/api/v1/messages", None, 415),
        asked(post.clone(), "/api/v1/sessions/{session_id}/reply", "/api/v1/sessions/s1/reply", words, 409),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/reply",
            "/api/v1/sessions/s1/reply",
            Some(json!({"text": " "})),
            400,
        ),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/cancel",
            "/api/v1/sessions/s1/cancel",
            Some(Value::Null),
            202,
        ),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/release",
            "/api/v1/sessions/s1/release",
            Some(json!({"by": "li"})),
            202,
        ),
        asked(post.clone(), "/api/v1/sessions/{session_id}/close", "/api/v1/sessions/s1/close", None, 202),
        asked(
            post.clone(),
            "/api/v1/sessions/{session_id}/timers/cancel",
            "/api/v1/sessions/s1/timers/cancel",
            Some(json!({"name": "follow_up"})),
            202,
        ),
        asked(get.clone(), "/api/v1/timers", "/api/v1/timers", None, 200),
        asked(get.clone(), "/api/v1/timers", "/api/v1/timers?session_id=nobody", None, 404),
        asked(get.clone(), "/api/v1/audit", "/api/v1/audit?limit=5", None, 200),
        asked(get.clone(), "/api/v1/audit", "/api/v1/audit?after=%24x", None, 400),
        asked(post.clone(), "/api/v1/backup", "/api/v1/backup", None, 409),
        asked(get.clone(), "/api/v1/dead", "/api/v1/dead?limit=5", None, 200),
        asked(get.clone(), "/api/v1/dead/{which}", "/api/v1/dead/7", None, 404),
        asked(post.clone(), "/api/v1/dead/replay", "/api/v1/dead/replay", Some(json!({"cause": "attempts"})), 202),
        asked(post.clone(), "/api/v1/dead/replay", "/api/v1/dead/replay", Some(json!({"limit": 0})), 400),
        asked(post, "/api/v1/dead/{which}/replay", "/api/v1/dead/7/replay", None, 404),
        asked(get.clone(), "/api/v1/doctor", "/api/v1/doctor", None, 200),
        asked(get.clone(), "/api/v1/processes", "/api/v1/processes", None, 200),
        asked(get.clone(), "/api/v1/agents", "/api/v1/agents", None, 200),
        asked(get.clone(), agent, "/api/v1/agents/sales", None, 200),
        asked(put.clone(), agent, "/api/v1/agents/second", document("second"), 200),
        asked(put.clone(), agent, "/api/v1/agents/second", document("third"), 400),
        asked(
            put.clone(),
            agent,
            "/api/v1/agents/odd",
            Some(json!({"id": "odd", "sop": "问候", "greating": "您好"})),
            200,
        ),
        asked(
            put.clone(),
            source,
            "/api/v1/knowledge/sales/kb%2Fa.md",
            Some(json!({"text": "# 退货\n七天内可退。"})),
            200,
        ),
        asked(put.clone(), source, "/api/v1/knowledge/sales/kb%2Fa.md", Some(json!({"text": " "})), 400),
        asked(put.clone(), source, "/api/v1/knowledge/sales/b?refresh=false", Some(json!({"text": "保修两年。"})), 200),
        asked(put, source, "/api/v1/knowledge/sales/b?refresh=later", Some(json!({"text": "保修两年。"})), 400),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/b?refresh=false", None, 200),
        asked(get.clone(), "/api/v1/knowledge", "/api/v1/knowledge?agent_id=sales", None, 200),
        asked(get.clone(), "/api/v1/knowledge", "/api/v1/knowledge?agent_id=nobody", None, 404),
        asked(get.clone(), search, "/api/v1/knowledge/search?agent_id=sales&query=%E9%80%80%E8%B4%A7", None, 200),
        asked(get.clone(), search, "/api/v1/knowledge/search?agent_id=sales", None, 400),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/kb%2Fa.md", None, 200),
        asked(Method::DELETE, source, "/api/v1/knowledge/sales/kb%2Fa.md", None, 404),
        asked(get, "/api/v1/models", "/api/v1/models", None, 200),
    ]
    .into_iter()
    .chain(requests_about_handoffs())
    .chain(requests_about_workflows())
    .chain(requests_about_versions())
    .chain(requests_about_decisions())
    .chain(requests_about_dialogues())
    .collect()
}

/// Requests about versions of agents and workflows.
fn requests_about_versions() -> Vec<DescribedRequest> {
    let (get, post) = (Method::GET, Method::POST);
    let (checked, all) = ("/api/v1/agents/validate", "/api/v1/agents/{agent_id}/versions");
    let (one, apply) = ("/api/v1/agents/{agent_id}/versions/{hash}", "/api/v1/agents/{agent_id}/versions/{hash}/apply");
    let agent = json!({"id": "tried", "sop": "问候", "greating": "您好"});
    let text = |source: &str| Some(json!({"source": source}));
    let (of_workflow, shown) =
        ("/api/v1/workflows/{workflow_id}/versions", "/api/v1/workflows/{workflow_id}/versions/{hash}");
    let applied = "/api/v1/workflows/{workflow_id}/versions/{hash}/apply";
    let flow = json!({"id": "tried", "stages": [{"id": "a", "runnable": "writer", "input": "{query}"}]});
    // With the hashes of these documents.
    let (flow_hash, flow_applied) = (
        "/api/v1/workflows/tried/versions/8a54b5c38fed65a1899dbf1c64805991",
        "/api/v1/workflows/tried/versions/8a54b5c38fed65a1899dbf1c64805991/apply",
    );
    vec![
        asked(post.clone(), checked, checked, text("id: a\nsop： 问候\n"), 200),
        asked(post.clone(), checked, checked, text("# 店\nid: a\nsop: 问候\ngreating: 您好\n"), 200),
        asked(post.clone(), checked, checked, None, 415),
        asked(post.clone(), all, "/api/v1/agents/tried/versions?note=one", Some(agent.clone()), 201),
        asked(post.clone(), all, "/api/v1/agents/other/versions", Some(agent), 400),
        asked(post.clone(), all, "/api/v1/agents/tried/versions", Some(json!({"id": "tried"})), 422),
        asked(get.clone(), all, "/api/v1/agents/tried/versions?limit=5", None, 200),
        asked(get.clone(), all, "/api/v1/agents/nobody/versions", None, 404),
        asked(get.clone(), one, "/api/v1/agents/tried/versions/f1eb2877fe457506282cd788905a0544", None, 200),
        asked(get.clone(), one, "/api/v1/agents/tried/versions/none", None, 404),
        asked(
            post.clone(),
            apply,
            "/api/v1/agents/tried/versions/f1eb2877fe457506282cd788905a0544/apply",
            Some(json!({"note": "go"})),
            200,
        ),
        asked(post.clone(), apply, "/api/v1/agents/tried/versions/none/apply", None, 404),
        asked(
            post.clone(),
            "/api/v1/workflows/validate",
            "/api/v1/workflows/validate",
            text("id: w\nstages:\n  - {id: a, runnable: nobody, input: x}\n"),
            200,
        ),
        asked(post.clone(), of_workflow, "/api/v1/workflows/tried/versions", Some(flow.clone()), 201),
        asked(post.clone(), of_workflow, "/api/v1/workflows/other/versions", Some(flow), 400),
        asked(get.clone(), of_workflow, "/api/v1/workflows/tried/versions", None, 200),
        asked(get.clone(), shown, flow_hash, None, 200),
        asked(get, shown, "/api/v1/workflows/tried/versions/none", None, 404),
        asked(post.clone(), applied, flow_applied, None, 200),
        asked(post, applied, "/api/v1/workflows/tried/versions/none/apply", None, 404),
    ]
}

/// Requests about `s1`, which `li` takes over.
fn requests_about_handoffs() -> Vec<DescribedRequest> {
    let post = |described: &'static str, path: &'static str, body: Value, status: u16| {
        asked(Method::POST, described, path, Some(body), status)
    };
    let (claim, unclaim) = ("/api/v1/sessions/{session_id}/claim", "/api/v1/sessions/{session_id}/unclaim");
    let typing = "/api/v1/sessions/{session_id}/typing";
    let (transfer, notes) = ("/api/v1/sessions/{session_id}/transfer", "/api/v1/sessions/{session_id}/notes");
    vec![
        post(claim, "/api/v1/sessions/s1/claim", json!({"by": "li"}), 409),
        post(claim, "/api/v1/sessions/nobody/claim", json!({"take_over": true}), 404),
        post(claim, "/api/v1/sessions/s1/claim", json!({"by": "李".repeat(100)}), 400),
        post(claim, "/api/v1/sessions/s1/claim", json!({"by": "li", "take_over": true, "reason": "angry"}), 200),
        post(claim, "/api/v1/sessions/s1/claim", json!({"by": "wang"}), 409),
        post(notes, "/api/v1/sessions/s1/notes", json!({"text": "has called twice", "by": "wang"}), 202),
        post(notes, "/api/v1/sessions/s1/notes", json!({"text": " "}), 400),
        post(notes, "/api/v1/sessions/s1/notes", json!({"text": "x".repeat(5_000)}), 413),
        asked(Method::GET, "/api/v1/handoffs", "/api/v1/handoffs?state=mine&by=li", None, 200),
        asked(Method::GET, "/api/v1/handoffs", "/api/v1/handoffs?state=others", None, 400),
        asked(Method::GET, "/api/v1/handoffs", "/api/v1/handoffs?after=x", None, 400),
        post(transfer, "/api/v1/sessions/s1/transfer", json!({"to": "wang"}), 409),
        post(transfer, "/api/v1/sessions/s1/transfer", json!({"to": "wang", "by": "li", "note": "again"}), 200),
        post(typing, "/api/v1/sessions/s1/typing", json!({"by": "wang"}), 202),
        post(typing, "/api/v1/sessions/nobody/typing", json!({"by": "wang"}), 404),
        post(unclaim, "/api/v1/sessions/s1/unclaim", json!({"by": "li"}), 409),
        post(unclaim, "/api/v1/sessions/s1/unclaim", json!({"by": "li", "force": true}), 200),
        asked(Method::GET, "/api/v1/handoffs", "/api/v1/handoffs", None, 200),
        asked(Method::GET, "/api/v1/sessions/{session_id}", "/api/v1/sessions/s1", None, 200),
    ]
}

/// Requests about decisions, which nothing carries out.
fn requests_about_decisions() -> Vec<DescribedRequest> {
    let (validate, one) = ("/api/v1/decisions/validate", "/api/v1/decisions/schema/{action_type}");
    let decision = |fields: Value| {
        let mut body =
            json!({"decision_type": "continue", "payload": {"action_type": "continue", "thought": "x", "progress": 2}});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Some(body)
    };
    let workflow = json!({"workflow_id": "w", "status": "COMPLETED", "definition": {"nodes": [], "edges": []}});
    let world = json!({"workflows": [workflow], "current": "w", "subagents": [{"type": "a", "timeout": "2m"}]});
    let ask = |fields: Value, status: u16| asked(Method::POST, validate, validate, decision(fields), status);
    vec![
        ask(json!({}), 200),
        ask(json!({"session_id": "s1", "agent_id": "sales"}), 200),
        ask(json!({"world": world}), 200),
        ask(json!({"decision_type": "fly"}), 400),
        ask(json!({"payload": []}), 400),
        ask(json!({"world": {"workflow": []}}), 400),
        ask(json!({"world": {"current": "w"}}), 400),
        ask(json!({"session_id": "a.b"}), 400),
        ask(json!({"session_id": "nobody"}), 404),
        ask(json!({"agent_id": "nobody"}), 404),
        asked(Method::GET, "/api/v1/decisions/schema", "/api/v1/decisions/schema", None, 200),
        asked(Method::GET, one, "/api/v1/decisions/schema/respond", None, 200),
        asked(Method::GET, one, "/api/v1/decisions/schema/fly", None, 404),
    ]
}

/// Requests about `r1`, a run that has ended, and `s1`, the session that started it.
fn requests_about_workflows() -> Vec<DescribedRequest> {
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let (workflow, run) = ("/api/v1/workflows/{workflow_id}", "/api/v1/runs/{run_id}");
    let about = |method: &Method, described: &'static str, path: &'static str, body: Option<Value>, status: u16| {
        asked(method.clone(), described, path, body, status)
    };
    let document =
        |id: &str| Some(json!({"id": id, "stages": [{"id": "a", "runnable": "writer", "input": "{query}"}]}));
    let query = Some(json!({"query": "q"}));
    vec![
        about(&get, "/api/v1/workflows", "/api/v1/workflows", None, 200),
        about(&get, workflow, "/api/v1/workflows/smart_router", None, 200),
        about(&get, workflow, "/api/v1/workflows/nowhere", None, 404),
        about(&put, workflow, "/api/v1/workflows/mine", document("mine"), 200),
        about(&put, workflow, "/api/v1/workflows/mine", document("other"), 400),
        about(&put, workflow, "/api/v1/workflows/mine", Some(json!({"id": "mine"})), 422),
        about(
            &get,
            "/api/v1/workflows/{workflow_id}/structure",
            "/api/v1/workflows/research_workflow/structure",
            None,
            200,
        ),
        about(&get, "/api/workflows/{workflow_id}/structure", "/api/workflows/research_workflow/structure", None, 200),
        about(&get, "/workflows/{workflow_id}/structure", "/workflows/nowhere/structure", None, 404),
        about(&get, "/api/v1/workflows/{workflow_id}/run", "/api/v1/workflows/mine/run", None, 400),
        about(&get, "/api/workflows/{workflow_id}/run", "/api/workflows/nowhere/run?query=q", None, 404),
        about(&get, "/workflows/{workflow_id}/run", "/workflows/nowhere/run?query=q", None, 404),
        about(&post, "/api/v1/workflows/{workflow_id}/run", "/api/v1/workflows/nowhere/run", query.clone(), 404),
        about(&post, "/api/workflows/{workflow_id}/run", "/api/workflows/nowhere/run", query.clone(), 404),
        about(&post, "/workflows/{workflow_id}/run", "/workflows/mine/run", Some(json!({})), 400),
        about(&post, "/api/v1/workflows/{workflow_id}/runs", "/api/v1/workflows/mine/runs", query, 202),
        about(&get, "/api/v1/runs", "/api/v1/runs?limit=5", None, 200),
        about(&get, "/api/v1/runs", "/api/v1/runs?status=asleep", None, 400),
        about(&get, run, "/api/v1/runs/r1", None, 200),
        about(&get, run, "/api/v1/runs/nowhere", None, 404),
        about(&get, "/api/v1/runs/{run_id}/events", "/api/v1/runs/nowhere/events", None, 404),
        about(&get, "/api/v1/runs/{run_id}/diagram", "/api/v1/runs/r1/diagram", None, 200),
        about(&post, "/api/v1/runs/{run_id}/answer", "/api/v1/runs/r1/answer", Some(json!({"text": "好"})), 409),
        about(&post, "/api/v1/runs/{run_id}/cancel", "/api/v1/runs/nowhere/cancel", None, 404),
        about(&post, "/api/v1/runs/{run_id}/resume", "/api/v1/runs/r1/resume", None, 409),
        about(
            &post,
            "/api/v1/runs/{run_id}/restart",
            "/api/v1/runs/r1/restart",
            Some(json!({"from_stage": "general"})),
            202,
        ),
        asked(Method::DELETE, "/api/v1/dead/{which}", "/api/v1/dead/7", None, 404),
        asked(Method::DELETE, "/api/v1/users/{user_id}", "/api/v1/users/nobody", None, 404),
        asked(Method::DELETE, "/api/v1/sessions/{session_id}", "/api/v1/sessions/nobody", None, 404),
        asked(Method::DELETE, "/api/v1/agents/{agent_id}", "/api/v1/agents/second", None, 200),
        asked(Method::DELETE, "/api/v1/agents/{agent_id}", "/api/v1/agents/nobody", None, 404),
        asked(Method::DELETE, "/api/v1/workflows/{workflow_id}", "/api/v1/workflows/nobody", None, 404),
    ]
}

/// Requests about `d1`, a dialogue without a message.
fn requests_about_dialogues() -> Vec<DescribedRequest> {
    let (get, post) = (Method::GET, Method::POST);
    let (all, one) = ("/api/v1/session", "/api/v1/session/{session_id}");
    let (history, chat) = ("/api/v1/chat/history/{session_id}", "/api/v1/chat/stream");
    let (draft, diff) = ("/api/v1/workflow/{session_id}/draft", "/api/v1/workflow/{session_id}/diff");
    let (test, replay) = ("/api/v1/workflow/{session_id}/test", "/api/v1/workflow/{session_id}/replay");
    let report = "/api/v1/workflow/{session_id}/replay/{replay_id}";
    let (status, publish) = ("/api/v1/workflow/{session_id}/status", "/api/v1/workflow/{session_id}/publish");
    let begin = |fields: Value| Some(fields);
    let say = |text: &str| Some(json!({"session_id": "d1", "user_message": text}));
    vec![
        asked(post.clone(), all, all, begin(json!({"action": "create", "session_id": "d1"})), 200),
        asked(post.clone(), all, all, begin(json!({"action": "make"})), 400),
        asked(post.clone(), all, all, begin(json!({"action": "edit", "workflow_id": "nowhere"})), 404),
        asked(post.clone(), all, all, begin(json!({"action": "create", "session_id": "s1"})), 409),
        asked(get.clone(), all, "/api/v1/session?stage=clarification&limit=5", None, 200),
        asked(get.clone(), all, "/api/v1/session?stage=asleep", None, 400),
        asked(get.clone(), one, "/api/v1/session/d1", None, 200),
        asked(get.clone(), one, "/api/v1/session/nobody", None, 404),
        asked(get.clone(), one, "/api/v1/session/s1", None, 409),
        asked(get.clone(), history, "/api/v1/chat/history/d1", None, 200),
        asked(post.clone(), chat, chat, say(" "), 400),
        asked(post.clone(), chat, chat, say(&"x".repeat(70_000)), 413),
        asked(get.clone(), status, "/api/v1/workflow/d1/status", None, 200),
        asked(get.clone(), draft, "/api/v1/workflow/d1/draft", None, 404),
        asked(get.clone(), diff, "/api/v1/workflow/d1/diff?against=last", None, 400),
        asked(get.clone(), diff, "/api/v1/workflow/d1/diff", None, 404),
        asked(post.clone(), publish, "/api/v1/workflow/d1/publish", Some(json!({"hash": "x"})), 404),
        asked(post.clone(), test, "/api/v1/workflow/d1/test", Some(json!({"input": {}})), 404),
        asked(post.clone(), test, "/api/v1/workflow/d1/test", Some(json!({"text": "x", "input": {}})), 400),
        asked(post, replay, "/api/v1/workflow/d1/replay", Some(json!({"turns": 5})), 409),
        asked(get.clone(), report, "/api/v1/workflow/d1/replay/nowhere", None, 404),
        asked(get, "/api/v1/authoring/catalogue", "/api/v1/authoring/catalogue", None, 200),
        asked(Method::DELETE, one, "/api/v1/session/s1", None, 409),
    ]
}
