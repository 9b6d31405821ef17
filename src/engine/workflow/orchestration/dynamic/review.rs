//! The judgement whether results answer the question (D-08).

use super::plan::{or_default, read};
use serde::{Deserialize, Serialize};

/// The answer of a review agent, `review`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// It alone says where the run goes on (OP-D4).
    pub is_complete: bool,
    /// What the results leave open.
    #[serde(default, deserialize_with = "or_default")]
    pub missing_aspects: Vec<String>,
    /// How that could be found out.
    #[serde(default, deserialize_with = "or_default")]
    pub suggested_approach: String,
    /// From 0 to 1, for readers.
    #[serde(default, deserialize_with = "or_default")]
    pub confidence: f64,
}

impl Review {
    /// Reads an answer; a confidence beyond its bounds is put within them.
    pub fn parse(content: &str) -> Result<Self, String> {
        let review: Self = read(content)?;
        Ok(Self { confidence: review.confidence.clamp(0.0, 1.0), ..review })
    }
}
