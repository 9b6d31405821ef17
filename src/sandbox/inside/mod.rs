//! The side of the child: limits itself, reads one line, runs or checks one script, and writes one line.

#[cfg(not(target_os = "linux"))]
#[path = "confine_other.rs"]
mod confine;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(feature = "python")]
mod look;
#[cfg(feature = "python")]
mod script;
#[cfg(feature = "python")]
mod values;

use confine::Confined;
pub(crate) use confine::{ENFORCED, FILTERS_SYSTEM_CALLS};

use crate::error::ErrorKind;
use crate::protocol::{Problem, RUNNER_COMMAND, Request, Response};
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// True if this build has the built-in Python.
pub(crate) const IS_BUILT_IN: bool = cfg!(feature = "python");

/// Whether this process's `main` has called [`serve_if_asked`], so that its executable can be the runner.
static SERVES: AtomicBool = AtomicBool::new(false);

/// True if the running executable serves scripts.
pub(crate) fn serves() -> bool {
    SERVES.load(Ordering::Acquire)
}

/// Serves one script and exits, if the first argument of the process is [`RUNNER_COMMAND`]; otherwise returns. A program
/// that embeds the engine calls it first in its `main`, before it starts threads.
pub fn serve_if_asked() {
    SERVES.store(true, Ordering::Release);
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == RUNNER_COMMAND) {
        let code = serve(args);
        std::process::exit(code);
    }
}

/// Returns the exit status.
fn serve(mut args: impl Iterator<Item = OsString>) -> i32 {
    let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
    let (memory, seconds) = (number(), number());
    #[cfg(feature = "python")]
    script::prepare();
    let confined = match (memory, seconds) {
        (Some(memory), Some(seconds)) => confine::confine(memory, seconds),
        _ => Err(format!("usage: {RUNNER_COMMAND} MEMORY_BYTES CPU_SECONDS")),
    };
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        // The worker has ended, or needs no further child.
        return 0;
    }
    let response = match confined {
        Ok(confined) => responded(&line, &confined),
        Err(problem) => {
            let message = format!("the sandbox cannot limit itself here: {problem}; set python.runner to `command`");
            Response::failed(Problem::new(ErrorKind::Unavailable, message), String::new())
        }
    };
    let mut stdout = std::io::stdout().lock();
    // Serialising plain data cannot fail. A failed write means that the worker has gone.
    let written = serde_json::to_vec(&response).is_ok_and(|mut line| {
        line.push(b'\n');
        stdout.write_all(&line).and_then(|()| stdout.flush()).is_ok()
    });
    i32::from(!written)
}

fn responded(line: &str, confined: &Confined) -> Response {
    match serde_json::from_str::<Request>(line) {
        Ok(request) => {
            confined.lower_memory(request.limits.memory_bytes);
            respond(request)
        }
        Err(error) => {
            let message = format!("the request cannot be read: {error}");
            Response::failed(Problem::new(ErrorKind::Unavailable, message), String::new())
        }
    }
}

#[cfg(feature = "python")]
fn respond(request: Request) -> Response {
    match request.op {
        crate::protocol::Operation::Run => script::run(request),
        crate::protocol::Operation::Check => match script::check(&request.code) {
            Ok(()) => Response::ok(serde_json::json!({ "warnings": look::warnings(&request.code) }), String::new()),
            Err(problem) => Response::failed(problem, String::new()),
        },
    }
}

#[cfg(not(feature = "python"))]
fn respond(_: Request) -> Response {
    let message = "this build has no built-in Python; build it with the feature `python`";
    Response::failed(Problem::new(ErrorKind::Unavailable, message), String::new())
}
