//! Checks of documents: each problem has its line and column in the text.

use super::{body, send_text, shop_text};
use crate::gateway::{Gateway, refusal};
use crate::scenarios::{on_both_backends, sales};
use crate::support::backend::embedded;
use crate::support::engine::Backend;
use reqwest::Method;
use serde_json::{Value, json};

on_both_backends!(a_check_stores_nothing_and_finds_what_applying_would_find);

const CHECK: &str = "/api/v1/agents/validate";

async fn check(gateway: &Gateway, path: &str, text: &str) -> Value {
    let as_yaml = body(send_text(gateway, Method::POST, path, text, &[]).await, 200).await;
    let as_source = body(gateway.post(path, &json!({"source": text})).await, 200).await;
    assert_eq!(as_yaml, as_source, "{text}");
    as_yaml
}

async fn a_check_stores_nothing_and_finds_what_applying_would_find(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let text = shop_text("店", "一");
    let checked = check(&gateway, CHECK, &text).await;
    assert_eq!(
        (&checked["is_valid"], &checked["findings"], &checked["open_sessions"]),
        (&json!(true), &json!([]), &json!(0))
    );
    assert!(backend.store.agent("shop").await.unwrap().is_none(), "nothing is stored");
    assert!(backend.store.versions(types::authoring::Artifact::Agent, "shop").await.unwrap().is_empty());
    let applied = body(send_text(&gateway, Method::PUT, "/api/v1/agents/shop", &text, &[]).await, 200).await;
    assert_eq!(applied["hash"], checked["hash"]);
    let broken = text.replace("sop: 问候", "sop： 问候");
    let refused = send_text(&gateway, Method::PUT, "/api/v1/agents/shop", &broken, &[]).await;
    let refused = body(refused, 422).await;
    assert_eq!(refused["error"]["code"], "invalid_agent");
    assert!(refused["error"]["message"].as_str().unwrap().contains("line 4, column 4"), "{refused}");
    let odd = body(
        send_text(&gateway, Method::PUT, "/api/v1/agents/shop", &format!("{text}greating: 您好\n"), &[]).await,
        200,
    )
    .await;
    assert_eq!((&odd["warnings"][0]["path"], &odd["warnings"][0]["line"]), (&json!("greating"), &json!(8)), "{odd}");
}

#[tokio::test]
async fn every_problem_of_an_agent_s_text_has_its_line_and_column() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    for (text, level, line, column, part) in [
        ("id: a\nsop： 回答\n", "error", 2, 4, "full-width"),
        ("# 店\nid: a\nsop: 回答\nskills:\n  - id： 查\n    name: 甲\n", "error", 5, 7, "full-width"),
        ("id: a\nsop: |\n  常见问题：退货\n  时间：七天\nname: b: c\n", "error", 5, 0, "between quotes"),
        ("id: a\nsop: 回答\nid: b\n", "error", 3, 1, "twice"),
        ("id: a\nsop: 7\n", "error", 2, 6, "expected a text"),
        ("id: a\nsop: 回答\ntimers:\n  - {name: 问, delay: 很快}\n", "error", 4, 0, "很快"),
        ("id: a\nsop: 回答\ngreating: 您好\n", "warning", 3, 11, "no such field"),
    ] {
        let checked = check(&gateway, CHECK, text).await;
        let finding = &checked["findings"][0];
        assert_eq!(checked["is_valid"], level == "warning", "{checked}");
        assert_eq!((&finding["level"], &finding["line"]), (&json!(level), &json!(line)), "{text}: {checked}");
        // Zero: the column is not tested.
        assert!(column == 0 || finding["column"] == column, "{text}: {checked}");
        assert!(finding["message"].as_str().unwrap().contains(part), "{text}: {checked}");
    }
    // Several problems of one text, each with its line.
    let text = "id: a\nsop: 回答\nskills:\n  - id: q\n    http: {method: GET, url: 'nowhere'}\nmodel: 没有的模型\n";
    let checked = check(&gateway, CHECK, text).await;
    let lines: Vec<_> = checked["findings"].as_array().unwrap().iter().map(|finding| &finding["line"]).collect();
    assert!(lines.contains(&&json!(5)) && lines.contains(&&json!(6)), "{checked}");
    // A document that was sent as JSON has no lines.
    let checked = body(gateway.post(CHECK, &json!({"id": "a", "sop": "回答", "greating": "您好"})).await, 200).await;
    assert_eq!((&checked["findings"][0]["path"], &checked["findings"][0]["line"]), (&json!("greating"), &json!(null)));
}

#[tokio::test]
async fn a_workflow_s_text_has_its_lines_too_and_its_agents_must_exist() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let path = "/api/v1/workflows/validate";
    let text = "id: w\ndescription: 报告\nstages:\n  - id: a\n    runnable: 没有\n    input: '{query}'\n";
    let checked = check(&gateway, path, text).await;
    assert_eq!((&checked["is_valid"], &checked["findings"][0]["line"]), (&json!(false), &json!(5)), "{checked}");
    assert!(checked["findings"][0]["message"].as_str().unwrap().contains("没有"), "{checked}");
    assert_eq!(checked.get("open_sessions"), None);
    let checked = check(&gateway, path, &text.replace("没有", "smart_router")).await;
    assert_eq!(checked["is_valid"], true, "{checked}");
    let checked = check(&gateway, path, &text.replace("stages:", "stages：")).await;
    assert_eq!(
        (&checked["findings"][0]["line"], &checked["findings"][0]["column"]),
        (&json!(3), &json!(7)),
        "{checked}"
    );
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    let backend = embedded().await;
    let gateway = Gateway::idle(&backend).await;
    let sent = gateway.client.post(format!("{}{CHECK}", gateway.base)).header("content-type", "text/plain");
    let refused = sent.body("id: a").send().await.unwrap();
    assert_eq!(refusal(refused).await, (415, "not_json".to_owned()));
    let gbk = gateway.client.post(format!("{}{CHECK}", gateway.base)).header("content-type", "application/yaml");
    let refused = gbk.body(b"id: a\nsop: \xc4\xe3\n".to_vec()).send().await.unwrap();
    assert_eq!(refusal(refused).await, (400, "unreadable_body".to_owned()));
    assert_eq!(gateway.post(CHECK, &sales()).await.status(), 200);
}
