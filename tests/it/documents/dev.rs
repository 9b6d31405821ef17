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

    async fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let sent = self.client.post(format!("{}{path}", self.base)).json(body).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }

    /// Begins an authoring dialogue and sends these messages. Returns the events of the last turn.
    async fn dialogue(&self, id: &str, request: &Value, messages: &[&str]) -> String {
        let mut request = request.clone();
        request["session_id"] = id.into();
        let (status, mut answer) = self.post("/api/v1/session", &request).await;
        assert_eq!(status, 200, "{answer}");
        for message in messages {
            let message = json!({"session_id": id, "user_message": message});
            answer = self.post("/api/v1/chat/stream", &message).await.1;
        }
        answer
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
    let points = json!({"action": "create", "config": {"preferences": {"target_id": "points"}}});
    dev.dialogue("d1", &points, &["做一个把用户的话总结成三点的工作流", "好"]).await;
    let shown = dev.json("/api/v1/workflows/points").await;
    assert_eq!(shown["source"], dev.read("workflows/points.yaml"));
    // Another version by the same way. The file of the first one must not come back when `dev` starts again.
    let edit = json!({"action": "edit", "workflow_id": "points"});
    dev.dialogue("d2", &edit, &["把 三点 改成 五点", "好"]).await;
    let edited = dev.json("/api/v1/workflows/points").await;
    assert_ne!(edited["hash"], shown["hash"], "{}", dev.json("/api/v1/session/d2").await);
    assert_eq!(edited["source"], dev.read("workflows/points.yaml"));
    drop(process);
    let _process = dev.folder.dev().await;
    assert_eq!(dev.json("/api/v1/workflows/points").await["hash"], edited["hash"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_whose_file_cannot_be_written_is_not_published() {
    let dev = Dev::new();
    dev.folder.write("workflows/report.yaml", &report_text("一"));
    let _process = dev.folder.dev().await;
    let odd = "id: [\n";
    dev.folder.write("workflows/points.yaml", odd);
    let points = json!({"action": "create", "config": {"preferences": {"target_id": "points"}}});
    let said = dev.dialogue("d1", &points, &["做一个把用户的话总结成三点的工作流", "好"]).await;
    assert!(said.contains("points.yaml exists"), "{said}");
    let hash = &dev.json("/api/v1/workflow/d1/draft").await["hash"];
    let (status, error) = dev.post("/api/v1/workflow/d1/publish", &json!({"hash": hash})).await;
    assert_eq!(status, 409, "{error}");
    assert!(error.contains("file_in_the_way"), "{error}");
    assert_eq!(dev.json("/api/v1/workflows/points").await["error"]["code"], "unknown_workflow");
    assert_eq!(dev.read("workflows/points.yaml"), odd);
    // Without that file it is published.
    fs::remove_file(dev.folder.path().join("workflows/points.yaml")).unwrap();
    let (status, published) = dev.post("/api/v1/workflow/d1/publish", &json!({"hash": hash})).await;
    assert_eq!(status, 200, "{published}");
    assert_eq!(dev.json("/api/v1/workflows/points").await["source"], dev.read("workflows/points.yaml"));
}
