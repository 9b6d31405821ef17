//! (in the making)
#![allow(missing_docs)]
use super::{Model, ModelError};
pub struct Models;
impl Models {
    pub fn get(&self, n: &str) -> Result<std::sync::Arc<dyn Model>, ModelError> {
        Err(ModelError::Unknown(n.into()))
    }
}
