//! The progress that `workflows run` shows: starts and ends of stages, and the streamed text of one stage at a time.
//! Text of other stages waits until that stage has ended. Pure: takes events, returns the text to write.

use crate::table::{one_line, printable};
use engine::workflow::orchestration::event::{RunEvent, RunEventType};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const RESET: &str = "\u{1b}[0m";
/// Prefix of each line of a model's text.
const MARGIN: &str = "  │ ";
/// Number of characters of a tool's result that are shown.
const MAX_RESULT_CHARS: usize = 120;

/// The state of the display.
#[derive(Debug, Default)]
pub struct Progress {
    colour: bool,
    /// Start time of each running stage, by path.
    begun: HashMap<String, Instant>,
    /// Path of the stage whose text is being shown, and whether its last line is unfinished.
    live: Option<(String, bool)>,
    /// Texts of other stages, in the order of their start.
    waiting: Vec<Waiting>,
    /// Streams of the answers that arrive in chunks, by step. Their whole texts are not shown again.
    streams: HashMap<String, String>,
    /// Ids of the events seen so far, to drop repeats.
    seen: HashSet<String>,
}

#[derive(Debug)]
struct Waiting {
    path: String,
    text: String,
    ended: bool,
}

impl Progress {
    /// Creates a display with or without colours.
    pub fn new(colour: bool) -> Self {
        Self { colour, ..Self::default() }
    }

    /// Returns the text to write for an event that arrived at `now`.
    pub fn event(&mut self, event: &RunEvent, now: Instant) -> String {
        if !self.seen.insert(event.event_id.clone()) {
            return String::new();
        }
        let path = one_line(&event.path);
        let path = path.as_str();
        match event.kind {
            RunEventType::StageStarted | RunEventType::BranchStarted => {
                self.begun.insert(path.to_owned(), now);
                self.line(&format!("▶ {path}"))
            }
            RunEventType::StageCompleted | RunEventType::BranchCompleted => {
                let took = self.begun.remove(path).map(|begun| format!("  {}", took(now - begun)));
                let line = format!("{} {path}{}", self.paint(GREEN, "✓"), self.paint(DIM, &took.unwrap_or_default()));
                self.line(&line)
            }
            RunEventType::LoopIteration => {
                let most = event.data.as_ref().and_then(|data| data.get("max_iterations")).and_then(|max| max.as_u64());
                let of = most.map(|most| format!(" of at most {most}")).unwrap_or_default();
                let iteration = event.iteration.unwrap_or_default();
                self.line(&self.paint(DIM, &format!("↻ {path} iteration {iteration}{of}")))
            }
            RunEventType::StepDelta => self.delta(event),
            RunEventType::StepCompleted => self.step(event),
            RunEventType::RunFailed if event.depth > 0 => {
                let error = one_line(event.error.as_deref().unwrap_or_default());
                let line = format!("{} {path}: {error}", self.paint(RED, "✗"));
                self.line(&line)
            }
            RunEventType::RunStarted | RunEventType::RunCompleted | RunEventType::RunFailed => String::new(),
        }
    }

    /// Returns the texts that still wait, after the last event.
    pub fn rest(&mut self) -> String {
        let mut out = self.close();
        self.live = None;
        for Waiting { path, text, .. } in std::mem::take(&mut self.waiting) {
            out.push_str(&self.quoted(&path, &text));
        }
        out
    }

    fn delta(&mut self, event: &RunEvent) -> String {
        let Some(delta) = &event.delta else { return String::new() };
        let (path, text) = (one_line(&event.path), printable(&delta.content));
        let step = event.step_id.clone().unwrap_or_default();
        let anew = self.streams.insert(step, delta.stream_id.clone()).is_some_and(|before| before != delta.stream_id);
        let shown = text.replace('\n', &format!("\n{MARGIN}"));
        match &self.live {
            Some((live, open)) if *live == path => {
                let again = match (anew, *open) {
                    (true, true) => format!("\n{MARGIN}"),
                    (false, true) => String::new(),
                    (_, false) => MARGIN.to_owned(),
                };
                // The text of this step so far is discarded.
                let note =
                    if anew { format!("{}\n{MARGIN}", self.paint(DIM, "… starts over:")) } else { String::new() };
                self.live = Some((path, true));
                format!("{again}{note}{shown}")
            }
            Some(_) => {
                match self.waiting.iter_mut().find(|waiting| waiting.path == path && !waiting.ended) {
                    Some(waiting) if anew => waiting.text = text,
                    Some(waiting) => waiting.text.push_str(&text),
                    None => self.waiting.push(Waiting { path, text, ended: false }),
                }
                String::new()
            }
            None => {
                let head = self.head(&path);
                self.live = Some((path, true));
                format!("{head}{MARGIN}{shown}")
            }
        }
    }

