//! One child process: started, given one line, and killed.

use crate::error::{ErrorKind, ScriptError};
use crate::protocol::{Limits, Problem, Response, VERSION, cut};
use crate::runner::Program;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child as Process, Command};

/// The part of a child's standard error that is kept for messages.
const KEPT_ERRORS: usize = 4_096;
/// Room in a response besides the output and the printed text.
const OVERHEAD: u64 = 64 * 1024;
/// A character in JSON has at most six bytes for each of its own.
const ESCAPED: u64 = 6;

/// A child that waits for its line. Dropping it kills it and the processes that it has started.
pub(crate) struct Child {
    process: Process,
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_group();
    }
}

impl Child {
    /// Starts a program.
    pub(crate) fn start(program: &Program) -> Result<Self, ScriptError> {
        let mut command = Command::new(&program.path);
        command
            .args(&program.args)
            .env_clear()
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C in a terminal does not reach the scripts of turns that are finished first, and
            // the processes of a runner die with it.
            .process_group(0)
            .kill_on_drop(true);
        let process = command.spawn().map_err(|error| {
            let message = format!(
                "the Python runner {} cannot start: {error}; check python.runner and python.command",
                program.path.display()
            );
            ScriptError::new(ErrorKind::Unavailable, message).with_source(error)
        })?;
        Ok(Self { process })
    }

    /// The process id, until the process is reaped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// True while the process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Kills the process with the processes that it has started, and reaps it.
    pub(crate) async fn end(mut self) {
        self.kill_group();
        // It fails only if the process has ended and was reaped.
        self.process.kill().await.ok();
    }

    fn kill_group(&self) {
        // The id is that of the group, and belongs to this process until it is reaped.
        let id = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = id {
            // It fails only if the group has no processes left to kill.
            kill_process_group(group, Signal::KILL).ok();
        }
    }

    /// Writes the line and reads the response. Not to be called again. The caller limits the time.
    pub(crate) async fn call(&mut self, line: &[u8], limits: &Limits) -> Result<Response, ScriptError> {
        let (stdin, stdout, stderr) =
            (self.process.stdin.take(), self.process.stdout.take(), self.process.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(ScriptError::new(ErrorKind::Crashed, "the Python runner was already used"));
        };
        let most = limits.output_bytes + ESCAPED * limits.stdout_bytes + OVERHEAD;
        let mut errors = Vec::new();
        let mut read = Vec::new();
        {
            let write = async {
                // A child that ends before it has read everything has a reason, which its response or end shows.
                stdin.write_all(line).await.ok();
                drop(stdin);
            };
            let noise = keep(stderr, &mut errors);
            let respond = async {
                let mut stdout = BufReader::new(stdout.take(most + 1));
                stdout.read_until(b'\n', &mut read).await
            };
            tokio::pin!(write, noise, respond);
            let (mut written, mut silent) = (false, false);
            let ended = loop {
                tokio::select! {
                    biased;
                    ended = &mut respond => break ended,
                    () = &mut write, if !written => written = true,
                    () = &mut noise, if !silent => silent = true,
                }
            };
            if matches!(ended, Ok(0)) && !silent {
                noise.await;
            }
        }
        if read.is_empty() {
            let status = self.process.wait().await.map_err(|error| {
                ScriptError::new(ErrorKind::Crashed, format!("the Python runner's end is unknown: {error}"))
                    .with_source(error)
            })?;
            return Err(ended(status, &String::from_utf8_lossy(&errors)));
        }
        if u64::try_from(read.len()).is_ok_and(|length| length > most) {
            return Err(too_large(limits));
        }
        decoded(&read, limits)
    }
}

/// Reads a whole stream and keeps its beginning.
async fn keep(mut stream: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut part = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut part).await {
        let room = KEPT_ERRORS.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&part[..room]);
    }
}

fn too_large(limits: &Limits) -> ScriptError {
    let message = format!("the output has more than {} bytes; return less", limits.output_bytes);
    ScriptError::new(ErrorKind::Output, message)
}

