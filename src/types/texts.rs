//! The reader's side of streamed replies (docs/channels.md): which replies to show, which to drop, and when a text
//! replaces the shown one.

use super::event::{Reply, ReplyKind};
use std::collections::{HashSet, VecDeque};

/// How many finished streams are remembered. Late chunks of a remembered stream are dropped.
const MAX_REMEMBERED_STREAMS: usize = 64;

/// The texts of one session, as built from its replies. Replies must be in stream order; they may start anywhere and
/// may repeat.
#[derive(Debug, Default)]
pub struct Texts {
    /// The `reply_id` of every whole text shown so far.
    shown: HashSet<String>,
    /// The text whose chunks are being shown.
    open: Option<Open>,
    /// Ids of finished streams, oldest first.
    over: VecDeque<String>,
}

/// A text that is shown chunk by chunk and has not ended.
#[derive(Debug)]
struct Open {
    stream_id: String,
    turn_id: String,
    text: String,
    next: u64,
}

/// How to show a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Show nothing: the reply is a repeat, another text replaced it, or its beginning was missed and the whole text
    /// will follow.
    Nothing,
    /// Show the first chunk of a text.
    Begins {
        /// The text replaces the chunks shown before it.
        anew: bool,
    },
    /// Append the next chunk.
    GoesOn,
    /// Show a whole text.
    Whole {
        /// This many bytes of the text are shown already, as chunks.
        known: usize,
        /// The text replaces the chunks shown before it.
        anew: bool,
    },
}

impl Texts {
    /// Takes the next reply and returns how to show it.
    pub fn take(&mut self, reply: &Reply) -> Shown {
        match &reply.stream_id {
            Some(stream_id) if reply.kind == ReplyKind::Chunk => self.piece(stream_id, reply),
            _ if reply.kind == ReplyKind::Chunk => Shown::Nothing,
            _ => self.whole(reply),
        }
    }

    /// The chunks shown so far of the text that has not ended.
    pub fn open(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.text.as_str())
    }

    /// Ends the current text, because its turn has ended and no chunk will follow.
    pub fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.is_over(open.stream_id);
        }
    }

    fn piece(&mut self, stream_id: &str, reply: &Reply) -> Shown {
        if self.over.iter().any(|over| over == stream_id) {
            return Shown::Nothing;
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.stream_id == stream_id) {
            if reply.seq != open.next {
                // A repeated chunk. A gap is impossible for a reader in stream order.
                return Shown::Nothing;
            }
            open.next += 1;
            open.text.push_str(&reply.text);
            return Shown::GoesOn;
        }
        // A worker that lost the lease may still publish a stream. Such a stream supersedes none, or an older one.
        let takes_place =
            |open: &Open| open.turn_id != reply.turn_id || reply.supersedes == Some(open.stream_id.clone());
        if reply.seq != 0 || self.open.as_ref().is_some_and(|open| !takes_place(open)) {
            return Shown::Nothing;
        }
        let anew = self.open.is_some();
        self.close();
        self.open = Some(Open {
            stream_id: stream_id.to_owned(),
            turn_id: reply.turn_id.clone(),
            text: reply.text.clone(),
            next: 1,
        });
        Shown::Begins { anew }
    }

    fn whole(&mut self, reply: &Reply) -> Shown {
        if !self.shown.insert(reply.reply_id.clone()) {
            return Shown::Nothing;
        }
        for stream_id in reply.stream_id.iter().chain(&reply.supersedes) {
            self.is_over(stream_id.clone());
        }
        let open = self.open.take();
        let own = open.as_ref().filter(|open| reply.stream_id.as_deref() == Some(open.stream_id.as_str()));
        // A stream starts at the first character that is not whitespace; the whole text may have whitespace before it.
        let begun = reply.text.trim_start();
        let before = reply.text.len() - begun.len();
        let known = own.filter(|open| begun.starts_with(&open.text)).map_or(0, |open| before + open.text.len());
        let anew = open.is_some() && known == 0;
        if let Some(open) = open {
            self.is_over(open.stream_id);
        }
        Shown::Whole { known, anew }
    }

    fn is_over(&mut self, stream_id: String) {
        if !self.over.contains(&stream_id) {
            self.over.push_back(stream_id);
        }
        if self.over.len() > MAX_REMEMBERED_STREAMS {
            self.over.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(kind: ReplyKind, id: &str, text: &str, stream_id: Option<&str>, supersedes: Option<&str>) -> Reply {
        serde_json::from_value(json!({
            "reply_id": id, "session_id": "s1", "agent_id": "a", "user_id": "u", "channel": "web", "turn_id": "m-1",
            "kind": kind, "text": text, "seq": 0, "stream_id": stream_id, "supersedes": supersedes,
            "at": "2026-01-02T03:04:05.000Z",
        }))
        .unwrap()
    }

    fn piece(stream_id: &str, seq: u64, text: &str) -> Reply {
        Reply { seq, ..reply(ReplyKind::Chunk, &format!("{stream_id}/{seq}"), text, Some(stream_id), None) }
    }

    #[test]
    fn pieces_go_on_and_the_whole_text_adds_what_is_missing() {
        let mut texts = Texts::default();
        assert_eq!(texts.take(&piece("a", 0, "你")), Shown::Begins { anew: false });
        assert_eq!(texts.take(&piece("a", 0, "你")), Shown::Nothing, "a repeat");
        assert_eq!(texts.take(&piece("a", 1, "好")), Shown::GoesOn);
        assert_eq!(texts.open(), Some("你好"));
        let whole = reply(ReplyKind::Final, "f", "\n你好！", Some("a"), None);
        assert_eq!(texts.take(&whole), Shown::Whole { known: "\n你好".len(), anew: false });
        assert_eq!(texts.take(&whole), Shown::Nothing);
        assert_eq!(texts.take(&piece("a", 2, "！")), Shown::Nothing, "late");
        assert_eq!(texts.open(), None);
    }

    #[test]
    fn a_stream_that_takes_another_s_place_voids_it() {
        let mut texts = Texts::default();
        texts.take(&piece("a", 0, "先"));
        assert_eq!(texts.take(&piece("x", 0, "谁")), Shown::Nothing, "supersedes no shown text");
        let begun = Reply { supersedes: Some("a".into()), ..piece("b", 0, "后") };
        assert_eq!(texts.take(&begun), Shown::Begins { anew: true });
        assert_eq!(texts.take(&piece("a", 1, "说")), Shown::Nothing, "a chunk of the superseded stream");
        let apology = reply(ReplyKind::Apology, "sorry", "抱歉", None, Some("b"));
        assert_eq!(texts.take(&apology), Shown::Whole { known: 0, anew: true });
        let next = Reply { turn_id: "m-2".into(), ..piece("c", 0, "新") };
        assert_eq!(texts.take(&next), Shown::Begins { anew: false });
        texts.close();
        assert_eq!(texts.open(), None);
    }

    #[test]
    fn who_missed_the_beginning_has_the_whole_text() {
        let mut texts = Texts::default();
        assert_eq!(texts.take(&piece("a", 1, "好")), Shown::Nothing);
        let whole = reply(ReplyKind::Final, "f", "你好", Some("a"), None);
        assert_eq!(texts.take(&whole), Shown::Whole { known: 0, anew: false });
    }
}
