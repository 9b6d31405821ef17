//! Versions: who applied them, when and why; going back; and changes over somebody else's.

use super::{body, put_text, report_text, send_text, shop, shop_text};
use crate::conformance::kit::clock_is_past;
use crate::gateway::{Gateway, refusal};
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use base::clock;
use base::config::NamedToken;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

on_both_backends!(
    a_change_over_somebody_else_s_is_refused_and_nothing_is_lost,
    of_two_who_change_the_same_version_one_succeeds,
    an_earlier_version_is_applied_again_with_its_text,
    a_text_keeps_its_comments_and_another_comment_is_no_other_version,
    versions_are_listed_page_by_page,
    a_workflow_has_versions_texts_and_conditions_too,
    a_change_of_a_compiled_in_workflow_is_conditional_too,
    a_deleted_agent_takes_its_drafts_along,
);

const SHOP: &str = "/api/v1/agents/shop";

/// A gateway with the tokens of two people, and the folder of the tokens.
async fn team(mut backend: Backend) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str| -> NamedToken {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("{name}-secret\n")).unwrap();
        serde_json::from_value(json!({"name": name, "role": "admin", "token_file": file})).unwrap()
    };
    backend.settings.gateway.access = vec![token("anna"), token("ben")];
    (Gateway::start(&backend.queue, &backend.store, &backend.settings).await, folder)
}

async fn as_person(gateway: &Gateway, name: &str, method: Method, path: &str, ask: Ask<'_>) -> reqwest::Response {
    let request =
        gateway.client.request(method, format!("{}{path}", gateway.base)).bearer_auth(format!("{name}-secret"));
    let request = match ask.if_match {
        Some(hash) => request.header("if-match", format!("\"{hash}\"")),
        None => request,
    };
    match ask.body {
        Some(body) => request.json(&body).send().await.unwrap(),
        None => request.send().await.unwrap(),
    }
}

/// What a person sends.
#[derive(Default)]
struct Ask<'a> {
    body: Option<Value>,
    if_match: Option<&'a str>,
}

impl<'a> Ask<'a> {
    fn to_send(body: Value, if_match: Option<&'a str>) -> Self {
        Self { body: Some(body), if_match }
    }
}

async fn a_change_over_somebody_else_s_is_refused_and_nothing_is_lost(backend: Backend) {
    let (gateway, _tokens) = team(backend).await;
    let put = async |name: &str, note: &str, words: &str, seen: Option<&str>| {
        clock_is_past(clock::now()).await;
        let path = format!("{SHOP}?note={note}");
        as_person(&gateway, name, Method::PUT, &path, Ask::to_send(shop(words), seen)).await
    };
    let first = body(put("anna", "first", "一", None).await, 200).await;
    let first = first["hash"].as_str().unwrap().to_owned();
    let shown = as_person(&gateway, "ben", Method::GET, SHOP, Ask::default()).await;
    assert_eq!(shown.headers()["etag"], format!("\"{first}\""));
    let second = body(put("anna", "second", "二", Some(&first)).await, 200).await;
    // Ben has seen the first version.
    let refused = put("ben", "mine", "三", Some(&first)).await;
    let error = body(refused, 412).await;
    let message = error["error"]["message"].as_str().unwrap();
    assert_eq!(error["error"]["code"], "changed");
    assert!(message.contains("`anna`") && message.contains(second["hash"].as_str().unwrap()), "{message}");
    let now = body(as_person(&gateway, "ben", Method::GET, SHOP, Ask::default()).await, 200).await;
    assert_eq!((&now["config"], &now["by"], &now["note"]), (&shop("二"), &json!("anna"), &json!("second")));
    // Ben merges.
    let merged = body(put("ben", "merged", "二和三", second["hash"].as_str()).await, 200).await;
    let path = format!("{SHOP}/versions");
    let listed = body(as_person(&gateway, "ben", Method::GET, &path, Ask::default()).await, 200).await;
    let notes: Vec<_> = listed["versions"].as_array().unwrap().iter().map(|version| &version["note"]).collect();
    assert_eq!(notes, [&json!("merged"), &json!("second"), &json!("first")], "every version is still there: {listed}");
    let newest = &listed["versions"][0];
    assert_eq!(
        (&newest["hash"], &newest["by"], &newest["current"], &newest["draft"]),
        (&merged["hash"], &json!("ben"), &json!(true), &json!(false))
    );
}

