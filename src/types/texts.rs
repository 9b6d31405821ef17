//! What a reader makes of a session's replies when some come in pieces (docs/channels.md): which to show, which to drop, and
//! when what is shown gives way to another text.

use super::event::{Reply, ReplyKind};
use std::collections::{HashSet, VecDeque};

/// Streams that are over and remembered: what comes late of one is dropped.
const REMEMBERED: usize = 64;

/// The replies of one session as they are read: from any place on, with repeats, in the order of the stream.
#[derive(Debug, Default)]
pub struct Texts {
    /// Whole texts that were shown, by their `reply_id`.
    shown: HashSet<String>,
    open: Option<Open>,
    over: VecDeque<String>,
}

/// A text of which pieces are shown.
#[derive(Debug)]
struct Open {
    stream_id: String,
    turn_id: String,
    text: String,
    next: u64,
}

/// What a reply is to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: it was there before, its place is taken, or its beginning was missed; a whole text follows.
    Nothing,
    /// The first piece of a text.
    Begins {
        /// It takes the place of the pieces that are shown.
        anew: bool,
    },
    /// The next piece.
    GoesOn,
    /// A whole text.
    Whole {
        /// Its bytes up to here are shown.
        known: usize,
        /// It takes the place of the pieces that are shown.
        anew: bool,
    },
}

impl Texts {
    /// Takes the next reply.
    pub fn take(&mut self, reply: &Reply) -> Shown {
        match &reply.stream_id {
            Some(stream_id) if reply.kind == ReplyKind::Chunk => self.piece(stream_id, reply),
            _ if reply.kind == ReplyKind::Chunk => Shown::Nothing,
            _ => self.whole(reply),
        }
    }

    /// The pieces that are shown of a text whose end is not there yet.
    pub fn open(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.text.as_str())
    }

    /// Nothing more comes of the text whose pieces are shown: its turn has ended.
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
                // A repeat; a gap is none that a reader in order can see.
                return Shown::Nothing;
            }
            open.next += 1;
            open.text.push_str(&reply.text);
            return Shown::GoesOn;
        }
        // A stream that another worker has left behind names none, or an older one.
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
        // A stream begins with a word.
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
        if self.over.len() > REMEMBERED {
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
        assert_eq!(texts.take(&piece("x", 0, "谁")), Shown::Nothing, "nobody's successor");
        let begun = Reply { supersedes: Some("a".into()), ..piece("b", 0, "后") };
        assert_eq!(texts.take(&begun), Shown::Begins { anew: true });
        assert_eq!(texts.take(&piece("a", 1, "说")), Shown::Nothing, "a worker that was left behind");
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
