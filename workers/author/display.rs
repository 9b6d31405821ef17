//! The display of an authoring dialogue: texts as they are written, questions and alternatives as numbered lists, and
//! one line for each stage. Pure: takes events, returns the text to write.

use crate::table::printable;
use std::fmt::Write;
use types::authoring::message::{Complete, Debugging, DraftWritten, ErrorContent};
use types::authoring::{AlternativeOption, Body, ClarificationQuestion, Event, MessageContent};

const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// The first words for the user: a greeting, or the last message of the dialogue that goes on.
pub fn opening(text: &str) -> String {
    format!("{}\n", printable(text))
}

/// The state of the display.
#[derive(Debug, Default)]
pub struct AuthorDisplay {
    /// Texts can grow: the output is a terminal.
    grows: bool,
    colour: bool,
    /// The stream whose text is growing, and what of it was written.
    open: Option<(String, String)>,
}

impl AuthorDisplay {
    pub fn new(grows: bool, colour: bool) -> Self {
        Self { grows, colour, open: None }
    }

    /// Returns the text to write for an event.
    pub fn event(&mut self, event: &Event) -> String {
        match &event.body {
            Body::Message { content: Some(content), .. } => self.whole(content),
            Body::Message { delta: Some(delta), stream_id: Some(stream), .. } if self.grows => {
                self.piece(stream, delta)
            }
            Body::Message { .. } => String::new(),
            Body::Status { content } => self.note(&content.stage_description),
            Body::Error { content } => self.error(content),
            Body::WorkflowGenerationStarted { workflow_id, data } => {
                self.note(&format!("{} `{workflow_id}`, attempt {}", data.artifact, data.attempt))
            }
            Body::WorkflowDraft { data, .. } => self.draft(data),
            Body::WorkflowDebugging { data, .. } => self.checked(data),
            Body::WorkflowComplete { workflow_id, data } => self.complete(workflow_id, data),
        }
    }

    /// A line that is not part of the conversation.
    pub fn note(&mut self, text: &str) -> String {
        let (before, text) = (self.end_line(), printable(text));
        match self.colour {
            true => format!("{before}{DIM}· {text}{RESET}\n"),
            false => format!("{before}· {text}\n"),
        }
    }

    /// Ends the line of a text that is growing.
    pub fn end_line(&mut self) -> String {
        self.open.take().map(|_| "\n".to_owned()).unwrap_or_default()
    }

    fn piece(&mut self, stream: &str, delta: &str) -> String {
        let piece = printable(delta);
        match &mut self.open {
            Some((open, text)) if open == stream => {
                text.push_str(&piece);
                piece
            }
            // A new text replaces the previous one.
            other => {
                let end = if other.is_some() { "\n" } else { "" };
                *other = Some((stream.to_owned(), piece.clone()));
                format!("{end}{piece}")
            }
        }
    }

    fn whole(&mut self, content: &MessageContent) -> String {
        let text = printable(&content.text);
        let mut out = match self.open.take() {
            // The part of the text that is not on the screen yet.
            Some((_, shown)) if text.starts_with(&shown) => format!("{}\n", &text[shown.len()..]),
            Some(_) => format!("\n{text}\n"),
            None => format!("{text}\n"),
        };
        out.push_str(&questions(&content.questions));
        out.push_str(&alternatives(&content.alternatives));
        out
    }

    fn error(&mut self, error: &ErrorContent) -> String {
        let details = if error.details.is_empty() { String::new() } else { format!(" ({})", error.details) };
        format!("{}[{}] {}{}\n", self.end_line(), error.error_code, printable(&error.message), printable(&details))
    }

    fn draft(&mut self, draft: &DraftWritten) -> String {
        self.note(&format!("draft {}, tests: {}", short(&draft.hash), draft.tests))
    }

    fn checked(&mut self, report: &Debugging) -> String {
        let tests = &report.tests;
        let mut out = self.note(&format!(
            "{}: {} errors, {} warnings; tests: {} passed, {} failed, {} not run",
            if report.ok { "checks passed" } else { "checks failed" },
            report.errors.len(),
            report.warnings.len(),
            tests.passed,
            tests.failed.len(),
            tests.not_run.len(),
        ));
        for (kind, found) in [("error", &report.errors), ("warning", &report.warnings), ("failed", &tests.failed)] {
            for one in found {
                out.push_str(&self.note(&format!("  {kind}: {}", described(one))));
            }
        }
        out
    }

    fn complete(&mut self, workflow_id: &str, data: &Complete) -> String {
        let standing = if data.published { "published" } else { "a draft; /publish puts it into use" };
        self.note(&format!("`{workflow_id}` {}: {standing}", short(&data.hash)))
    }
}

