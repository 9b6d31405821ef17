//! What the agents of a dynamic workflow are given: texts in tags, the same in every language. They are a part of what a run
//! has recorded, so they do not change under a run that goes on.

use super::results::Results;
use super::review::Review;
use crate::prompt::{escaped, is_chinese};
use definitions::workflow::definition::SubAgent;
use serde_json::json;
use std::fmt::Write;

/// Some parts, each in a tag that no text within can close.
struct Tagged(String);

impl Tagged {
    fn request(query: &str) -> Self {
        Self(String::new()).with("request", query)
    }

    fn with(mut self, tag: &str, text: &str) -> Self {
        let gap = if self.0.is_empty() { "" } else { "\n\n" };
        let _ = write!(self.0, "{gap}<{tag}>\n{}\n</{tag}>", escaped(text.trim()));
        self
    }
}

fn described(agents: &[SubAgent]) -> String {
    let line = |agent: &SubAgent| format!("- {}: {}", agent.name(), agent.description.trim().replace('\n', " "));
    agents.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn plan(query: &str, agents: &[SubAgent]) -> String {
    Tagged::request(query).with("agents", &described(agents)).0
}

pub(super) fn replan(query: &str, agents: &[SubAgent], results: &Results, review: &Review) -> String {
    let review = json!(review).to_string();
    Tagged::request(query).with("agents", &described(agents)).with("results", &results.text()).with("review", &review).0
}

/// For the review.
pub(super) fn judged(query: &str, results: &Results) -> String {
    Tagged::request(query).with("results", &results.text()).0
}

/// For the summary; `note` is what the reader has to be told beside the results.
pub(super) fn summary(query: &str, results: &Results, note: Option<&str>) -> String {
    let tagged = Tagged::request(query).with("results", &results.text());
    note.into_iter().fold(tagged, |tagged, note| tagged.with("note", note)).0
}

/// For a step: its question, with what earlier groups have found (OP-D3).
pub(super) fn step(question: &str, earlier: &Results) -> String {
    if earlier.is_empty() {
        return question.to_owned();
    }
    format!("{}\n\n{}", question.trim_end(), Tagged(String::new()).with("results", &earlier.text()).0)
}

/// The question that goes on once the user has answered `question`: written as a conversation is.
pub(super) fn answered(query: &str, question: &str, answer: &str) -> String {
    let indented = |text: &str| text.trim().replace('\n', "\n    ");
    format!("{}\n助手: {}\n用户: {}", query.trim_end(), indented(question), indented(answer))
}

/// In the language of whoever asks.
fn said(query: &str, chinese: String, english: String) -> String {
    if is_chinese(query) { chinese } else { english }
}

/// The question to a user whose plan agent did not say what it wants to know.
pub(super) fn vague(query: &str) -> String {
    said(
        query,
        "请再说得具体一些：您想了解哪个系统、什么时间、什么问题？".into(),
        "Could you say more: which system, which time and which problem do you mean?".into(),
    )
}

/// What a user reads whose question is rejected without a reason.
pub(super) fn rejected(query: &str) -> String {
    said(query, "抱歉，这个请求不在我能处理的范围内。".into(), "Sorry, I cannot help with this request.".into())
}

/// What a user reads for whom there is no plan.
pub(super) fn no_plan(query: &str, problem: &str) -> String {
    said(
        query,
        format!("抱歉，没能为这个请求制定计划：{problem}"),
        format!("Sorry, no plan could be made for this request: {problem}"),
    )
}

/// What a user reads when a run has to end early.
pub(super) fn at_limit(query: &str, most: u32, results: &Results) -> String {
    match results.is_empty() {
        true => said(
            query,
            format!("（已达到 {most} 个节点的上限，还没有结果；请把问题说得更具体一些。）"),
            format!("(The limit of {most} nodes is reached without a result; please ask more precisely.)"),
        ),
        false => said(
            query,
            format!("（已达到 {most} 个节点的上限，以上是目前的结果，可能不完整。）"),
            format!("(The limit of {most} nodes is reached; this is what was found so far, and may be incomplete.)"),
        ),
    }
}
