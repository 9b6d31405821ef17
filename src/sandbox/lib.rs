//! The sandbox: runs Python scripts in child processes that reach nothing. It knows no workflow.
//!
//! - [`Sandbox`] runs and checks scripts. A script is the body of a function: its inputs are variables, and a `return`
//!   outside of functions ends it with its output.
//! - [`protocol`] has the line that a child reads and the line that it writes. `runner` decides which program that is:
//!   this one, another one given by the embedder, or the command of the settings.
//! - `child` starts, feeds and kills one process; `pool` keeps started ones waiting and limits how many work.
//!   [`error`] has the reasons for which a script fails.
//! - `inside` is the other side: [`serve_if_asked`] turns the process into a child that limits itself (`confine`), runs
//!   one script (`script`, `values`) or checks one (`look`), and exits.

mod child;
pub mod error;
mod inside;
mod pool;
pub mod protocol;
mod runner;

pub use error::{ErrorKind, ScriptError};
pub use inside::serve_if_asked;
pub use protocol::RUNNER_COMMAND;
pub use runner::Enforced;

use base::config::{Environment, Python};
use base::tasks::Tasks;
use moka::sync::Cache;
use pool::Pool;
use protocol::{Limits, Operation, Request, VERSION, Warning};
use runner::Runner;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::timestamp::Timestamp;

/// The largest output of a script, in bytes of compact JSON.
pub const MAX_OUTPUT_BYTES: u64 = 1_048_576;
/// The most bytes that a script may print. Further ones are dropped, and the text ends with a remark.
pub const MAX_STDOUT_BYTES: u64 = 64 * 1024;
/// How long the check of a script may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The scripts whose findings are kept, so that a plan that is judged again starts no processes.
const CHECKED_SCRIPTS: u64 = 1_000;

/// A script to run.
#[derive(Clone, Debug)]
pub struct Script {
    /// The code: the body of a function.
    pub code: String,
    /// The variables by name. Names are identifiers.
    pub inputs: Map<String, Value>,
    /// The longest time; the setting `python.timeout` if `None` or longer than it.
    pub timeout: Option<Duration>,
    /// The most memory in MiB; the setting `python.memory_mb` if `None` or more than it. An external runner may ignore it.
    pub memory_mb: Option<u64>,
    /// The time that `datetime.now()` returns in the built-in Python, so that a repeated script has the same output.
    pub started_at: Timestamp,
}

/// The end of a script without an error.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptEnd {
    /// The value that the script has returned; null without a `return`.
    pub output: Value,
    /// The printed text, at most [`MAX_STDOUT_BYTES`] and a remark.
    pub stdout: String,
    /// The time in the child process, in milliseconds.
    pub ms: u64,
}

/// The findings about a script that compiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Probable mistakes, such as a module that the runner does not have.
    pub warnings: Vec<Warning>,
}

/// Runs scripts in child processes. Dropping it kills the children that wait for a script.
pub struct Sandbox {
    pool: Arc<Pool>,
    timeout: Duration,
    memory_bytes: u64,
    checked: Cache<String, Result<Checked, ScriptError>>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// A sandbox with these settings. Starts no process before the first script.
    ///
    /// `program` is an executable that serves scripts when it is called with [`RUNNER_COMMAND`]. Without it, the
    /// sandbox uses the running executable, if that has called [`serve_if_asked`]. `tasks` holds short tasks that start
    /// and end children.
    pub fn new(settings: &Python, program: Option<PathBuf>, env: &Environment, tasks: Tasks) -> Self {
        let runner = Runner::new(settings, program, env);
        let concurrency = match settings.concurrency {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            concurrency => concurrency,
        };
        Self {
            pool: Arc::new(Pool::new(runner, concurrency, settings.warm, tasks)),
            timeout: settings.timeout.0,
            memory_bytes: settings.memory_mb * 1024 * 1024,
            checked: Cache::new(CHECKED_SCRIPTS),
        }
    }

    /// A sandbox that runs nothing, as with `python.runner = "off"`.
    pub fn off() -> Self {
        let settings = Python { runner: base::config::PythonRunner::Off, ..Python::default() };
        Self::new(&settings, None, &Environment::default(), Tasks::new())
    }

    /// Runs a script. Waits while `python.concurrency` scripts run. Dropping the future kills the child process.
    pub async fn run(&self, script: Script) -> Result<ScriptEnd, ScriptError> {
        let Script { code, inputs, timeout, memory_mb, started_at } = script;
        let timeout = timeout.unwrap_or(self.timeout).min(self.timeout);
        let mut request = self.request(Operation::Run, code, inputs, timeout, started_at);
        if let Some(memory_mb) = memory_mb {
            request.limits.memory_bytes = self.memory_bytes.min(memory_mb.saturating_mul(1024 * 1024));
        }
        let began = Instant::now();
        let response = self.pool.call(&request, timeout).await?;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(ScriptEnd { output: response.output, stdout: response.stdout, ms })
    }

    /// Compiles a script without running it. The error has the line and the remedy. Dropping the future kills the child
    /// process.
    pub async fn check(&self, code: &str) -> Result<Checked, ScriptError> {
        if let Some(known) = self.checked.get(code) {
            return known;
        }
        let request =
            self.request(Operation::Check, code.to_owned(), Map::new(), CHECK_TIMEOUT, Timestamp::from_millis(0));
        let found =
            self.pool.call(&request, CHECK_TIMEOUT).await.map(|response| Checked::from_output(&response.output));
        // Only verdicts on the code are kept. A failed process says nothing about the code.
        if found.as_ref().err().is_none_or(|error| matches!(error.kind, ErrorKind::Syntax | ErrorKind::Unsupported)) {
            self.checked.insert(code.to_owned(), found.clone());
        }
        found
    }

    /// The process ids of the children that wait for a script, for measurements.
    pub fn waiting(&self) -> Vec<u32> {
        self.pool.waiting_pids()
    }

    /// The limits that the system enforces on this machine.
    pub fn enforced(&self) -> Enforced {
        self.pool.runner().enforced()
    }

    fn request(
        &self,
        op: Operation,
        code: String,
        inputs: Map<String, Value>,
        timeout: Duration,
        now: Timestamp,
    ) -> Request {
        let limits = Limits {
            wall_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: self.memory_bytes,
            output_bytes: MAX_OUTPUT_BYTES,
            stdout_bytes: MAX_STDOUT_BYTES,
            now_ms: now.as_millis(),
        };
        Request { v: VERSION, op, code, inputs, limits }
    }
}

impl Checked {
    /// The warnings in the output of a check. A runner need not have any.
    fn from_output(output: &Value) -> Self {
        let warnings = output.get("warnings").cloned();
        Self { warnings: warnings.and_then(|warnings| serde_json::from_value(warnings).ok()).unwrap_or_default() }
    }
}
