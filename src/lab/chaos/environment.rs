//! The environment of a run: a temporary folder, and a watcher process that kills all processes of the run when the run
//! ends for any reason.

use super::error::ChaosError;
use super::process::ManagedProcess;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Shell script that kills a process group and removes the folder when its input closes, which happens when the run's
/// process ends.
const WATCHER_SCRIPT: &str = r#"
while read -r line; do [ "$line" = keep ] && keep=yes; done
kill -9 -"$1" 2>/dev/null && sleep 1
[ -n "$keep" ] || rm -rf "$2"
"#;

/// The environment of a run. Dropping it kills all processes.
pub(super) struct RunEnvironment {
    watcher: Child,
    /// An idle process whose process group is that of all processes of the run.
    anchor: Child,
    folder: Option<TempDir>,
    path: PathBuf,
}

impl RunEnvironment {
    pub(super) fn new() -> Result<Self, ChaosError> {
        let folder = tempfile::Builder::new()
            .prefix("turnwheel-chaos-")
            .tempdir()
            .map_err(|error| ChaosError::failed("cannot create a temporary folder", error))?;
        let path = folder.path().to_owned();
        let anchor = shell("read -r line", &[]);
        let anchor = anchor.map_err(|error| ChaosError::failed("cannot start `sh`", error))?;
        let watcher = shell(WATCHER_SCRIPT, &[&anchor.id().to_string(), &path.display().to_string()]);
        let watcher = watcher.map_err(|error| ChaosError::failed("cannot start `sh`", error))?;
        Ok(Self { watcher, anchor, folder: Some(folder), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Prepares a process that ends with the run. It writes its output to `<name>.log`.
    pub(super) fn process(&self, name: impl Into<String>, program: &Path, args: Vec<String>) -> ManagedProcess {
        let group = i32::try_from(self.anchor.id()).unwrap_or(0);
        ManagedProcess::new(name.into(), program.to_owned(), args, self.path.clone(), group)
    }

    /// Keeps the folder after the end of the run. Returns its path.
    pub(super) fn keep(&mut self) -> PathBuf {
        if let Some(folder) = self.folder.take() {
            let _ = folder.keep();
        }
        if let Some(input) = &mut self.watcher.stdin {
            // If the watcher has ended, it cannot remove the folder either.
            let _ = input.write_all(b"keep\n");
        }
        self.path.clone()
    }
}

impl Drop for RunEnvironment {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.anchor), Signal::KILL);
        let _ = self.anchor.wait();
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// Starts a shell script in a process group of its own, so that Ctrl-C in the terminal does not reach it.
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
        // A zombie process counts as ended.
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

    fn sleeper(environment: &RunEnvironment) -> ManagedProcess {
        let mut process = environment.process("sleeper", Path::new("sleep"), vec!["60".into()]);
        process.start().unwrap();
        process
    }

    #[test]
    fn processes_and_folder_end_with_the_ground() {
        let environment = RunEnvironment::new().unwrap();
        let (process, path) = (sleeper(&environment), environment.path().to_owned());
        let pid = process.pid().unwrap();
        assert!(alive(pid) && path.is_dir());
        drop(environment);
        assert!(ends(pid) && !path.exists());
    }

    #[test]
    fn they_end_as_well_when_nobody_is_left_to_drop_it() {
        let mut environment = RunEnvironment::new().unwrap();
        let (process, path) = (sleeper(&environment), environment.path().to_owned());
        let pid = process.pid().unwrap();
        // Has the same effect on the watcher as the end of this process.
        drop(environment.watcher.stdin.take());
        environment.watcher.wait().unwrap();
        assert!(ends(pid) && !path.exists());
    }

    #[test]
    fn a_folder_that_is_kept_stays() {
        let mut environment = RunEnvironment::new().unwrap();
        let path = environment.keep();
        drop(environment);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
