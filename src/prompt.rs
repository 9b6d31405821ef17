//! (in the making)
#![allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct PromptError;
pub struct Prompts;
impl Prompts {
    pub fn render(&self, _n: &str, _c: &impl serde::Serialize) -> Result<String, PromptError> {
        Err(PromptError)
    }
}
