//! Checks that replies are published in order and once, and that the history matches them.

use super::evidence::Lane;
use std::collections::HashMap;
use types::event::ReplyKind;
use types::excerpt;
use types::job::JobBody;
use types::outcome::Outcome;
use types::session::{Role, history};
use types::texts::Texts;

/// One entry of the conversation, from the history or from the events.
#[derive(Clone, Debug, PartialEq)]
struct ConversationEntry {
    turn_id: String,
    by_user: bool,
    kind: Option<String>,
    text: String,
}

pub(super) fn check(lane: &Lane, outlived: bool) -> Vec<String> {
    let mut found = replies(lane, outlived);
    found.extend(greetings(lane));
    found.extend(remembered(lane));
    found.extend(texts(lane));
    found
}

/// Checks that replies are in the order of their turns, that their ids are unique, and that each belongs to a committed
/// turn.
fn replies(lane: &Lane, outlived: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut known: HashMap<&str, &str> = HashMap::new();
    let mut last = 0;
    for reply in lane.replies() {
        let (id, text) = (reply.reply_id.as_str(), reply.text.as_str());
        match known.insert(id, text) {
            // A paused worker may repeat its publication. Channels drop the repeat by its id.
            Some(earlier) if earlier == text && outlived => {}
            Some(earlier) if earlier == text => found.push(format!("reply {id} is on the stream twice")),
            Some(earlier) => found.push(format!("reply {id} was published as “{earlier}”, then as “{text}”")),
            None => {}
        }
        match lane.turns.iter().position(|turn| turn.turn_id == reply.turn_id) {
            None => found.push(format!("reply {id} belongs to no committed turn")),
            Some(place) if place < last => {
                found.push(format!("reply {id} was published after a reply of a later turn"))
            }
            Some(place) => last = place,
        }
    }
    found
}

/// Checks that the chunks of each stream have no gaps, and that a whole text follows them. A cancelled turn may leave a
/// text incomplete.
fn texts(lane: &Lane) -> Vec<String> {
    let (mut found, mut next, mut texts) = (Vec::new(), HashMap::<&str, u64>::new(), Texts::default());
    for reply in lane.said() {
        texts.take(reply);
        if let (ReplyKind::Chunk, Some(stream_id)) = (reply.kind, reply.stream_id.as_deref()) {
            let next = next.entry(stream_id).or_default();
            // Channels drop repeated chunks, so only a gap is a violation.
            if reply.seq > *next {
                found.push(format!("reply {}: chunk {next} of its stream is missing", reply.reply_id));
            }
            *next = (*next).max(reply.seq + 1);
        }
    }
    let cancelled = lane.turns.last().is_some_and(|turn| turn.outcome == Outcome::Cancelled);
    if let Some(text) = texts.open().filter(|_| !cancelled) {
        found.push(format!("the streamed text “{text}” is incomplete"));
    }
    found
}

/// Checks that a session is greeted once for each change of its agent's configuration.
fn greetings(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut greeted: Option<&str> = None;
    for turn in &lane.turns {
        if greeted != Some(&turn.hash) {
            greeted = None;
        }
        for _ in lane.replies().filter(|reply| reply.turn_id == turn.turn_id && reply.kind == ReplyKind::Greeting) {
            if greeted.replace(&turn.hash).is_some() {
                found.push(format!("turn {} repeats the greeting", turn.turn_id));
            }
        }
    }
    found
}

/// Checks that the history has the user's messages and the published replies, in order.
fn remembered(lane: &Lane) -> Vec<String> {
    let Some(session) = &lane.session else { return Vec::new() };
    let recorded: Vec<ConversationEntry> = session
        .history
        .iter()
        .map(|entry| ConversationEntry {
            turn_id: entry.turn_id.clone(),
            by_user: entry.role == Role::User,
            kind: entry.kind.clone(),
            text: entry.text.clone(),
        })
        .collect();
    let said: Vec<ConversationEntry> = lane.turns.iter().flat_map(|turn| turn_lines(lane, &turn.turn_id)).collect();
    // The history is bounded, so its oldest entries may be dropped.
    let bounded = recorded.len() >= history::MAX_ENTRIES && said.len() > recorded.len();
    let expected = if bounded { &said[said.len() - recorded.len()..] } else { &said[..] };
    if recorded == expected {
        return Vec::new();
    }
    vec![format!("the history is {}, expected {}", written(&recorded), written(expected))]
}

/// The expected history of a turn: the user's messages, then the replies; for a finished run of the session, its query
/// and its output.
fn turn_lines(lane: &Lane, turn_id: &str) -> Vec<ConversationEntry> {
    let line = |by_user, kind, text: &str| {
        let text = excerpt::cut(text, history::MAX_TEXT).into_owned();
        ConversationEntry { turn_id: turn_id.to_owned(), by_user, kind, text }
    };
    let jobs = lane.handled.iter().filter(|id| lane.turn_of(id) == Some(turn_id)).filter_map(|id| lane.job(id));
    let asked = jobs.filter_map(|job| job.user_message()).map(|message| line(true, None, &message.text));
    let replies = lane.replies().filter(|reply| reply.turn_id == turn_id);
    let answered = replies.map(|reply| line(false, Some(reply.kind.as_str().to_owned()), &reply.text));
    let of_runs = lane.turns.iter().filter(|turn| turn.turn_id == turn_id && turn.outcome == Outcome::Silent);
    let of_runs = of_runs.filter_map(|turn| match &turn.job.body {
        JobBody::Resume { outcome, .. } => {
            Some(["query", "output"].map(|field| outcome[field].as_str().unwrap_or_default()))
        }
        _ => None,
    });
    let told = of_runs.flat_map(|[query, output]| [line(true, None, query), line(false, None, output)]);
    asked.chain(answered).chain(told).collect()
}

fn written(lines: &[ConversationEntry]) -> String {
    let written: Vec<_> = lines
        .iter()
        .map(|line| {
            let who = if line.by_user { "user" } else { line.kind.as_deref().unwrap_or("agent") };
            format!("{} {who} “{}”", line.turn_id, line.text)
        })
        .collect();
    format!("[{}]", written.join(", "))
}
