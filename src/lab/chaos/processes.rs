//! The Turnwheel processes of a run: workers, schedulers and a gateway, with their own settings file.

use super::Options;
use super::environment::RunEnvironment;
use super::error::{self, ChaosError};
use super::process::ManagedProcess;
use crate::port::free_port;
use base::config::Settings;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use types::duration::Text;

/// A process behind a lock, so that only one part of the run acts on it at a time.
pub(super) type SharedProcess = Arc<Mutex<ManagedProcess>>;

/// One scheduler leads, the other stands by.
const SCHEDULERS: usize = 2;
/// Time limit for the gateway to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The Turnwheel processes of a run.
pub(super) struct Processes {
    pub(super) workers: Vec<SharedProcess>,
    pub(super) schedulers: Vec<SharedProcess>,
    pub(super) gateway: SharedProcess,
    pub(super) gateway_url: String,
}

/// Settings of the processes: `worker` and `lane` from `base`, and the servers of the run.
pub(super) fn settings(base: &Settings, nats: &str, replicas: usize, mongodb: &str) -> Result<Settings, ChaosError> {
    let mut settings = Settings { worker: base.worker.clone(), lane: base.lane.clone(), ..Settings::default() };
    settings.nats.url = nats.to_owned();
    settings.nats.replicas = replicas;
    settings.mongodb.uri = mongodb.to_owned();
    settings.gateway.listen = ([127, 0, 0, 1], free_port()?).into();
    Ok(settings)
}

impl Processes {
    /// Starts all processes. On return the gateway is ready.
    pub(super) async fn start(
        environment: &RunEnvironment,
        options: &Options,
        settings: &Settings,
        model: &str,
    ) -> Result<Self, ChaosError> {
        let (program, log) = (&options.turnwheel, &options.log);
        let config = environment.path().join("turnwheel.toml");
        std::fs::write(&config, toml(settings, model)).map_err(error::file(&config))?;
        let start = |name: String, role: &str| {
            let mut args = vec!["--config".to_owned(), config.display().to_string(), role.to_owned()];
            args.extend(log.iter().flat_map(|log| ["--log".to_owned(), (*log).to_owned()]));
            let mut process = environment.process(name, program, args);
            process.start().map(|()| Arc::new(Mutex::new(process)))
        };
        let processes = Self {
            workers: (1..=options.workers).map(|n| start(format!("worker-{n}"), "worker")).collect::<Result<_, _>>()?,
            schedulers: (1..=SCHEDULERS)
                .map(|n| start(format!("scheduler-{n}"), "scheduler"))
                .collect::<Result<_, _>>()?,
            gateway: start("gateway".to_owned(), "gateway")?,
            gateway_url: format!("http://{}", settings.gateway.listen),
        };
        processes.is_ready().await?;
        Ok(processes)
    }

    async fn is_ready(&self) -> Result<(), ChaosError> {
        let client = base::http_client::builder().no_proxy().timeout(Duration::from_secs(5)).build();
        let client = client.map_err(|error| ChaosError::failed("cannot create an HTTP client", error))?;
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let answer = client.get(format!("{}/readyz", self.gateway_url)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            let mut gateway = self.gateway.lock().await;
            if let Some(end) = gateway.ended() {
                return Err(gateway.failure(end));
            }
            if Instant::now() > deadline {
                return Err(gateway.failure(format!("not ready after {} s", READY_TIMEOUT.as_secs())));
            }
            drop(gateway);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// All processes.
    pub(super) fn all(&self) -> impl Iterator<Item = &SharedProcess> {
        self.workers.iter().chain(&self.schedulers).chain([&self.gateway])
    }
}

fn toml(settings: &Settings, model: &str) -> String {
    let duration = |text: &Text| types::duration::format(text.0);
    let worker = &settings.worker;
    format!(
        "[nats]\nurl = {:?}\nreplicas = {}\n\
         [mongodb]\nuri = {:?}\n\
         [worker]\nconcurrency = {}\nack_wait = {:?}\nmax_attempts = {}\ndrain_timeout = {:?}\n\
         [lane]\nmax_depth = {}\n\
         [gateway]\nlisten = \"{}\"\n\
         [http]\nallow_private = [\"127.0.0.1\"]\n\
         [models.default]\nprovider = \"openai\"\nbase_url = {model:?}\nmodel = \"chaos\"\n",
        settings.nats.url,
        settings.nats.replicas,
        settings.mongodb.uri,
        worker.concurrency,
        duration(&worker.ack_wait),
        worker.max_attempts,
        duration(&worker.drain_timeout),
        settings.lane.max_depth,
        settings.gateway.listen,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::Sources;

    #[test]
    fn the_processes_read_the_settings_as_they_were_meant() {
        let mut base = Settings::default();
        base.worker.ack_wait = Text(Duration::from_millis(2_500));
        base.worker.max_attempts = 3;
        let meant = settings(
            &base,
            "nats://127.0.0.1:1,nats://127.0.0.1:5",
            3,
            "mongodb://127.0.0.1:2,127.0.0.1:3/?replicaSet=chaos",
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("turnwheel.toml");
        std::fs::write(&file, toml(&meant, "http://127.0.0.1:4/v1")).unwrap();
        let read = Settings::load(&Sources { file: Some(file), ..Sources::default() }).unwrap().settings;
        assert_eq!((&read.worker, &read.lane), (&base.worker, &base.lane));
        assert_eq!((&read.nats, &read.mongodb, &read.gateway), (&meant.nats, &meant.mongodb, &meant.gateway));
        assert_eq!(read.models["default"].base_url, "http://127.0.0.1:4/v1");
    }
}
