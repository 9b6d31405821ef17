//! The answer of the review agent: whether the results answer the request.

use super::plan::{or_default, read};
use serde::{Deserialize, Serialize};

/// Answer of the review agent, with the schema `review`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// True if the results answer the request. Only this field decides how the run continues.
    pub is_complete: bool,
    /// Questions that the results leave open.
    #[serde(default, deserialize_with = "or_default")]
    pub missing_aspects: Vec<String>,
    /// How to answer them.
    #[serde(default, deserialize_with = "or_default")]
    pub suggested_approach: String,
    /// Confidence of the judgement from 0 to 1, for information only.
    #[serde(default, deserialize_with = "or_default")]
    pub confidence: f64,
}

impl Review {
    /// Parses an answer, and clamps its confidence to 0 to 1. The error is a text for the model.
    pub fn parse(content: &str) -> Result<Self, String> {
        let review: Self = read(content)?;
        Ok(Self { confidence: review.confidence.clamp(0.0, 1.0), ..review })
    }
}
