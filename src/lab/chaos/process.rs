//! One process of a run: starts, kills, pauses and restarts it.

use super::error::ChaosError;
use base::error::SharedError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time limit for a process to listen on its port.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of log lines in an error.
const LOG_LINES: usize = 12;

/// A process of the run. Dropping it kills the process.
pub(super) struct ManagedProcess {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    folder: PathBuf,
    group: i32,
    child: Option<Child>,
}

impl ManagedProcess {
    pub(super) fn new(name: String, program: PathBuf, args: Vec<String>, folder: PathBuf, group: i32) -> Self {
        Self { name, program, args, folder, group, child: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts or restarts the process. Its environment contains only `PATH` and `NO_COLOR`.
    pub(super) fn start(&mut self) -> Result<(), ChaosError> {
        let problem = |error: std::io::Error| self.failure(error);
        let log = File::options().create(true).append(true).open(self.log()).map_err(problem)?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .current_dir(&self.folder)
            .process_group(self.group)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(problem)?)
            .stderr(log)
            .spawn()
            .map_err(problem)?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the process listens on `port`.
    pub(super) async fn listens(&mut self, port: u16) -> Result<(), ChaosError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if let Some(end) = self.ended() {
                return Err(self.failure(end));
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("nothing listens on port {port} after {} s", START_TIMEOUT.as_secs())));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns how the process ended, if it ended unexpectedly.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!("it exited unexpectedly with {status}"))
    }

    /// Sends SIGKILL. On return the process has ended.
    pub(super) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            while matches!(child.try_wait(), Ok(None)) {
                sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Sends SIGTERM, and SIGKILL after `limit`. On return the process has ended.
    pub(super) async fn terminate(&mut self, limit: Duration) {
        self.signal(Signal::TERM);
        let gone = async {
            while let Some(child) = &mut self.child
                && matches!(child.try_wait(), Ok(None))
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(limit, gone).await;
        self.kill().await;
    }

    /// Sends SIGSTOP.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the process, or starts it if it does not run.
    pub(super) fn go_on(&mut self) -> Result<(), ChaosError> {
        match self.child {
            Some(_) => self.resume(),
            None => self.start()?,
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // Sending fails only if the process has ended, and then no signal is needed.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    pub(super) fn failure(&self, source: impl Into<SharedError>) -> ChaosError {
        ChaosError::Start { name: self.name.clone(), source: source.into(), log: tail(&self.log()) }
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
