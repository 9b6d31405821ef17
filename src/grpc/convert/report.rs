//! Reports: the events `workflow_*` as messages.

use super::response::WORKFLOW_ID;
use crate::invalid::Invalid;
use serde::de::Error as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::authoring::{Body, Language, MessageContent, Speaker};

/// The metadata of a report.
const EVENT: &str = "event";
const DATA: &str = "data";

/// The events that are sent as reports. Messages with other events are ordinary ones, because another agent may have
/// events of its own.
const REPORTS: [&str; 4] = ["workflow_generation_started", "workflow_draft", "workflow_debugging", "workflow_complete"];

/// Converts a report into a message.
pub(super) fn message(report: &Body, language: Language) -> Result<MessageContent, serde_json::Error> {
    let json = serde_json::to_value(report)?;
    let text_of = |name: &str| {
        json[name].as_str().map(str::to_owned).ok_or_else(|| serde_json::Error::custom(format!("`{name}` is missing")))
    };
    let metadata = BTreeMap::from([
        (EVENT.to_owned(), text_of("type")?),
        (WORKFLOW_ID.to_owned(), text_of(WORKFLOW_ID)?),
        (DATA.to_owned(), serde_json::to_string(&json[DATA])?),
    ]);
    Ok(MessageContent { text: words(report, language), role: Speaker::System, metadata, ..MessageContent::default() })
}

/// Returns the report in the metadata of a message; `None` if it is an ordinary message.
pub(super) fn read(metadata: &mut BTreeMap<String, String>) -> Result<Option<Body>, Invalid> {
    let Some(event) = metadata.get(EVENT).filter(|event| REPORTS.contains(&event.as_str())).cloned() else {
        return Ok(None);
    };
    let invalid = |error: serde_json::Error| {
        Invalid::field("message.metadata.data", &event, format!("it has to be the data of this event in JSON: {error}"))
    };
    let data: Value = serde_json::from_str(metadata.get(DATA).map_or("", String::as_str)).map_err(invalid)?;
    let workflow_id = metadata.get(WORKFLOW_ID).cloned().unwrap_or_default();
    let report = json!({"type": event, WORKFLOW_ID: workflow_id, DATA: data});
    serde_json::from_value(report).map(Some).map_err(invalid)
}

fn words(report: &Body, language: Language) -> String {
    let is_chinese = language == Language::Zh;
    match report {
        Body::WorkflowGenerationStarted { workflow_id, data } if is_chinese => {
            format!("开始编写 {workflow_id}（第 {} 次）", data.attempt)
        }
        Body::WorkflowGenerationStarted { workflow_id, data } => {
            format!("Writing {workflow_id} (attempt {})", data.attempt)
        }
        Body::WorkflowDraft { workflow_id, data } if is_chinese => {
            format!("{workflow_id} 的草稿已写好，包含 {} 个测试", data.tests)
        }
        Body::WorkflowDraft { workflow_id, data } => {
            format!("The draft of {workflow_id} is written, with {} tests", data.tests)
        }
        Body::WorkflowDebugging { data, .. } => {
            let (passed, failed, errors) = (data.tests.passed, data.tests.failed.len(), data.errors.len());
            match (is_chinese, data.ok) {
                (true, true) => format!("检查通过：{passed} 个测试通过"),
                (true, false) => format!("检查未通过：{errors} 个错误，{failed} 个测试失败，{passed} 个通过"),
                (false, true) => format!("The checks passed: {passed} tests passed"),
                (false, false) => {
                    format!("The checks failed: {errors} errors, {failed} tests failed, {passed} passed")
                }
            }
        }
        Body::WorkflowComplete { workflow_id, data } => match (is_chinese, data.published) {
            (true, true) => format!("{workflow_id} 已完成并发布"),
            (true, false) => format!("{workflow_id} 已完成，尚未发布"),
            (false, true) => format!("{workflow_id} is ready and published"),
            (false, false) => format!("{workflow_id} is ready and not published"),
        },
        Body::Message { .. } | Body::Status { .. } | Body::Error { .. } => String::new(),
    }
}