    /// Handles a completed answer, or the result of a tool.
    fn step(&mut self, event: &RunEvent) -> String {
        let Some(snapshot) = &event.snapshot else { return String::new() };
        let (path, content) = (event.path.as_str(), printable(&snapshot.content));
        if snapshot.role == "tool" {
            let result: String = one_line(&content).chars().take(MAX_RESULT_CHARS).collect();
            return self.line(&self.paint(DIM, &format!("· {path}: {result}")));
        }
        let streamed = event.step_id.as_ref().is_some_and(|step_id| self.streams.contains_key(step_id));
        let mut out = match &self.live {
            Some((live, _)) if live == path => self.ended(),
            _ if streamed => {
                let waiting = self.waiting.iter_mut().find(|waiting| waiting.path == path && !waiting.ended);
                waiting.into_iter().for_each(|waiting| waiting.ended = true);
                String::new()
            }
            _ if content.trim().is_empty() => String::new(),
            Some(_) => {
                self.waiting.push(Waiting { path: path.to_owned(), text: content, ended: true });
                String::new()
            }
            None => self.quoted(path, &content),
        };
        for call in snapshot.tool_calls.iter().flatten() {
            let function = &call["function"];
            let (name, arguments) = (function["name"].as_str(), function["arguments"].as_str());
            let call = format!("→ {path}: {}({})", name.unwrap_or("?"), one_line(arguments.unwrap_or_default()));
            out.push_str(&self.line(&self.paint(DIM, &call)));
        }
        out
    }

    /// Ends the shown text. Then the waiting texts follow, up to the first unfinished one.
    fn ended(&mut self) -> String {
        let mut out = self.close();
        self.live = None;
        while !self.waiting.is_empty() {
            let Waiting { path, text, ended } = self.waiting.remove(0);
            if ended {
                out.push_str(&self.quoted(&path, &text));
                continue;
            }
            let shown = text.replace('\n', &format!("\n{MARGIN}"));
            out.push_str(&format!("{}{MARGIN}{shown}", self.head(&path)));
            self.live = Some((path, true));
            break;
        }
        out
    }

    fn quoted(&self, path: &str, text: &str) -> String {
        let lines = text.trim_end().lines().map(|line| format!("{MARGIN}{line}\n"));
        format!("{}{}", self.head(path), lines.collect::<String>())
    }

    fn head(&self, path: &str) -> String {
        let path = if path.is_empty() { "run" } else { path };
        format!("{}\n", self.paint(DIM, &format!("  {path}")))
    }

    /// Writes a line of its own, even within a text.
    fn line(&mut self, text: &str) -> String {
        let closed = self.close();
        format!("{closed}{text}\n")
    }

    fn close(&mut self) -> String {
        match &mut self.live {
            Some((_, open)) if *open => {
                *open = false;
                "\n".to_owned()
            }
            _ => String::new(),
        }
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("{colour}{text}{RESET}") } else { text.to_owned() }
    }
}

