//! The ground that a run stands on: a temporary folder, and a guard that ends all processes when the run ends, however it
//! ends.

use super::error::ChaosError;
use super::process::Process;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Ends the group and removes the folder when its input ends, which is when the process that holds the other end is gone.
const WATCH: &str = r#"
while read -r line; do [ "$line" = keep ] && keep=yes; done
kill -9 -"$1" 2>/dev/null && sleep 1
[ -n "$keep" ] || rm -rf "$2"
"#;

/// See the module. All processes end when it is dropped.
pub(super) struct Ground {
    watcher: Child,
    /// Its group is that of all processes of the run; it does nothing.
    anchor: Child,
    folder: Option<TempDir>,
    path: PathBuf,
}

impl Ground {
    pub(super) fn new() -> Result<Self, ChaosError> {
        let folder = tempfile::Builder::new()
            .prefix("turnwheel-chaos-")
            .tempdir()
            .map_err(|error| ChaosError::failed("cannot make a temporary folder", error))?;
        let path = folder.path().to_owned();
        let anchor = shell("read -r line", &[]);
        let anchor = anchor.map_err(|error| ChaosError::failed("cannot start `sh`", error))?;
        let watcher = shell(WATCH, &[&anchor.id().to_string(), &path.display().to_string()]);
        let watcher = watcher.map_err(|error| ChaosError::failed("cannot start `sh`", error))?;
        Ok(Self { watcher, anchor, folder: Some(folder), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A process that ends with the run. It writes to `<name>.log`.
    pub(super) fn process(&self, name: impl Into<String>, program: &Path, args: Vec<String>) -> Process {
        let group = i32::try_from(self.anchor.id()).unwrap_or(0);
        Process::new(name.into(), program.to_owned(), args, self.path.clone(), group)
    }

    /// Leaves the folder where it is. Answers where.
    pub(super) fn keep(&mut self) -> PathBuf {
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
        if let Some(input) = &mut self.watcher.stdin {
            // A watcher that is gone removes nothing.
            let _ = input.write_all(b"keep\n");
        }
        self.path.clone()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.anchor), Signal::KILL);
        let _ = self.anchor.wait();
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// A shell in a group of its own, so that a Ctrl-C in the terminal does not reach it.
fn shell(script: &str, args: &[&str]) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", script, "sh"])
        .args(args)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn alive(pid: u32) -> bool {
        // A process that is only waiting for its parent counts as ended.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    fn ends(pid: u32) -> bool {
        let begun = Instant::now();
        while alive(pid) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        !alive(pid)
    }

    fn sleeper(ground: &Ground) -> Process {
        let mut process = ground.process("sleeper", Path::new("sleep"), vec!["60".into()]);
        process.start().unwrap();
        process
    }

    #[test]
    fn processes_and_folder_end_with_the_ground() {
        let ground = Ground::new().unwrap();
        let (process, path) = (sleeper(&ground), ground.path().to_owned());
        let pid = process.pid().unwrap();
        assert!(alive(pid) && path.is_dir());
        drop(ground);
        assert!(ends(pid) && !path.exists());
    }

    #[test]
    fn they_end_as_well_when_nobody_is_left_to_drop_it() {
        let mut ground = Ground::new().unwrap();
        let (process, path) = (sleeper(&ground), ground.path().to_owned());
        let pid = process.pid().unwrap();
        // What the end of this process would do.
        drop(ground.watcher.stdin.take());
        ground.watcher.wait().unwrap();
        assert!(ends(pid) && !path.exists());
    }

    #[test]
    fn a_folder_that_is_kept_stays() {
        let mut ground = Ground::new().unwrap();
        let path = ground.keep();
        drop(ground);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
