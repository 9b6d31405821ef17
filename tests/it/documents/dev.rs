//! `dev`: a change that is applied through the gateway is written into its file, and not applied a second time.

use super::{report_text, shop, shop_text};
use crate::commands::Folder;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use std::fs;

struct Dev {
    folder: Folder,
    client: Client,
    base: String,
}

impl Dev {
    fn new() -> Self {
        let folder = Folder::embedded();
        folder.write("turnwheel.toml", "");
        let client = base::http_client::builder().no_proxy().build().unwrap();
        let base = format!("http://{}", folder.settings.gateway.listen);
        Self { folder, client, base }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    async fn send(&self, method: Method, path: &str, text: &str) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.base));
        request.header("content-type", "application/yaml").body(text.to_owned()).send().await.unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        self.client.get(format!("{}{path}", self.base)).send().await.unwrap().json().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_applied_change_is_written_into_its_file_and_stays_the_change_of_its_author() {
    let dev = Dev::new();
    dev.folder.write("agents/our-shop.yml", &shop_text("第一版", "一"));
    dev.folder.write("agents/other.yaml", "id: other\nsop: 问候\n");
    let _process = dev.folder.dev().await;
    let first = dev.json("/api/v1/agents/shop").await;
    assert_eq!(first["source"], shop_text("第一版", "一"), "the text of the file");
    let text = shop_text("第二版", "二");
    let applied = dev.send(Method::PUT, "/api/v1/agents/shop?note=second", &text).await;
    assert_eq!(applied.status(), 200, "{}", applied.text().await.unwrap());
    assert_eq!(dev.read("agents/our-shop.yml"), text);
    // Another file changes, so that all files are applied again.
    dev.folder.write("agents/other.yaml", "id: other\nsop: 再问候\n");
    eventually(DEADLINE, "the folder is applied again", || async {
        (dev.json("/api/v1/agents/other").await["config"]["sop"] == "再问候").then_some(())
    })
    .await;
    let shown = dev.json("/api/v1/agents/shop").await;
    assert_eq!((&shown["note"], &shown["source"]), (&json!("second"), &json!(text)), "{shown}");
    // Going back, from JSON without a text, and a new agent.
    let back = format!("/api/v1/agents/shop/versions/{}/apply", first["hash"].as_str().unwrap());
    let back = dev.client.post(format!("{}{back}", dev.base)).send().await.unwrap();
    assert_eq!(back.status(), 200, "{}", back.text().await.unwrap());
    assert_eq!(dev.read("agents/our-shop.yml"), shop_text("第一版", "一"), "the text of that version");
    let put = async |id: &str, body: &Value| {
        let put = dev.client.put(format!("{}/api/v1/agents/{id}", dev.base)).json(body).send().await.unwrap();
        assert_eq!(put.status(), 200, "{}", put.text().await.unwrap());
    };
    put("shop", &shop("三")).await;
    let made = dev.read("agents/our-shop.yml");
    assert!(made.starts_with("id: shop\nmodel: offline\n") && made.contains("response: 三"), "{made}");
    assert_eq!(dev.json("/api/v1/agents/shop").await["source"], made);
    let mut new = shop("新");
    new["id"] = json!("新店");
    put("新店", &new).await;
    assert!(dev.read("agents/新店.yaml").starts_with("id: 新店\n"));
    let left: Vec<_> =
        fs::read_dir(dev.folder.path().join("agents")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written_is_an_error_and_nothing_is_applied() {
    let dev = Dev::new();
    dev.folder.write("agents/shop.yaml", &shop_text("第一版", "一"));
    let _process = dev.folder.dev().await;
    let path = dev.folder.path().join("agents/shop.yaml");
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    let refused = dev.send(Method::PUT, "/api/v1/agents/shop", &shop_text("第二版", "二")).await;
    assert_eq!(refused.status(), 500);
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["code"], "file_not_written", "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("shop.yaml"), "{error}");
    let shown = dev.json("/api/v1/agents/shop").await;
    assert_eq!(shown["source"], shop_text("第一版", "一"), "nothing is applied");
    // A file that somebody edits and that is broken now is not overwritten.
    let odd = "id: [\n";
    dev.folder.write("agents/new.yaml", odd);
    let refused = dev.send(Method::PUT, "/api/v1/agents/new", "id: new\nsop: 问候\n").await;
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["code"], "file_in_the_way", "{error}");
    assert_eq!(dev.read("agents/new.yaml"), odd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_written_too_and_without_the_folder_nothing_is() {
    let dev = Dev::new();
    dev.folder.write("workflows/report.yaml", &report_text("一"));
    let _process = dev.folder.dev().await;
    let applied = dev.send(Method::PUT, "/api/v1/workflows/report", &report_text("二")).await;
    assert_eq!(applied.status(), 200, "{}", applied.text().await.unwrap());
    assert_eq!(dev.read("workflows/report.yaml"), report_text("二"));
    assert_eq!(dev.send(Method::PUT, "/api/v1/agents/shop", &shop_text("店", "一")).await.status(), 200);
    assert!(!dev.folder.path().join("agents").exists(), "the compiled-in agents stay those of dev");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_that_a_dialogue_publishes_is_written_too_and_a_later_start_keeps_it() {
    let dev = Dev::new();
    dev.folder.write("workflows/report.yaml", &report_text("一"));
    let process = dev.folder.dev().await;
    let preferences = json!({"target_id": "points"});
    let session = json!({"action": "create", "session_id": "d1", "config": {"preferences": preferences}});
    let post = async |path: &str, body: Value| {
        let sent = dev.client.post(format!("{}{path}", dev.base)).json(&body).send().await.unwrap();
        let (status, text) = (sent.status(), sent.text().await.unwrap());
        assert_eq!(status, 200, "{text}");
        text
    };
    post("/api/v1/session", session).await;
    let said = async |text: &str| post("/api/v1/chat/stream", json!({"session_id": "d1", "user_message": text})).await;
    said("做一个把用户的话总结成三点的工作流").await;
    let agreed = said("好").await;
    let path = dev.folder.path().join("workflows/points.yaml");
    assert!(path.exists(), "{agreed}");
    let shown = dev.json("/api/v1/workflows/points").await;
    assert_eq!(shown["source"], dev.read("workflows/points.yaml"));
    // Another version by the same way. The file of the first one must not come back when `dev` starts again.
    let edit = json!({"action": "edit", "session_id": "d2", "workflow_id": "points"});
    post("/api/v1/session", edit).await;
    for text in ["把 三点 改成 五点", "好"] {
        post("/api/v1/chat/stream", json!({"session_id": "d2", "user_message": text})).await;
    }
    let edited = dev.json("/api/v1/workflows/points").await;
    assert_ne!(edited["hash"], shown["hash"], "{}", dev.json("/api/v1/session/d2").await);
    assert_eq!(edited["source"], dev.read("workflows/points.yaml"));
    drop(process);
    let _process = dev.folder.dev().await;
    assert_eq!(dev.json("/api/v1/workflows/points").await["hash"], edited["hash"]);
}
