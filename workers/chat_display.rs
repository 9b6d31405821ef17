//! The display of `chat` and `send --wait`: each reply when it arrives, and each change of the status. On a terminal
//! the status is one line that is overwritten, and streamed texts grow. Elsewhere every change is a line of its own,
//! without control characters, and texts are whole. Pure: takes notices, returns the text to write.

use crate::feed::Notice;
use crate::table::printable;
use std::collections::BTreeMap;
use types::event::{Event, Reply, ReplyKind, StatusEvent};
use types::session::Status;
use types::texts::{Shown, Texts};

/// Control sequence: moves the cursor to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\u{1b}[2K";
const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// The state of the display.
#[derive(Debug, Default)]
pub struct ChatDisplay {
    /// Lines can be overwritten.
    terminal: bool,
    /// Colours may be used.
    colour: bool,
    /// Prompt at which the user types.
    prompt: &'static str,
    /// Names of agents, by id.
    names: BTreeMap<String, String>,
    /// The status line that is on the screen now.
    live: Option<String>,
    /// Tracks which replies to show and which are repeats.
    texts: Texts,
    /// The cursor is at the end of a growing text.
    growing: bool,
}

impl ChatDisplay {
    /// A display of plain lines, which shows agents by their names.
    pub fn plain(names: BTreeMap<String, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Turns it into a display on a terminal, with a prompt for the user.
    pub fn on_terminal(self, colour: bool, prompt: &'static str) -> Self {
        Self { terminal: true, colour, prompt, ..self }
    }

    /// Returns the text to write for a notice.
    pub fn notice(&mut self, notice: &Notice) -> String {
        match notice {
            Notice::Event(event) => match event.as_ref() {
                Event::Reply(reply) => self.reply(reply),
                Event::Status(status) => self.status(status),
                Event::Step(_)
                | Event::Run(_)
                | Event::Decision(_)
                | Event::Turn(_)
                | Event::Authoring(_)
                | Event::Handoff(_) => String::new(),
            },
            Notice::Lost(problem) => self.line(&format!("[connection] lost ({problem}); reconnecting …")),
            Notice::Back => self.line("[connection] back"),
            Notice::Failed(error) => self.line(&format!("[connection] gone: {error}")),
        }
    }

    /// Returns a line that is not part of the conversation.
    pub fn line(&mut self, text: &str) -> String {
        let end = self.void(false);
        format!("{end}{}", self.above(&self.dim(&printable(text))))
    }

    /// The user's prompt, if no turn is in progress.
    pub fn ask(&self) -> String {
        if self.terminal && self.live.is_none() && !self.growing {
            format!("{CLEAR_LINE}{}", self.prompt)
        } else {
            String::new()
        }
    }

    fn reply(&mut self, reply: &Reply) -> String {
        let piece = printable(&reply.text);
        match self.texts.take(reply) {
            Shown::Nothing => String::new(),
            Shown::Begins { .. } | Shown::GoesOn if !self.terminal => String::new(),
            Shown::GoesOn if self.growing => piece,
            // Another line was written in between.
            Shown::GoesOn => {
                let so_far = printable(self.texts.open().unwrap_or_default());
                self.grow(&format!("{} {so_far}", self.label(reply, ReplyKind::Final)))
            }
            Shown::Begins { anew } => {
                let void = self.void(anew);
                let begun = self.grow(&format!("{} {piece}", self.label(reply, ReplyKind::Final)));
                format!("{void}{begun}")
            }
            Shown::Whole { known, .. } if self.growing && known > 0 => {
                self.growing = false;
                format!("{}\n{}", printable(&reply.text[known..]), self.last_line())
            }
            Shown::Whole { anew, .. } => {
                let void = self.void(anew && self.terminal);
                let whole = self.above(&format!("{} {}", self.label(reply, reply.kind), printable(&reply.text)));
                format!("{void}{whole}")
            }
        }
    }

    /// The speaker and the kind of the reply.
    fn label(&self, reply: &Reply, kind: ReplyKind) -> String {
        let human = reply.metadata.get("by").and_then(|by| by.as_str()).filter(|_| reply.kind == ReplyKind::Handoff);
        let agent = self.names.get(&reply.agent_id).filter(|name| !name.is_empty()).unwrap_or(&reply.agent_id);
        printable(&format!("{} [{}]", human.unwrap_or(agent), kind.as_str()))
    }

    /// Writes the start of a text that will grow.
    fn grow(&mut self, text: &str) -> String {
        self.growing = true;
        format!("{CLEAR_LINE}{text}")
    }

    /// Ends a growing text. If another text replaces it (`anew`), marks it as discarded.
    fn void(&mut self, anew: bool) -> String {
        let end = if std::mem::take(&mut self.growing) { "\n" } else { "" };
        if anew {
            format!("{end}{CLEAR_LINE}{}\n", self.dim("↺ 以上作废，重新开始 starts over"))
        } else {
            end.to_owned()
        }
    }

    fn status(&mut self, event: &StatusEvent) -> String {
        let left = match event.status {
            Status::Ready | Status::Cancelled | Status::Transferred => {
                self.texts.close();
                self.void(false)
            }
            // The status appears below the text when the text is complete.
            _ if self.growing => {
                self.live = self.passing(event.status);
                return String::new();
            }
            _ => String::new(),
        };
        format!("{left}{}", self.stands(event))
    }

    fn stands(&mut self, event: &StatusEvent) -> String {
        let reason = event.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        if !self.terminal {
            return format!("[status] {}\n", printable(&format!("{}{reason}", event.status)));
        }
        self.live = self.passing(event.status);
        match (event.status, &self.live) {
            (_, Some(line)) => format!("{CLEAR_LINE}{line}"),
            (Status::Cancelled, None) => self.line(&format!("已取消 cancelled{reason}")),
            (Status::Transferred, None) => self.line("已转人工 transferred"),
            (_, None) => self.ask(),
        }
    }

    /// The line of a status that other statuses follow.
    fn passing(&self, status: Status) -> Option<String> {
        let label = match status {
            Status::Acknowledged => "已接收 acknowledged",
            Status::Processing => "处理中 processing",
            Status::Typing => "正在输入 typing",
            Status::Ready | Status::Cancelled | Status::Transferred => return None,
        };
        Some(self.dim(&format!("… {label}")))
    }

    /// Writes above the last line, and then the last line again.
    fn above(&self, text: &str) -> String {
        if !self.terminal {
            return format!("{text}\n");
        }
        format!("{CLEAR_LINE}{text}\n{}", self.last_line())
    }

    fn last_line(&self) -> &str {
        self.live.as_deref().unwrap_or(self.prompt)
    }

    fn dim(&self, text: &str) -> String {
        if self.terminal && self.colour { format!("{DIM}{text}{RESET}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};
    use types::timestamp::Timestamp;

    fn status(status: Status, reason: Option<&str>) -> Notice {
        Notice::Event(Box::new(Event::Status(StatusEvent {
            session_id: "s1".into(),
            turn_id: "m-1".into(),
            status,
            previous: Status::Ready,
            reason: reason.map(Into::into),
            at: Timestamp::from_millis(0),
            turn: None,
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
            supersedes: None,
            at: Timestamp::from_millis(0),
            metadata: Map::new(),
        }
    }

    fn said(reply: Reply) -> Notice {
        Notice::Event(Box::new(Event::Reply(reply)))
    }

    fn display(terminal: bool) -> ChatDisplay {
        let names = BTreeMap::from([("sales".to_owned(), "小智".to_owned())]);
        ChatDisplay { terminal, colour: true, prompt: "> ", names, ..ChatDisplay::default() }
    }

    #[test]
    fn elsewhere_than_on_a_terminal_there_are_no_control_characters() {
        let mut display = display(false);
        let notices = [
            status(Status::Processing, None),
            said(reply("1", ReplyKind::Greeting, "您好\u{1b}[2J")),
            status(Status::Typing, None),
            status(Status::Cancelled, Some("model_unavailable: 503")),
            Notice::Lost("reset".into()),
            Notice::Back,
        ];
        let text: String = notices.iter().map(|notice| display.notice(notice)).collect();
        assert_eq!(
            text,
            "[status] processing\n小智 [greeting] 您好[2J\n[status] typing\n[status] cancelled: model_unavailable: 503\n\
             [connection] lost (reset); reconnecting …\n[connection] back\n"
        );
        assert_eq!(display.ask(), "");
    }

    #[test]
    fn on_a_terminal_the_status_is_one_line_below_the_replies() {
        let mut display = display(true);
        let typing = format!("{DIM}… 正在输入 typing{RESET}");
        assert!(display.notice(&status(Status::Processing, None)).starts_with(CLEAR_LINE));
        assert_eq!(display.notice(&status(Status::Typing, None)), format!("{CLEAR_LINE}{typing}"));
        let shown = display.notice(&said(reply("1", ReplyKind::Response, "好的")));
        assert_eq!(shown, format!("{CLEAR_LINE}小智 [response] 好的\n{typing}"));
        assert_eq!(display.notice(&status(Status::Ready, None)), format!("{CLEAR_LINE}> "));
        assert_eq!(
            display.notice(&status(Status::Transferred, None)),
            format!("{CLEAR_LINE}{DIM}已转人工 transferred{RESET}\n> ")
        );
    }

    fn piece(stream_id: &str, seq: u64, text: &str, supersedes: Option<&str>) -> Notice {
        let chunk = reply(&format!("f/chunk/{stream_id}/{seq}"), ReplyKind::Chunk, text);
        let (stream_id, supersedes) = (Some(stream_id.to_owned()), supersedes.map(str::to_owned));
        said(Reply { seq, stream_id, supersedes, ..chunk })
    }

    fn whole(id: &str, kind: ReplyKind, text: &str, stream_id: &str) -> Notice {
        said(Reply { stream_id: Some(stream_id.into()), ..reply(id, kind, text) })
    }

    #[test]
    fn elsewhere_than_on_a_terminal_texts_are_whole_and_shown_once() {
        let mut display = display(false);
        let notices = [
            piece("a", 0, "不", None),
            piece("b", 0, "好", Some("a")),
            whole("f", ReplyKind::Final, "好的", "b"),
            whole("f", ReplyKind::Final, "好的", "b"),
        ];
        let text: String = notices.iter().map(|notice| display.notice(notice)).collect();
        assert_eq!(text, "小智 [final] 好的\n");
    }

    #[test]
    fn on_a_terminal_a_text_grows_and_is_not_repeated() {
        let mut display = display(true);
        display.notice(&status(Status::Processing, None));
        let notices = [
            piece("a", 0, "你", None),
            piece("a", 0, "你", None),
            piece("a", 1, "好\u{1b}[2J", None),
            status(Status::Typing, None),
            whole("f", ReplyKind::Final, "你好\u{1b}[2J！", "a"),
        ];
        let text: String = notices.iter().map(|notice| display.notice(notice)).collect();
        assert_eq!(text, format!("{CLEAR_LINE}小智 [final] 你好[2J！\n{DIM}… 正在输入 typing{RESET}"));
        assert_eq!(display.notice(&status(Status::Ready, None)), format!("{CLEAR_LINE}> "));
    }

    #[test]
    fn a_text_that_begins_anew_says_so_and_goes_on_below_what_came_between() {
        let mut display = display(true);
        let anew = format!("\n{CLEAR_LINE}{DIM}↺ 以上作废，重新开始 starts over{RESET}\n");
        assert_eq!(display.notice(&piece("a", 0, "你", None)), format!("{CLEAR_LINE}小智 [final] 你"));
        let again = display.notice(&piece("b", 0, "您", Some("a")));
        assert_eq!(again, format!("{anew}{CLEAR_LINE}小智 [final] 您"));
        assert!(display.notice(&Notice::Back).starts_with(&format!("\n{CLEAR_LINE}{DIM}[connection] back")));
        assert_eq!(display.notice(&piece("b", 1, "好", None)), format!("{CLEAR_LINE}小智 [final] 您好"));
        let sorry = reply("x", ReplyKind::Apology, "抱歉");
        let sorry = display.notice(&said(Reply { supersedes: Some("b".into()), ..sorry }));
        assert_eq!(sorry, format!("{anew}{CLEAR_LINE}小智 [apology] 抱歉\n> "));
    }

    #[test]
    fn a_text_that_is_left_unfinished_ends_its_line() {
        let mut display = display(true);
        display.notice(&piece("a", 0, "你", None));
        let cancelled = display.notice(&status(Status::Cancelled, Some("operator")));
        assert_eq!(cancelled, format!("\n{CLEAR_LINE}{DIM}已取消 cancelled: operator{RESET}\n> "));
    }

    #[test]
    fn a_human_speaks_under_their_own_name() {
        let mut spoken = reply("1", ReplyKind::Handoff, "我来处理");
        assert_eq!(display(false).notice(&said(spoken.clone())), "小智 [handoff] 我来处理\n");
        spoken.metadata.insert("by".into(), json!("李雷"));
        assert_eq!(display(false).notice(&said(spoken)), "李雷 [handoff] 我来处理\n");
    }
}