async fn of_two_who_change_the_same_version_one_succeeds(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let new = [("if-none-match", "*")];
    let first = put_text(&gateway, SHOP, &shop_text("店", "一"), &new).await;
    let taken = send_text(&gateway, Method::PUT, SHOP, &shop_text("店", "二"), &new).await;
    assert_eq!(refusal(taken).await, (412, "changed".to_owned()), "it exists");
    let seen = format!("\"{first}\"");
    let headers = [("if-match", seen.as_str())];
    let texts: Vec<String> = (0..6).map(|nth| shop_text("店", &format!("第{nth}版"))).collect();
    let sent = texts.iter().map(|text| send_text(&gateway, Method::PUT, SHOP, text, &headers));
    let statuses: Vec<u16> =
        futures::future::join_all(sent).await.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 5, "{statuses:?}");
    for odd in ["*", "\"a\", \"b\"", "\"\""] {
        let refused = send_text(&gateway, Method::PUT, SHOP, &texts[0], &[("if-match", odd)]).await;
        assert_eq!(refusal(refused).await, (400, "invalid_condition".to_owned()), "{odd}");
    }
    let gone = send_text(&gateway, Method::PUT, "/api/v1/agents/other", "id: other\nsop: 问候\n", &headers).await;
    assert_eq!(refusal(gone).await, (412, "changed".to_owned()), "there is no version to replace");
}

async fn an_earlier_version_is_applied_again_with_its_text(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let text = shop_text("第一版的说明", "一");
    let first = put_text(&gateway, SHOP, &text, &[]).await;
    let second = put_text(&gateway, SHOP, &shop_text("第二版", "二"), &[]).await;
    let version = gateway.json(&format!("{SHOP}/versions/{first}")).await;
    assert_eq!((&version["source"], &version["current"]), (&json!(text), &json!(false)), "{version}");
    assert_eq!(version["config"], shop("一"));
    let back = format!("{SHOP}/versions/{first}/apply");
    let request = |seen: &str| {
        let request = gateway.client.post(format!("{}{back}", gateway.base));
        request.header("if-match", format!("\"{seen}\"")).json(&json!({"note": "too short"}))
    };
    assert_eq!(refusal(request(&first).send().await.unwrap()).await, (412, "changed".to_owned()));
    let applied = body(request(&second).send().await.unwrap(), 200).await;
    assert_eq!((&applied["hash"], &applied["changed"]), (&json!(first), &json!(true)));
    let shown = gateway.json(SHOP).await;
    assert_eq!((&shown["source"], &shown["note"]), (&json!(text), &json!("too short")));
    assert_eq!(backend.store.agent("shop").await.unwrap().unwrap().hash, first);
    let listed = gateway.json(&format!("{SHOP}/versions")).await;
    assert_eq!((listed["versions"].as_array().unwrap().len(), &listed["versions"][0]["hash"]), (2, &json!(first)));
    let unknown = gateway.post(&format!("{SHOP}/versions/nowhere/apply"), &json!(null)).await;
    assert_eq!(refusal(unknown).await, (404, "unknown_version".to_owned()));
}

async fn a_text_keeps_its_comments_and_another_comment_is_no_other_version(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let first = put_text(&gateway, SHOP, &shop_text("旧注释", "一"), &[]).await;
    assert_eq!(gateway.put(SHOP, &shop("一")).await.status(), 200, "the same document as JSON");
    assert_eq!(gateway.json(SHOP).await["source"], shop_text("旧注释", "一"), "its text is still true");
    let other = send_text(&gateway, Method::PUT, SHOP, &shop_text("新注释", "一"), &[]).await;
    let other = body(other, 200).await;
    assert_eq!((&other["hash"], &other["changed"]), (&json!(first), &json!(false)));
    assert_eq!(gateway.json(SHOP).await["source"], shop_text("新注释", "一"));
    assert_eq!(gateway.json(&format!("{SHOP}/versions")).await["versions"].as_array().unwrap().len(), 1);
    let long = "长".repeat(1_001);
    let refused = gateway.put(&format!("{SHOP}?note={long}"), &shop("一")).await;
    assert_eq!(refusal(refused).await, (400, "invalid_note".to_owned()));
    // The runs that need a version store it again, which changes nothing of what people gave with it.
    let record = backend.store.agent("shop").await.unwrap().unwrap();
    backend.store.put_agent_version(&record).await.unwrap();
    assert_eq!(gateway.json(SHOP).await["source"], shop_text("新注释", "一"));
}

