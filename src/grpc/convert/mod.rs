//! Translation between the types of [`author`](crate::author) and the messages of `proto/workflow_agent.proto`.

mod report;
mod request;
mod response;
mod state;

use crate::generated::workflow_agent as wire;
use crate::invalid::Invalid;
use types::authoring::{Category, Complexity, MessageType, Origin, Purpose, Speaker, Stage};

/// Texts with fixed values.
trait Words: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];
    /// Returns the value on the wire.
    fn word(self) -> &'static str;
}

macro_rules! words {
    ($($name:ident),*) => {
        $(impl Words for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        })*
    };
}

words!(Category, Complexity, MessageType, Origin, Purpose, Speaker);

/// Reads a text with fixed values.
fn word<W: Words>(field: &str, text: &str) -> Result<W, Invalid> {
    W::ALL.iter().find(|word| word.word() == text).copied().ok_or_else(|| {
        let allowed: Vec<String> = W::ALL.iter().map(|word| format!("`{}`", word.word())).collect();
        Invalid::field(field, text, format!("allowed are {}", allowed.join(", ")))
    })
}

/// Like [`word`], with a value for an absent text.
fn word_or<W: Words>(field: &str, text: &str, absent: W) -> Result<W, Invalid> {
    if text.is_empty() { Ok(absent) } else { word(field, text) }
}

/// Reads a count, which the wire allows to be negative.
fn count(field: &str, number: i32) -> Result<u32, Invalid> {
    u32::try_from(number).map_err(|_| Invalid::field(field, &number, "a number of at least 0 is allowed"))
}

/// Writes a count. The wire has 31 bits.
fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn stage(field: &str, number: i32) -> Result<Stage, Invalid> {
    use wire::WorkflowStage as Wire;
    let read = Wire::try_from(number)
        .map_err(|_| Invalid::field(field, &number, "allowed are the numbers of `WorkflowStage`"))?;
    Ok(match read {
        Wire::Clarification => Stage::Clarification,
        Wire::Negotiation => Stage::Negotiation,
        Wire::GapAnalysis => Stage::GapAnalysis,
        Wire::AlternativeGeneration => Stage::AlternativeGeneration,
        Wire::WorkflowGeneration => Stage::WorkflowGeneration,
        Wire::Debug => Stage::Debug,
        Wire::Completed => Stage::Completed,
        Wire::StageError => Stage::Error,
    })
}

fn wire_stage(stage: Stage) -> i32 {
    use wire::WorkflowStage as Wire;
    let stage = match stage {
        Stage::Clarification => Wire::Clarification,
        Stage::Negotiation => Wire::Negotiation,
        Stage::GapAnalysis => Wire::GapAnalysis,
        Stage::AlternativeGeneration => Wire::AlternativeGeneration,
        Stage::WorkflowGeneration => Wire::WorkflowGeneration,
        Stage::Debug => Wire::Debug,
        Stage::Completed => Wire::Completed,
        Stage::Error => Wire::StageError,
    };
    stage.into()
}
