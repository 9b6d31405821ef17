//! The nodes of a level that are done, for nodes that run concurrently.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The outputs of the nodes of a level that are done. Unlike those in a [`Sight`](super::values::Sight), they change while
/// a node runs.
#[derive(Default)]
pub(super) struct DoneNodes {
    outputs: Mutex<HashMap<String, Arc<Value>>>,
    /// Those of the level around the LOOP.
    outer: Option<Arc<DoneNodes>>,
}

impl DoneNodes {
    /// The nodes of a level within another one.
    pub(super) fn within(outer: Option<Arc<Self>>) -> Self {
        Self { outputs: Mutex::default(), outer }
    }

    pub(super) fn add(&self, id: &str, output: Arc<Value>) {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), output);
    }

    /// The output of a node that is done, also of one around the LOOP.
    pub(super) fn output(&self, id: &str) -> Option<Arc<Value>> {
        let own = self.outputs.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        own.or_else(|| self.outer.as_ref()?.output(id))
    }
}