async fn versions_are_listed_page_by_page(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let mut hashes = Vec::new();
    for nth in 0..5 {
        hashes.push(put_text(&gateway, SHOP, &shop_text("店", &format!("第{nth}版")), &[]).await);
    }
    hashes.reverse();
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway.json(&format!("{SHOP}/versions?limit=2{after}")).await;
        listed.extend(page["versions"].as_array().unwrap().iter().map(|version| version["hash"].clone()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(listed, hashes.iter().map(|hash| json!(hash)).collect::<Vec<_>>());
    let unknown = gateway.get("/api/v1/agents/nobody/versions").await;
    assert_eq!(refusal(unknown).await, (404, "unknown_agent".to_owned()));
}

async fn a_workflow_has_versions_texts_and_conditions_too(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let path = "/api/v1/workflows/report";
    let first = put_text(&gateway, path, &report_text("一"), &[("if-none-match", "*")]).await;
    let second = put_text(&gateway, path, &report_text("二"), &[("if-match", &format!("\"{first}\""))]).await;
    let lost =
        send_text(&gateway, Method::PUT, path, &report_text("三"), &[("if-match", &format!("\"{first}\""))]).await;
    assert_eq!(refusal(lost).await, (412, "changed".to_owned()));
    let shown = gateway.get(path).await;
    assert_eq!(shown.headers()["etag"], format!("\"{second}\""));
    assert_eq!(body(shown, 200).await["source"], report_text("二"));
    let draft =
        send_text(&gateway, Method::POST, &format!("{path}/versions?note=try"), &report_text("草稿"), &[]).await;
    let draft = body(draft, 201).await;
    assert_eq!(draft["findings"], json!([]));
    let draft = draft["hash"].as_str().unwrap().to_owned();
    let listed = gateway.json(&format!("{path}/versions")).await;
    let flags: Vec<_> = listed["versions"].as_array().unwrap().iter().map(|v| (&v["current"], &v["draft"])).collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(flags, [(&no, &yes), (&yes, &no), (&no, &no)], "{listed}");
    assert_eq!(gateway.json(path).await["hash"], second, "a draft is not in use");
    let applied = gateway.post(&format!("{path}/versions/{draft}/apply"), &json!(null)).await;
    assert_eq!(body(applied, 200).await["changed"], true);
    let shown = gateway.json(&format!("{path}/versions/{draft}")).await;
    assert_eq!((&shown["draft"], &shown["current"], &shown["source"]), (&no, &yes, &json!(report_text("草稿"))));
    assert_eq!((&shown["definition"]["description"], &shown["note"]), (&json!("草稿"), &json!("try")));
}

async fn a_change_of_a_compiled_in_workflow_is_conditional_too(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    let path = "/api/v1/workflows/smart_router";
    let shown = gateway.get(path).await;
    let seen = shown.headers()["etag"].to_str().unwrap().to_owned();
    let mut document = body(shown, 200).await["definition"].clone();
    document["description"] = json!("ours");
    let put = async |name: &str, value: &str| {
        let request = gateway.client.put(format!("{}{path}", gateway.base)).header(name, value);
        request.json(&document).send().await.unwrap()
    };
    assert_eq!(refusal(put("if-none-match", "*").await).await, (412, "changed".to_owned()), "it exists");
    assert_eq!(refusal(put("if-match", "\"0123\"").await).await, (412, "changed".to_owned()));
    assert_eq!(put("if-match", &seen).await.status(), 200);
    assert_eq!(refusal(put("if-match", &seen).await).await, (412, "changed".to_owned()), "it was replaced");
}

async fn a_deleted_agent_takes_its_drafts_along(backend: Backend) {
    let gateway = Gateway::start(&backend.queue, &backend.store, &backend.settings).await;
    put_text(&gateway, SHOP, &shop_text("店", "一"), &[]).await;
    let draft = body(gateway.post(&format!("{SHOP}/versions"), &shop("草稿")).await, 201).await;
    let hash = draft["hash"].as_str().unwrap();
    assert!(backend.store.agent_version("shop", hash).await.unwrap().is_some());
    let deleted = gateway.client.delete(format!("{}{SHOP}", gateway.base)).send().await.unwrap();
    assert_eq!(body(deleted, 200).await["versions"], 2);
    assert!(backend.store.agent_version("shop", hash).await.unwrap().is_none());
    assert_eq!(refusal(gateway.get(&format!("{SHOP}/versions")).await).await, (404, "unknown_agent".to_owned()));
}
