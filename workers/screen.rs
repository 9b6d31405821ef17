//! What `chat` and `send --wait` show: each reply as it comes, the status as it changes. On a terminal the status is one
//! line, rewritten in place; elsewhere every change is a line of its own, without control characters. Pure: what goes in
//! is a notice, what comes out is the text to write.

use crate::feed::Notice;
use crate::table::printable;
use std::collections::{BTreeMap, HashSet};
use turnwheel::queue::{Event, Reply, ReplyKind, StatusEvent};
use turnwheel::session::Status;

/// Back to the begin of the line, and clear it.
const CLEAR: &str = "\r\u{1b}[2K";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// See the module.
#[derive(Debug, Default)]
pub struct Screen {
    /// Lines can be rewritten.
    terminal: bool,
    /// Colours may be used.
    colour: bool,
    /// Stands where the user types.
    prompt: &'static str,
    /// Agents' names by id.
    names: BTreeMap<String, String>,
    /// The status line that stands on the screen.
    live: Option<String>,
    /// Channels drop repeats by their id.
    seen: HashSet<String>,
}

impl Screen {
    /// A screen of plain lines, which calls agents by their names.
    pub fn plain(names: BTreeMap<String, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// The same on a terminal, with `prompt` where the user types.
    pub fn on_terminal(self, colour: bool, prompt: &'static str) -> Self {
        Self { terminal: true, colour, prompt, ..self }
    }

    /// What to write for a notice.
    pub fn notice(&mut self, notice: &Notice) -> String {
        match notice {
            Notice::Event(event) => match event.as_ref() {
                Event::Reply(reply) => self.reply(reply),
                Event::Status(status) => self.status(status),
                Event::Step(_) | Event::Run(_) => String::new(),
            },
            Notice::Lost(problem) => self.line(&format!("[connection] lost ({problem}); reconnecting …")),
            Notice::Back => self.line("[connection] back"),
            Notice::Failed(error) => self.line(&format!("[connection] gone: {error}")),
        }
    }

    /// A line beside the conversation.
    pub fn line(&self, text: &str) -> String {
        self.above(&self.dim(&printable(text)))
    }

    /// The place where the user types, when nothing is under way.
    pub fn ask(&self) -> String {
        if self.terminal && self.live.is_none() { format!("{CLEAR}{}", self.prompt) } else { String::new() }
    }

    fn reply(&mut self, reply: &Reply) -> String {
        // The final one has the whole text of all chunks.
        if reply.kind == ReplyKind::Chunk || !self.seen.insert(reply.reply_id.clone()) {
            return String::new();
        }
        let human = reply.metadata.get("by").and_then(|by| by.as_str()).filter(|_| reply.kind == ReplyKind::Handoff);
        let agent = self.names.get(&reply.agent_id).filter(|name| !name.is_empty()).unwrap_or(&reply.agent_id);
        let name = human.unwrap_or(agent);
        self.above(&printable(&format!("{name} [{}] {}", reply.kind.as_str(), reply.text)))
    }

    fn status(&mut self, event: &StatusEvent) -> String {
        let reason = event.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        if !self.terminal {
            return format!("[status] {}\n", printable(&format!("{}{reason}", event.status)));
        }
        let label = match event.status {
            Status::Acknowledged => "已接收 acknowledged",
            Status::Processing => "处理中 processing",
            Status::Typing => "正在输入 typing",
            Status::Ready => {
                self.live = None;
                return self.ask();
            }
            Status::Cancelled => return self.rest(&format!("已取消 cancelled{reason}")),
            Status::Transferred => return self.rest("已转人工 transferred"),
        };
        let line = self.dim(&format!("… {label}"));
        self.live = Some(line.clone());
        format!("{CLEAR}{line}")
    }

    /// A status that stays on the screen.
    fn rest(&mut self, text: &str) -> String {
        self.live = None;
        self.line(text)
    }

    /// Writes above what stands in the last line, and puts that back.
    fn above(&self, text: &str) -> String {
        if !self.terminal {
            return format!("{text}\n");
        }
        format!("{CLEAR}{text}\n{}", self.live.as_deref().unwrap_or(self.prompt))
    }

    fn dim(&self, text: &str) -> String {
        if self.terminal && self.colour { format!("{DIM}{text}{PLAIN}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};
    use turnwheel::clock::Timestamp;

    fn status(status: Status, reason: Option<&str>) -> Notice {
        Notice::Event(Box::new(Event::Status(StatusEvent {
            session_id: "s1".into(),
            turn_id: "m-1".into(),
            status,
            previous: Status::Ready,
            reason: reason.map(Into::into),
            at: Timestamp::from_millis(0),
        })))
    }

    fn reply(id: &str, kind: ReplyKind, text: &str) -> Reply {
        Reply {
            reply_id: id.into(),
            session_id: "s1".into(),
            agent_id: "sales".into(),
            user_id: String::new(),
            channel: "default".into(),
            turn_id: "m-1".into(),
            kind,
            text: text.into(),
            seq: 0,
            stream_id: None,
            at: Timestamp::from_millis(0),
            metadata: Map::new(),
        }
    }

    fn said(reply: Reply) -> Notice {
        Notice::Event(Box::new(Event::Reply(reply)))
    }

    fn screen(terminal: bool) -> Screen {
        let names = BTreeMap::from([("sales".to_owned(), "小智".to_owned())]);
        Screen { terminal, colour: true, prompt: "> ", names, ..Screen::default() }
    }

    #[test]
    fn elsewhere_than_on_a_terminal_there_are_no_control_characters() {
        let mut screen = screen(false);
        let notices = [
            status(Status::Processing, None),
            said(reply("1", ReplyKind::Greeting, "您好\u{1b}[2J")),
            status(Status::Typing, None),
            status(Status::Cancelled, Some("model_unavailable: 503")),
            Notice::Lost("reset".into()),
            Notice::Back,
        ];
        let text: String = notices.iter().map(|notice| screen.notice(notice)).collect();
        assert_eq!(
            text,
            "[status] processing\n小智 [greeting] 您好[2J\n[status] typing\n[status] cancelled: model_unavailable: 503\n\
             [connection] lost (reset); reconnecting …\n[connection] back\n"
        );
        assert_eq!(screen.ask(), "");
    }

    #[test]
    fn on_a_terminal_the_status_is_one_line_below_the_replies() {
        let mut screen = screen(true);
        let typing = format!("{DIM}… 正在输入 typing{PLAIN}");
        assert!(screen.notice(&status(Status::Processing, None)).starts_with(CLEAR));
        assert_eq!(screen.notice(&status(Status::Typing, None)), format!("{CLEAR}{typing}"));
        let shown = screen.notice(&said(reply("1", ReplyKind::Response, "好的")));
        assert_eq!(shown, format!("{CLEAR}小智 [response] 好的\n{typing}"));
        assert_eq!(screen.notice(&status(Status::Ready, None)), format!("{CLEAR}> "));
        assert_eq!(
            screen.notice(&status(Status::Transferred, None)),
            format!("{CLEAR}{DIM}已转人工 transferred{PLAIN}\n> ")
        );
    }

    #[test]
    fn a_repeated_reply_and_the_chunks_of_a_final_one_are_shown_once() {
        let mut screen = screen(false);
        assert_eq!(screen.notice(&said(reply("1", ReplyKind::Chunk, "好"))), "");
        assert_eq!(screen.notice(&said(reply("1/final", ReplyKind::Final, "好的"))), "小智 [final] 好的\n");
        assert_eq!(screen.notice(&said(reply("1/final", ReplyKind::Final, "好的"))), "");
    }

    #[test]
    fn a_human_speaks_under_their_own_name() {
        let mut spoken = reply("1", ReplyKind::Handoff, "我来处理");
        assert_eq!(screen(false).notice(&said(spoken.clone())), "小智 [handoff] 我来处理\n");
        spoken.metadata.insert("by".into(), json!("李雷"));
        assert_eq!(screen(false).notice(&said(spoken)), "李雷 [handoff] 我来处理\n");
    }
}
