//! Rules for readers on all possible paths of a turn: a reader that joins or reconnects at any event has the same texts
//! at the end.

use super::show;
use crate::commands::Folder;
use crate::support::engine::scripted;
use crate::support::model_stream::Stream;
use crate::support::process::toml;
use crate::support::script::Answer;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use types::event::{Reply, ReplyKind};
use types::texts::Texts;

/// The attempts of a turn's text: the chunks of each attempt, and whether the whole text continues the last one.
/// Otherwise another text supersedes it.
type Attempts = (Vec<Vec<String>>, bool);

fn attempts() -> impl Strategy<Value = Attempts> {
    let pieces = prop::collection::vec("[a-z电池 ]{1,4}", 1..6);
    (prop::collection::vec(pieces, 0..4), any::<bool>())
}

fn reply(turn: usize, kind: ReplyKind, id: &str, text: &str) -> Reply {
    serde_json::from_value(json!({
        "reply_id": format!("s1/m-{turn}/{id}"), "session_id": "s1", "agent_id": "a", "user_id": "u", "channel": "web",
        "turn_id": format!("m-{turn}"), "kind": kind, "text": text, "seq": 0, "at": "2026-01-02T03:04:05.000Z",
    }))
    .unwrap()
}

/// The replies that the turns publish, and the texts that remain at the end.
fn published(turns: &[Attempts]) -> (Vec<Reply>, Vec<String>) {
    let (mut replies, mut whole) = (Vec::new(), Vec::new());
    for (turn, (attempts, finished)) in turns.iter().enumerate() {
        let mut open: Option<String> = None;
        for (attempt, pieces) in attempts.iter().enumerate() {
            let stream_id = format!("{turn}-{attempt}");
            for (seq, piece) in pieces.iter().enumerate() {
                let mut chunk = reply(turn, ReplyKind::Chunk, &format!("chunk/{stream_id}/{seq}"), piece);
                chunk.supersedes = open.clone().filter(|_| seq == 0);
                (chunk.seq, chunk.stream_id) = (seq as u64, Some(stream_id.clone()));
                replies.push(chunk);
            }
            open = Some(stream_id);
        }
        let said = attempts.last().map(|pieces| pieces.concat()).unwrap_or_default();
        let mut end = match finished {
            true => reply(turn, ReplyKind::Final, "final", &format!("{said}。")),
            false => reply(turn, ReplyKind::Apology, "apology", "抱歉"),
        };
        match finished {
            true => end.stream_id = open,
            false => end.supersedes = open,
        }
        whole.push(end.text.clone());
        replies.push(end);
    }
    (replies, whole)
}

proptest! {
    #[test]
    fn who_joins_at_any_place_and_comes_back_at_any_other_has_the_same_texts(
        turns in prop::collection::vec(attempts(), 1..4),
        (begin, lost, back) in any::<(Index, Index, Index)>(),
    ) {
        let (replies, whole) = published(&turns);
        let (mut texts, mut display) = (Texts::default(), Vec::new());
        replies.iter().for_each(|reply| show(&mut texts, &mut display, reply));
        prop_assert_eq!(&display, &whole);
        prop_assert_eq!(texts.open(), None);

        // Joins at some event, loses the connection, and gets a repeat of earlier events.
        let begin = begin.index(replies.len());
        let lost = begin + lost.index(replies.len() - begin);
        let back = begin + back.index(lost - begin + 1);
        let (mut texts, mut display) = (Texts::default(), Vec::new());
        replies[begin..lost].iter().chain(&replies[back..]).for_each(|reply| show(&mut texts, &mut display, reply));
        let missed = replies[..begin].iter().filter(|reply| reply.kind != ReplyKind::Chunk).count();
        prop_assert_eq!(&display, &whole[missed..]);

        // A paused worker resumes and publishes another chunk of a superseded stream.
        let mut late = replies.clone();
        let old = replies.iter().position(|reply| reply.supersedes.is_some());
        if let Some((at, stream_id)) = old.and_then(|at| Some((at, replies[at].supersedes.clone()?))) {
            let chunk = reply(0, ReplyKind::Chunk, "late", "迟到");
            let turn_id = replies[at].turn_id.clone();
            late.insert(at + 1, Reply { seq: 9, stream_id: Some(stream_id), turn_id, ..chunk });
        }
        let (mut texts, mut display) = (Texts::default(), Vec::new());
        late.iter().for_each(|reply| show(&mut texts, &mut display, reply));
        prop_assert_eq!(&display, &whole);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_gets_whole_texts_once() {
    let mut folder = Folder::embedded();
    let model = super::speaker(|asked_before, _| match asked_before {
        0 => Answer::Stream(Stream::unfinished(["从前有", "座山"]).cut()),
        _ => Answer::Stream(Stream::of(["从前", "有个", "和尚"])),
    })
    .await;
    folder.settings.models.insert("default".into(), scripted(&model));
    folder.write("turnwheel.toml", &toml(&folder.settings));
    folder.write("agents/sales.json", &super::agent().to_string().replace("{api}", "http://127.0.0.1:9"));
    folder.write("agents/speaker.json", &json!({"id": "speaker", "system_prompt": "讲一段"}).to_string());
    folder.write("workflows/speak.json", &super::speak().to_string());
    let _dev = folder.dev().await;
    let chat = folder.run(&["chat", "--agent", "sales", "--session", "s1"], "讲故事\n").await;
    assert_eq!(chat.code, 0, "{chat:?}");
    assert_eq!(chat.out.matches("小智 [final] 从前有个和尚\n").count(), 1, "{chat:?}");
    assert!(!chat.out.contains("座山") && !chat.out.contains('\u{1b}'), "{chat:?}");
    let sent =
        folder.run(&["send", "--session", "s2", "--agent", "sales", "--wait", "--json", "讲故事"], "").await.json();
    let replies = sent["replies"].as_array().unwrap();
    assert_eq!(replies.len(), 1, "{sent}");
    assert_eq!((&replies[0]["kind"], &replies[0]["text"]), (&json!("final"), &json!("从前有个和尚")));
}
