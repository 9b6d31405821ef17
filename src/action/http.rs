//! (in the making)
#![allow(missing_docs)]
use super::ActionResult;
use crate::agent::HttpCall;
use serde_json::{Map, Value};
pub struct HttpCaller;
impl HttpCaller {
    pub async fn call(&self, _c: &HttpCall, _p: &Map<String, Value>, _i: &str) -> ActionResult {
        ActionResult::failed("")
    }
    pub async fn post(&self, _c: &HttpCall, _p: &Map<String, Value>, _b: &Value, _i: &str) -> ActionResult {
        ActionResult::failed("")
    }
}
