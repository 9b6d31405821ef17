//! Waits for a turn whose last event is no longer in the stream, while events of other turns arrive.

use crate::commands::Folder;
use crate::support::background;
use crate::support::engine::DEADLINE;
use crate::support::process::toml;
use crate::support::servers::{ClusterHandles, cluster, free_port};
use serde_json::json;
use std::time::Duration;
use tokio::time::{interval, timeout};
use turnwheel::Engine;
use types::event::{EventType, OutEvent};

/// How often events of other turns arrive: more often than the session is read.
const OTHERS: Duration = Duration::from_millis(200);

const AGENT: &str = r#"{"id": "clerk", "model": "offline", "sop": "回答",
    "rules": [{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好的"}}]}"#;

async fn delete_events(handles: &ClusterHandles) {
    let client = async_nats::connect(&handles.nats_url).await.unwrap();
    let stream = format!("{}_OUT", handles.namespace.to_uppercase());
    async_nats::jetstream::new(client).get_stream(stream).await.unwrap().purge().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_although_the_end_is_gone_and_events_of_other_turns_arrive() {
    let handles = cluster().await;
    let mut settings = handles.settings();
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let engine = Engine::builder(settings.clone()).agent(AGENT).start().await.unwrap();
    let folder = Folder::with(settings);
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let send = ["send", "--session", "s1", "--agent", "clerk", "--job-id", "m-1", "--wait", "你好"];
    let sent = folder.run(&send, "").await;
    assert!(sent.code == 0 && sent.out.contains("好的"), "{sent:?}");
    delete_events(&handles).await;
    let queue = engine.queue().clone();
    background(async move {
        let mut others = interval(OTHERS);
        loop {
            others.tick().await;
            let status = json!({"session_id": "s1", "turn_id": "other", "status": "processing", "previous": "ready",
                "reason": null, "at": "2026-01-02T03:04:05.210Z"});
            let event = OutEvent {
                channel: "web".into(),
                session_id: "s1".into(),
                event_type: EventType::Status,
                msg_id: None,
                payload: status.to_string().into(),
            };
            queue.emit([event].into()).await.unwrap();
        }
    });
    let answer = timeout(DEADLINE, engine.answer("s1", "m-1")).await.unwrap().unwrap();
    assert_eq!((answer.turn.turn_id.as_str(), answer.replies.len()), ("m-1", 0));
    let again = timeout(DEADLINE, folder.run(&send, "")).await.unwrap();
    assert_eq!((again.code, again.out.trim_end()), (0, "m-1"), "{again:?}");
    assert!(again.err.contains("warning: message `m-1` is handled"), "{again:?}");
}