/// A duration for people: `340ms`, `1.2s`, `2m 5s`.
pub fn took(time: Duration) -> String {
    match time {
        time if time < Duration::from_secs(1) => format!("{}ms", time.as_millis()),
        time if time < Duration::from_secs(60) => format!("{:.1}s", time.as_secs_f64()),
        time => crate::table::rough(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Each event gets a new id.
    struct Run(Progress, u32, Instant);

    impl Run {
        fn new() -> Self {
            Self(Progress::new(false), 0, Instant::now())
        }

        #[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
        fn tell(&mut self, kind: &str, path: &str, more: Value) -> String {
            self.1 += 1;
            let mut event = json!({
                "type": kind, "run_id": "r", "root_run_id": "r", "event_id": self.1.to_string(), "step_id": path, "stage_id": null,
                "branch_id": null, "iteration": null, "depth": 1, "path": path, "delta": null, "snapshot": null, "data": null,
                "error": null,
            });
            for (key, value) in more.as_object().into_iter().flatten() {
                event[key] = value.clone();
            }
            self.2 += Duration::from_millis(300);
            self.0.event(&serde_json::from_value(event).unwrap(), self.2)
        }

        fn say(&mut self, path: &str, text: &str) -> String {
            self.tell("step_delta", path, json!({"delta": {"content": text, "seq": 0, "stream_id": "s"}}))
        }

        fn end(&mut self, path: &str, text: &str) -> String {
            self.tell(
                "step_completed",
                path,
                json!({"snapshot": {"role": "assistant", "content": text, "tool_calls": null}}),
            )
        }
    }

    #[test]
    fn a_stage_begins_streams_and_ends_with_its_time() {
        let mut run = Run::new();
        let out = [
            run.tell("stage_started", "plan", json!({})),
            run.say("plan", "第一步\n第"),
            run.say("plan", "二步"),
            run.end("plan", "第一步\n第二步"),
            run.tell("stage_completed", "plan", json!({"data": {"output": "第一步\n第二步"}})),
        ];
        assert_eq!(out.concat(), "▶ plan\n  plan\n  │ 第一步\n  │ 第二步\n✓ plan  1.2s\n");
    }

    #[test]
    fn an_answer_that_did_not_stream_is_shown_whole_and_a_tool_in_one_line() {
        let mut run = Run::new();
        assert_eq!(run.end("plan", "好\n的\u{1b}[2J\n"), "  plan\n  │ 好\n  │ 的[2J\n");
        let calls = json!([{"id": "1", "function": {"name": "search", "arguments": "{\"q\":\n\"电池\"}"}}]);
        let wants = json!({"snapshot": {"role": "assistant", "content": "", "tool_calls": calls}});
        assert_eq!(run.tell("step_completed", "plan", wants), "→ plan: search({\"q\": \"电池\"})\n");
        let result = json!({"snapshot": {"role": "tool", "content": "{\"n\":1}", "tool_calls": null}});
        assert_eq!(run.tell("step_completed", "plan", result), "· plan: {\"n\":1}\n");
    }

    #[test]
    fn texts_of_branches_come_one_after_the_other() {
        let mut run = Run::new();
        let out = [
            run.say("a", "甲1 "),
            run.say("b", "乙1 "),
            run.end("c", "丙"),
            run.say("a", "甲2"),
            run.say("b", "乙2 "),
            run.end("a", "甲1 甲2"),
            run.say("b", "乙3"),
            run.end("b", ""),
        ];
        assert_eq!(out.concat(), "  a\n  │ 甲1 甲2\n  b\n  │ 乙1 乙2 乙3\n  c\n  │ 丙\n");
    }

    #[test]
    fn a_line_in_the_midst_of_a_text_does_not_tear_it() {
        let mut run = Run::new();
        let out = [
            run.say("a", "甲1"),
            run.tell("branch_started", "b", json!({})),
            run.say("a", "甲2"),
            run.say("b", "乙"),
            run.0.rest(),
        ];
        assert_eq!(out.concat(), "  a\n  │ 甲1\n▶ b\n  │ 甲2\n  b\n  │ 乙\n");
    }

    #[test]
    fn an_answer_that_begins_anew_says_so() {
        let mut run = Run::new();
        let anew = |text: &str| json!({"delta": {"content": text, "seq": 0, "stream_id": "second"}});
        let out = [
            run.say("a", "甲的一"),
            run.say("b", "乙的一"),
            run.tell("step_delta", "b", anew("乙")),
            run.tell("step_delta", "a", anew("甲")),
            run.end("a", "甲"),
            run.end("b", "乙"),
        ];
        assert_eq!(out.concat(), "  a\n  │ 甲的一\n  │ … starts over:\n  │ 甲\n  b\n  │ 乙\n");
    }

    #[test]
    fn repeats_are_dropped_and_the_outermost_end_is_the_command_s() {
        let mut run = Run::new();
        let failed = json!({"event_id": "same", "error": "no\nanswer"});
        assert_eq!(run.tell("run_failed", "plan", failed.clone()), "✗ plan: no answer\n");
        assert_eq!(run.tell("run_failed", "plan", failed), "");
        assert_eq!(run.tell("run_failed", "", json!({"depth": 0, "error": "x"})), "");
        let iteration = json!({"iteration": 2, "data": {"max_iterations": 5}});
        assert_eq!(run.tell("loop_iteration", "outer[2]", iteration), "↻ outer[2] iteration 2 of at most 5\n");
    }
}
