//! The limits on payloads and plans. `docs/decisions.md` lists them for authors.

/// The largest payload, in bytes of compact JSON.
pub const MAX_PAYLOAD_BYTES: usize = 1_048_576;

/// The most nodes of a plan. The nodes in the bodies of loops count.
pub const MAX_NODES: usize = 50;

/// The most edges of a plan. The edges in the bodies of loops count.
pub const MAX_EDGES: usize = 200;

/// The largest script of a PYTHON node, in bytes.
pub const MAX_CODE_BYTES: usize = 64 * 1024;

/// The longest attempt of a node, in seconds.
pub const MAX_SECONDS: f64 = 300.0;

/// The longest condition, in bytes.
pub const MAX_CONDITION_BYTES: usize = 2_000;

/// The most characters of a node id.
pub const MAX_ID_CHARS: usize = 64;

/// The most decisions of one answer.
pub const MAX_DECISIONS: usize = 8;

/// The most errors, and the most warnings, of one verdict. Further ones are counted.
pub const MAX_FINDINGS: usize = 50;

/// The largest payload that an event has in it, in bytes of compact JSON.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;
