//! Child processes of a benchmark, which never outlive it, and the resources that they use.

use anyhow::Context;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Shell script that starts a program in the background, prints its process id, and kills it when the benchmark's end
/// of the pipe closes.
const KEEPER_SCRIPT: &str =
    "log=$1; shift; \"$@\" >\"$log\" 2>&1 </dev/null & echo $!; read -r _; kill -9 $! 2>/dev/null; wait";

/// A child process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    pid: u32,
}

impl ChildProcess {
    /// Starts a program. Its output goes to the file `log`.
    pub(super) fn program(program: &Path, args: &[String], log: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", KEEPER_SCRIPT, "sh"])
            .arg(log)
            .arg(program)
            .args(args)
            // A process group of its own: Ctrl-C in the terminal reaches only the benchmark, which then stops its
            // servers.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut said)?;
        }
        let pid = said.trim().parse().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, pid })
    }

    /// Starts this binary with other arguments. The child stops when its standard input closes.
    pub(super) fn own(args: &[&str]) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find the running binary")?;
        let mut command = Command::new(&binary);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        let pid = child.id();
        Ok(Self { child, pid })
    }

    /// Closes the standard input of a child that runs this binary, and waits up to `limit` until it has stopped.
    pub(super) async fn end(mut self, limit: Duration) {
        self.child.stdin.take();
        let until = Instant::now() + limit;
        while Instant::now() < until && !matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn is_running(&self) -> bool {
        // A zombie process still has a folder in `/proc`, but no memory.
        MemoryUsage::of_process(self.pid).is_ok()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // The keeper script kills its program when its input closes. A child that runs this binary is killed directly.
        self.child.stdin.take();
        if self.pid == self.child.id() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryUsage {
    /// Current resident memory (`VmRSS`).
    pub(super) resident: u64,
    /// Peak resident memory (`VmHWM`).
    pub(super) peak: u64,
}

impl MemoryUsage {
    pub(super) fn of_process(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        let (resident, peak) = (field("VmRSS"), field("VmHWM"));
        let missing = || format!("{path} has no VmRSS; memory is measured on Linux only");
        Ok(Self { resident: resident.with_context(missing)?, peak: peak.with_context(missing)? })
    }
}

/// Processor time that a process has used so far, in user mode and in the kernel.
pub(super) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field, the name, may contain blanks. It ends with the last parenthesis of the line.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let ticks = ticks(11).zip(ticks(12)).map(|(user, kernel)| user + kernel);
    let ticks = ticks.with_context(|| format!("{path} has no utime and stime"))?;
    Ok(Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Bytes that a process has caused to be written to disk so far.
pub(super) fn written(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
    bytes.with_context(|| format!("{path} has no write_bytes"))
}
