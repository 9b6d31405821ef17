//! Limits on what one agent or workflow may store.

use serde::{Deserialize, Serialize};

/// Limits on what one agent or workflow may store, so that no holder of a token fills the store. 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// The most stored versions of an agent or a workflow; 1,000 unless given.
    pub versions: u64,
    /// The most knowledge sources of an agent; 1,000 unless given.
    pub knowledge_sources: u64,
    /// The most MiB of an agent's knowledge; 64 unless given.
    pub knowledge_mib: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { versions: 1_000, knowledge_sources: 1_000, knowledge_mib: 64 }
    }
}