/// A finding or a test as one line.
fn described(found: &serde_json::Value) -> String {
    let text = |name: &str| found[name].as_str().unwrap_or_default();
    let place = [text("path"), text("name")].concat();
    let words = [text("problem"), text("reason"), text("hint")].map(str::trim);
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    match (place.is_empty(), words.is_empty()) {
        (_, true) => found.to_string(),
        (true, false) => words.join("; "),
        (false, false) => format!("{place}: {}", words.join("; ")),
    }
}

fn questions(questions: &[ClarificationQuestion]) -> String {
    let mut out = String::new();
    for (number, question) in questions.iter().enumerate() {
        let _ = writeln!(out, "  {}. {}", number + 1, printable(&question.question));
        if !question.options.is_empty() {
            let _ = writeln!(out, "     ({})", printable(&question.options.join(" / ")));
        }
    }
    out
}

fn alternatives(alternatives: &[AlternativeOption]) -> String {
    let mut out = String::new();
    for (number, one) in alternatives.iter().enumerate() {
        let _ = writeln!(out, "  {}. {} [{}]", number + 1, printable(&one.title), one.complexity);
        for line in [&one.description, &one.approach].into_iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "     {}", printable(line));
        }
        for drawback in &one.trade_offs {
            let _ = writeln!(out, "     - {}", printable(drawback));
        }
    }
    out
}

/// The first characters of a hash, which name it among few.
pub fn short(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(mut fields: serde_json::Value) -> Event {
        let rest = json!({"session_id": "s", "turn_id": "t", "seq": 1, "timestamp": 1, "is_final": false});
        for (name, value) in rest.as_object().unwrap() {
            fields[name] = value.clone();
        }
        serde_json::from_value(fields).unwrap()
    }

    fn piece(stream: &str, delta: &str) -> Event {
        event(json!({"type": "message", "delta": delta, "stream_id": stream}))
    }

    fn whole(text: &str) -> Event {
        event(json!({"type": "message", "content": {"text": text, "role": "assistant", "message_type": "text"}}))
    }

    #[test]
    fn a_text_grows_on_a_terminal_and_is_whole_elsewhere() {
        let mut terminal = AuthorDisplay::new(true, false);
        let shown: String =
            [piece("a", "你"), piece("a", "好"), whole("你好！")].iter().map(|e| terminal.event(e)).collect();
        assert_eq!(shown, "你好！\n");
        let again: String =
            [piece("a", "Hel"), piece("b", "Hello"), whole("Hello")].iter().map(|e| terminal.event(e)).collect();
        assert_eq!(again, "Hel\nHello\n");
        let mut pipe = AuthorDisplay::new(false, false);
        let shown: String = [piece("a", "你"), whole("你好！")].iter().map(|e| pipe.event(e)).collect();
        assert_eq!(shown, "你好！\n");
    }

    #[test]
    fn questions_and_alternatives_are_numbered() {
        let asked = event(json!({"type": "message", "content": {"text": "Two things:", "role": "assistant",
            "message_type": "question", "questions": [
                {"id": "a", "question": "Which mailbox?", "options": ["support", "sales"]},
                {"id": "b", "question": "To whom?"}]}}));
        let shown = AuthorDisplay::default().event(&asked);
        assert_eq!(shown, "Two things:\n  1. Which mailbox?\n     (support / sales)\n  2. To whom?\n");
        let offered = event(json!({"type": "message", "content": {"text": "Choose:", "role": "assistant",
            "message_type": "options", "alternatives": [{"id": "x", "title": "Mail", "description": "Send a mail",
            "trade_offs": ["slower"], "complexity": "simple"}]}}));
        let shown = AuthorDisplay::default().event(&offered);
        assert_eq!(shown, "Choose:\n  1. Mail [simple]\n     Send a mail\n     - slower\n");
    }

    #[test]
    fn a_stored_text_does_not_control_the_terminal() {
        assert_eq!(opening("几点？\n\u{1b}[2J"), "几点？\n[2J\n");
    }

    #[test]
    fn a_failed_check_names_its_reasons() {
        let checked =
            event(json!({"type": "workflow_debugging", "workflow_id": "w", "data": {"attempt": 1, "ok": false,
            "errors": [{"path": "nodes[1]", "problem": "there is no node `b`", "hint": "name one of: a"}],
            "warnings": [], "tests": {"passed": 0, "failed": [], "not_run": []}}}));
        let shown = AuthorDisplay::default().event(&checked);
        assert!(shown.contains("checks failed: 1 errors"), "{shown}");
        assert!(shown.contains("nodes[1]: there is no node `b`; name one of: a"), "{shown}");
    }
}
