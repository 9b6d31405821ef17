//! Runs the real binary as a process that tests can kill.

use base::config::{Backend, Settings};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running `turnwheel`. Dropping it kills the process.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `turnwheel <args>` with these settings, written to a file in `dir`.
    pub fn start(dir: &Path, settings: &Settings, args: &[&str]) -> Self {
        Self::start_with(dir, settings, args, &[])
    }

    /// Like [`Process::start`], with additional environment variables.
    pub fn start_with(dir: &Path, settings: &Settings, args: &[&str], env: &[(&str, &str)]) -> Self {
        let config = dir.join("turnwheel.toml");
        let content = toml(settings);
        // A process that has just been started may be reading the file.
        if std::fs::read_to_string(&config).ok().as_ref() != Some(&content) {
            std::fs::write(&config, content).unwrap();
        }
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_turnwheel"))
            .arg("--config")
            .arg(&config)
            .args(args)
            .current_dir(dir)
            .env_remove("RUST_LOG")
            .env_remove("NATS_URL")
            .env_remove("MONGODB_URI")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Starts a command as a process.
    pub fn of(command: &mut Command) -> Self {
        Self { child: command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap() }
    }

    /// Output of the processes in `dir` so far.
    pub fn log(dir: &Path) -> String {
        std::fs::read_to_string(dir.join("log")).unwrap_or_default()
    }

    /// Sends a signal by its name, such as `TERM` or `STOP`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success(), "SIG{name}");
    }

    /// The exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The settings that tests change, as TOML.
pub fn toml(settings: &Settings) -> String {
    let model = settings.models.get("default").map_or(String::new(), |model| {
        format!(
            "[models.default]\nprovider = \"openai\"\nbase_url = \"{}\"\nmodel = \"{}\"\n",
            model.base_url, model.model
        )
    });
    let backend = match settings.backend {
        Backend::Cluster => "cluster",
        Backend::Embedded => "embedded",
    };
    format!(
        "backend = \"{backend}\"\n\
         namespace = \"{}\"\n\
         [nats]\nurl = \"{}\"\nreplicas = {}\n\
         [mongodb]\nuri = \"{}\"\ndatabase = \"{}\"\n\
         [lane]\nmax_depth = {}\n\
         [streams]\njobs_max_mib = {}\nout_max_mib = {}\ndead_max_mib = {}\n\
         [worker]\nack_wait = \"2s\"\nmax_attempts = {}\n\
         [retention]\nclosed_sessions = \"{}ms\"\n\
         [gateway]\nlisten = \"{}\"\n\
         [http]\nallow_private = [\"*\"]\n\
         {model}",
        settings.namespace,
        settings.nats.url,
        settings.nats.replicas,
        settings.mongodb.uri,
        settings.mongodb.database,
        settings.lane.max_depth,
        settings.streams.jobs_max_mib,
        settings.streams.out_max_mib,
        settings.streams.dead_max_mib,
        settings.worker.max_attempts,
        settings.retention.closed_sessions.0.as_millis(),
        settings.gateway.listen,
    )
}
