//! The input texts of the agents of a dynamic workflow: sections in tags, whatever the language of the request. They
//! are inputs of recorded steps, so a change of their format fails the replay of runs in progress.

use super::results::Results;
use super::review::Review;
use crate::prompt::{escaped, is_chinese};
use definitions::workflow::definition::SubAgentDefinition;
use serde_json::json;
use std::fmt::Write;

/// A text of sections in tags. The section's text is escaped, so it cannot close its tag.
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

fn described(agents: &[SubAgentDefinition]) -> String {
    let line =
        |agent: &SubAgentDefinition| format!("- {}: {}", agent.name(), agent.description.trim().replace('\n', " "));
    agents.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Input of the plan agent.
pub(super) fn plan(query: &str, agents: &[SubAgentDefinition]) -> String {
    Tagged::request(query).with("agents", &described(agents)).0
}

/// Input of the replan agent.
pub(super) fn replan(query: &str, agents: &[SubAgentDefinition], results: &Results, review: &Review) -> String {
    let review = json!(review).to_string();
    Tagged::request(query).with("agents", &described(agents)).with("results", &results.text()).with("review", &review).0
}

/// Input of the review agent.
pub(super) fn judged(query: &str, results: &Results) -> String {
    Tagged::request(query).with("results", &results.text()).0
}

/// Input of the summary agent. `note` is a remark that the reader must know in addition to the results.
pub(super) fn summary(query: &str, results: &Results, note: Option<&str>) -> String {
    let tagged = Tagged::request(query).with("results", &results.text());
    note.into_iter().fold(tagged, |tagged, note| tagged.with("note", note)).0
}

/// Input of a step: its question, with the results of earlier groups.
pub(super) fn step(question: &str, earlier: &Results) -> String {
    if earlier.is_empty() {
        return question.to_owned();
    }
    format!("{}\n\n{}", question.trim_end(), Tagged(String::new()).with("results", &earlier.text()).0)
}

/// The request after the user's answer to `question`, in the format of a conversation.
pub(super) fn answered(query: &str, question: &str, answer: &str) -> String {
    let indented = |text: &str| text.trim().replace('\n', "\n    ");
    format!("{}\n助手: {}\n用户: {}", query.trim_end(), indented(question), indented(answer))
}

/// Chooses the text in the language of the request.
fn said(query: &str, chinese: String, english: String) -> String {
    if is_chinese(query) { chinese } else { english }
}

/// Question to the user if the plan agent wants clarification but gives no question.
pub(super) fn vague(query: &str) -> String {
    said(
        query,
        "请再说得具体一些：您想了解哪个系统、什么时间、什么问题？".into(),
        "Could you say more: which system, which time and which problem do you mean?".into(),
    )
}

/// Text for the user if the request is rejected without a reason.
pub(super) fn rejected(query: &str) -> String {
    said(query, "抱歉，这个请求不在我能处理的范围内。".into(), "Sorry, I cannot help with this request.".into())
}

/// Text for the user if there is no valid plan.
pub(super) fn no_plan(query: &str, problem: &str) -> String {
    said(
        query,
        format!("抱歉，没能为这个请求制定计划：{problem}"),
        format!("Sorry, no plan could be made for this request: {problem}"),
    )
}

/// Text for the user if the run has reached its limit of activations.
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
