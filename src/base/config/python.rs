//! Settings of the scripts of PYTHON nodes.

use serde::{Deserialize, Serialize};
use types::duration::Text;
/// The program that runs the scripts of PYTHON nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PythonRunner {
    /// The Python in this program.
    #[default]
    Builtin,
    /// The command in `python.command`.
    Command,
    /// None: scripts fail.
    Off,
}

/// Scripts of PYTHON nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Python {
    /// The program that runs scripts; `builtin` unless given.
    pub runner: PythonRunner,
    /// Program and arguments of the runner `command`.
    pub command: Vec<String>,
    /// The longest time of a script, at most 300 s; 300 s unless given.
    pub timeout: Text,
    /// The memory of a script in MiB; 256 unless given.
    pub memory_mb: u64,
    /// The most scripts that run concurrently in one process; 0, which is the number of processor cores, unless given.
    pub concurrency: usize,
    /// How many runners wait for the next script, once one has run; 2 unless given.
    pub warm: usize,
}

impl Default for Python {
    fn default() -> Self {
        Self {
            runner: PythonRunner::Builtin,
            command: Vec::new(),
            timeout: Text(std::time::Duration::from_secs(300)),
            memory_mb: 256,
            concurrency: 0,
            warm: 2,
        }
    }
}