/// Reads the response, and applies the limits that an external runner may not know.
fn decoded(line: &[u8], limits: &Limits) -> Result<Response, ScriptError> {
    let broken = |problem: &str| {
        let shown: String = String::from_utf8_lossy(line).trim_end().chars().take(100).collect();
        let message =
            format!("the Python runner has written `{}`, which is no response: {problem}", shown.escape_debug());
        ScriptError::new(ErrorKind::Crashed, message)
    };
    let mut response: Response = serde_json::from_slice(line).map_err(|error| broken(&error.to_string()))?;
    if response.v != VERSION {
        return Err(broken(&format!("`v` is not {VERSION}")));
    }
    let most = usize::try_from(limits.stdout_bytes).unwrap_or(usize::MAX);
    cut(&mut response.stdout, most);
    if !response.ok {
        let Problem { kind, name, message, line } = response.error.ok_or_else(|| broken("`error` is missing"))?;
        return Err(ScriptError { kind, name, message, line, stdout: response.stdout, source: None });
    }
    if serde_json::to_vec(&response.output).is_ok_and(|output| output.len() as u64 > limits.output_bytes) {
        return Err(ScriptError { stdout: response.stdout, ..too_large(limits) });
    }
    Ok(response)
}

/// The reason for which a child has ended without a response.
fn ended(status: ExitStatus, errors: &str) -> ScriptError {
    let signal = status.signal();
    let is = |wanted: Signal| signal == Some(wanted.as_raw());
    if is(Signal::SYS) {
        let message = "the script has tried a system call that the sandbox forbids";
        return ScriptError::new(ErrorKind::Forbidden, message);
    }
    if is(Signal::XCPU) {
        return ScriptError::new(ErrorKind::Timeout, "the script used its processor time up; compute less");
    }
    if is(Signal::ABORT) && errors.contains("memory allocation of") {
        let message = "the script needs more memory than `memory_mb` allows; keep less, or raise python.memory_mb";
        return ScriptError::new(ErrorKind::Memory, message);
    }
    let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no message");
    let last: String = last.chars().take(200).collect();
    ScriptError::new(ErrorKind::Crashed, format!("the Python runner has ended without a response ({status}): {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { wall_ms: 1, memory_bytes: 1, output_bytes: 20, stdout_bytes: 4, now_ms: 0 };

    fn code(line: &str) -> &'static str {
        decoded(line.as_bytes(), &LIMITS).unwrap_err().code()
    }

    #[test]
    fn a_response_is_checked() {
        let fine = decoded(br#"{"v":1,"ok":true,"output":[1],"stdout":"12345678"}"#, &LIMITS).unwrap();
        assert_eq!((fine.output, fine.stdout.as_str()), (serde_json::json!([1]), "1234\n[cut after 4 bytes]"));
        assert_eq!(code("hello"), "PYTHON_CRASHED");
        assert_eq!(code(r#"{"v":2,"ok":true}"#), "PYTHON_CRASHED");
        assert_eq!(code(r#"{"v":1,"ok":false}"#), "PYTHON_CRASHED");
        assert_eq!(code(r#"{"v":1,"ok":false,"error":{"kind":"forbidden"}}"#), "PYTHON_FORBIDDEN");
        assert_eq!(code(r#"{"v":1,"ok":true,"output":"01234567890123456789"}"#), "OUTPUT_TOO_LARGE");
        assert_eq!(code(r#"{"v":1,"ok":false,"error":{"kind":"odd"}}"#), "PYTHON_CRASHED");
    }

    #[test]
    fn an_end_without_a_response_is_classified() {
        let of = |raw: i32, errors: &str| ended(ExitStatus::from_raw(raw), errors).code();
        assert_eq!(of(Signal::SYS.as_raw(), ""), "PYTHON_FORBIDDEN");
        assert_eq!(of(Signal::XCPU.as_raw(), ""), "TIMEOUT");
        assert_eq!(of(Signal::ABORT.as_raw(), "memory allocation of 8 bytes failed"), "PYTHON_MEMORY");
        assert_eq!(of(Signal::ABORT.as_raw(), "overflowed its stack"), "PYTHON_CRASHED");
        assert!(ended(ExitStatus::from_raw(256), "a\nlast\n\n").to_string().ends_with("(exit status: 1): last"));
    }
}
