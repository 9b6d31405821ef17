//! Messages that are sent again over HTTP.

use super::*;
use crate::conformance::kit;
use crate::gateway::{Gateway, data};
use futures::{Stream, StreamExt};
use sse_stream::{Sse, SseStream};
use storage::store::records::{Acquire, Commit, Committed};
use types::event::{EventType, OutEvent};

on_both_backends!(
    the_last_event_of_a_committed_turn_may_come_after_the_message_is_sent_again,
    a_repeated_message_does_not_change_the_settings_back,
);

/// An event of the turn m-1.
fn event(seq: u64, is_final: bool) -> OutEvent {
    let content = json!({"new_stage": "clarification", "previous_stage": "clarification", "stage_description": "",
        "pending_actions": []});
    let payload = json!({"type": "status", "content": content, "session_id": "s1", "turn_id": "m-1", "seq": seq,
        "timestamp": 1, "is_final": is_final});
    OutEvent {
        channel: "web".into(),
        session_id: "s1".into(),
        event_type: EventType::Authoring,
        msg_id: Some(format!("s1/m-1/authoring/{seq}")),
        payload: payload.to_string().into(),
    }
}

/// The worker of m-1 has died after the commit, before it published the turn's last event.
async fn left_behind(backend: Backend) -> Engine {
    let engine = watching(backend, answers::script).await;
    publish(&engine, "m-1", "每天汇总").await;
    let message = engine.queue.pull(1, DEADLINE).await.unwrap().remove(0).message;
    let wish = Acquire { stream: message.stream, ..kit::acquire("s1", message.seq, "w1") };
    let grant = kit::granted(engine.store.acquire(wish).await.unwrap());
    engine.queue.emit([event(0, false)].into()).await.unwrap();
    let commit = kit::commit(&grant, message.seq, Some(kit::change(&grant.session, "m-1")));
    let commit = Commit { stream: message.stream, at: message.at, ..commit };
    assert_eq!(engine.store.commit(commit).await.unwrap(), Committed::Released);
    engine
}

async fn repeated(gateway: &Gateway, last_id: Option<&str>) -> impl Stream<Item = Sse> + Unpin {
    let url = format!("{}/api/v1/chat/stream", gateway.base);
    let body = json!({"session_id": "s1", "user_message": "每天汇总", "message_id": "m-1"});
    let request = gateway.client.post(url).json(&body);
    let request = match last_id {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let events = SseStream::from_bytes_stream(response.bytes_stream());
    Box::pin(events.filter_map(async |event| event.ok().filter(|event| event.data.is_some())))
}

async fn the_last_event_of_a_committed_turn_may_come_after_the_message_is_sent_again(backend: Backend) {
    let engine = left_behind(backend).await;
    let gateway = Gateway::of(&engine).await;
    let mut whole = repeated(&gateway, None).await;
    let first = whole.next().await.unwrap();
    assert_eq!((&data(&first)["seq"], &data(&first)["is_final"]), (&json!(0), &json!(false)));
    let rest = repeated(&gateway, first.id.as_deref()).await;
    engine.queue.emit([event(1, true)].into()).await.unwrap();
    for stream in [whole.left_stream(), rest.right_stream()] {
        let events: Vec<Value> =
            tokio::time::timeout(DEADLINE, stream.map(|event| data(&event)).collect()).await.unwrap();
        let finals: Vec<_> = events.iter().map(|event| (&event["seq"], &event["is_final"])).collect();
        assert_eq!(finals, [(&json!(1), &json!(true))]);
    }
}

async fn a_repeated_message_does_not_change_the_settings_back(backend: Backend) {
    let engine = started(backend, answers::script).await;
    let gateway = Gateway::of(&engine).await;
    let chat = async |message_id: &str, target_id: &str| {
        let config = json!({"preferences": {"target_id": target_id, "publish": "manual"}});
        let body = json!({"session_id": "s1", "user_message": "八点汇总", "message_id": message_id, "config": config});
        let response = gateway.post("/api/v1/chat/stream", &body).await;
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    };
    let first = chat("m-1", "a").await;
    chat("m-2", "b").await;
    let before = state(&engine).await;
    assert_eq!(before.config.target_id(), Some("b"));
    assert!(before.draft.is_some());
    assert_eq!(chat("m-1", "a").await, first, "the events of the same turn");
    assert_eq!(state(&engine).await, before);
}
