//! A model that stops in the middle of a text: it is asked again, and if that fails, the reader gets a whole text
//! instead.

use super::{chunks, eventually, show, speaker, speaking, streams, told_streams};
use crate::gateway::Gateway;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, Engine};
use crate::support::model_stream::Stream;
use crate::support::script::{Answer, ScriptedModel};
use serde_json::json;
use std::time::Duration;
use types::duration::Text;
use types::event::{Event, ReplyKind};
use types::outcome::Outcome;
use types::texts::Texts;

on_both_backends!(
    a_text_that_stands_still_is_said_anew,
    a_text_that_cannot_be_finished_gives_way_to_what_the_agent_says,
    a_text_that_an_operator_ends_gives_way_to_an_apology,
    a_text_is_told_twenty_times_a_second_at_most,
);

async fn impatient(backend: Backend, model: ScriptedModel) -> Engine {
    let mut engine = speaking(backend, model).await;
    let settings = engine.settings.models.get_mut("default").unwrap();
    settings.idle_timeout = Text(Duration::from_millis(300));
    engine.start_worker();
    engine
}

async fn displayed(engine: &Engine) -> Vec<String> {
    let (mut texts, mut display) = (Texts::default(), Vec::new());
    engine.replies("s1").await.iter().for_each(|reply| show(&mut texts, &mut display, reply));
    assert_eq!(texts.open(), None, "every text is complete");
    display
}

async fn a_text_that_stands_still_is_said_anew(backend: Backend) {
    let model = speaker(|asked_before, _| match asked_before {
        0 => Answer::Stream(Stream::unfinished(["从前有", "座山"]).stalled()),
        _ => Answer::Stream(Stream::of(["从前", "有个", "和尚"])),
    })
    .await;
    let engine = impatient(backend, model).await;
    assert_eq!(engine.say("s1", "m-1", "讲故事").await.outcome, Outcome::Flow);
    let said = streams(&chunks(&engine).await);
    let [(old, half, None), (new, whole, Some(replaced))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((half.as_str(), whole.as_str(), replaced), ("从前有座山", "从前有个和尚", old));
    assert_eq!(told_streams(&engine).await, [(old.clone(), None), (new.clone(), Some(old.clone()))]);
    assert_eq!(displayed(&engine).await, ["从前有个和尚"]);
    let events = written(&engine.events("s1").await);
    insta::allow_duplicates!(insta::assert_snapshot!(events));
}

/// The events as a channel sees them, with numbered streams, and the chunks of one stream merged.
fn written(events: &[Event]) -> String {
    let mut streams: Vec<String> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let mut name = |stream: &Option<String>| {
        let Some(stream) = stream else { return "-".to_owned() };
        let at = streams.iter().position(|known| known == stream).unwrap_or_else(|| {
            streams.push(stream.clone());
            streams.len() - 1
        });
        format!("stream {at}")
    };
    for event in events {
        match event {
            Event::Reply(reply) if reply.kind == ReplyKind::Chunk && reply.seq > 0 => {
                let last = lines.iter_mut().rev().find(|line| line.starts_with("chunk")).unwrap();
                last.push_str(&reply.text);
            }
            Event::Reply(reply) => lines.push(format!(
                "{} of {} in place of {}: {}",
                reply.kind.as_str(),
                name(&reply.stream_id),
                name(&reply.supersedes),
                reply.text
            )),
            Event::Status(status) => lines.push(format!("status {}", status.status)),
            Event::Step(step) => lines.push(format!("step {} ok {}", step.key, step.ok)),
            Event::Turn(_) | Event::Run(_) | Event::Decision(_) | Event::Authoring(_) | Event::Handoff(_) => {}
        }
    }
    lines.join("\n")
}

async fn a_text_that_cannot_be_finished_gives_way_to_what_the_agent_says(backend: Backend) {
    let model = speaker(|asked_before, _| {
        Answer::Stream(Stream::unfinished([format!("第{asked_before}次说").as_str(), "一半"]).stalled())
    })
    .await;
    let engine = impatient(backend, model).await;
    let turn = engine.say("s1", "m-1", "讲故事").await;
    assert_eq!(turn.outcome, Outcome::Answered, "{turn:?}");
    let said = streams(&chunks(&engine).await);
    assert_eq!(said.iter().map(|(_, text, _)| text.as_str()).collect::<Vec<_>>(), ["第0次说一半", "第1次说一半"]);
    let replies = engine.replies("s1").await;
    let last = replies.last().unwrap();
    assert_eq!((last.kind, last.text.as_str()), (ReplyKind::Response, "这次讲不完了"));
    assert_eq!(
        (last.supersedes.as_ref(), &last.stream_id),
        (Some(&said[1].0), &None),
        "the reply supersedes the incomplete text"
    );
    assert_eq!(displayed(&engine).await, ["这次讲不完了"]);
}

async fn a_text_that_an_operator_ends_gives_way_to_an_apology(backend: Backend) {
    let model = speaker(|_, _| Answer::Stream(Stream::unfinished(["从前有", "座山"]).stalled())).await;
    let engine = speaking(backend, model).await;
    engine.start_worker();
    engine.publish("s1", "m-1", "讲故事").await;
    eventually("the text is published", || async {
        streams(&chunks(&engine).await).iter().any(|(_, text, _)| text == "从前有座山")
    })
    .await;
    let cancelled = Gateway::of(&engine).await.post("/api/v1/sessions/s1/cancel", &json!({})).await;
    assert_eq!(cancelled.status(), 202);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    let (said, replies) = (streams(&chunks(&engine).await), engine.replies("s1").await);
    let last = replies.last().unwrap();
    assert_eq!((last.kind, last.supersedes.as_ref()), (ReplyKind::Apology, Some(&said[0].0)), "{replies:?}");
    assert_eq!(displayed(&engine).await, [last.text.as_str()]);
}

async fn a_text_is_told_twenty_times_a_second_at_most(backend: Backend) {
    let words: Vec<String> = (0..300).map(|n| format!("{n} ")).collect();
    let model = {
        let words = words.clone();
        let speaks = move |_: usize, _: &_| {
            Answer::Stream(Stream::of(words.iter().map(String::as_str)).slow_by(Duration::from_millis(5)))
        };
        speaker(speaks).await
    };
    let engine = impatient(backend, model).await;
    engine.say("s1", "m-1", "数数").await;
    let chunks = chunks(&engine).await;
    let said = streams(&chunks);
    assert!(said.len() == 1 && said[0].1 == words.concat().trim_end(), "{said:?}");
    let at: Vec<i64> = chunks.iter().map(|chunk| chunk.at.as_millis()).collect();
    let most = at.iter().map(|from| at.iter().filter(|at| (*from..from + 1_000).contains(*at)).count()).max();
    assert!(most.is_some_and(|most| most <= 20), "{most:?} in a second: {at:?}");
}
