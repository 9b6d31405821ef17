//! Asking whoever the run is for.

use super::failure::Failure;
use super::part::Part;

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer; the run goes on.
    Answer(String),
    /// Nobody is there to answer: the question is all that the run can say.
    Nobody,
}

impl Part {
    /// Asks `question`, for the run of this part.
    pub async fn ask(&self, _question: &str) -> Result<Asked, Failure> {
        Ok(Asked::Nobody)
    }
}
