//! How commands reach a system: the queue and store of a cluster directly, or the gateway of a running `turnwheel dev`,
//! because only `dev` itself can open its file.

mod agents;
mod conversations;
mod knowledge;
mod letters;
mod runs;
mod workflows;

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::{basis, open};
use base::config::load::Loaded;
use base::config::secrets::masked_address;
use base::config::{Backend, Budget, Settings};
use base::tasks::Tasks;
use definitions::agent::validate::Known;
use engine::model::registry::ModelInfo;
use serde::Deserialize;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio::time::timeout;

/// How long a command waits for a cluster's servers.
const OPENING: Duration = Duration::from_secs(10);

/// After this time the command prints which servers it waits for.
const NOTICE: Duration = Duration::from_secs(1);

/// A connection to a running system.
pub enum Access {
    /// The queue and store of a cluster.
    Direct {
        /// The queue.
        queue: Arc<dyn Queue>,
        /// The store.
        store: Arc<dyn Store>,
        /// The models in the settings.
        models: Vec<ModelInfo>,
        /// The default budget of agents without one.
        budget: Budget,
        /// The names that agents may use if no worker runs.
        known: Box<Known>,
    },
    /// The gateway of `turnwheel dev`.
    Gateway(GatewayClient),
}

impl Access {
    /// Opens the cluster that the settings name; without one, the running `dev`.
    pub async fn open(loaded: &Loaded, tasks: &Tasks) -> anyhow::Result<Self> {
        let settings = &loaded.settings;
        if loaded.backend_is_explicit() && settings.backend == Backend::Cluster {
            return cluster(settings, tasks).await;
        }
        match running_dev(settings).await? {
            Some(client) => {
                eprintln!("using the dev server at {}", client.base());
                Ok(Self::Gateway(client))
            }
            None => Err(nothing_found(settings).into()),
        }
    }
}

fn direct<T>(answer: Result<T, commands::error::CommandError>) -> anyhow::Result<T> {
    answer.map_err(|reject| Failure::from(reject).into())
}

async fn cluster(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Access> {
    let (nats, mongodb) = (masked_address(&settings.nats.url), masked_address(&settings.mongodb.uri));
    let servers = format!("nats.url = {nats}, mongodb.uri = {mongodb}");
    let mut opening = pin!(open::backend(settings, tasks));
    let mut opened = timeout(NOTICE, &mut opening).await;
    if opened.is_err() {
        eprintln!("waiting up to {}s for {servers}", OPENING.as_secs());
        opened = timeout(OPENING - NOTICE, &mut opening).await;
    }
    let problem = match opened {
        Ok(Ok((queue, store))) => {
            let (models, budget) = (ModelInfo::of_settings(settings), settings.budget.clone());
            let known = Box::new(basis::here(settings).with_private(settings.http.allow_private.clone()));
            return Ok(Access::Direct { queue, store, models, budget, known });
        }
        Ok(Err(error)) => return Err(error),
        // After a stop, the opening returns the error that it has been retrying.
        Err(_) => {
            tasks.stop();
            let told = timeout(NOTICE, opening).await;
            told.ok().and_then(Result::err).map(|error| format!(" ({error})")).unwrap_or_default()
        }
    };
    let message = format!("timed out after {}s while connecting to the servers: {servers}{problem}", OPENING.as_secs());
    let hint = "start the servers, or correct the settings; `turnwheel config` shows where each setting comes from";
    Err(Failure::new(message, hint).into())
}

fn nothing_found(settings: &Settings) -> Failure {
    let message =
        format!("no dev server is running (looked in {}), and no cluster is configured", settings.data_dir.display());
    let hint = "start `turnwheel dev`, or set NATS_URL and MONGODB_URI (or `backend = \"cluster\"`)";
    Failure::new(message, hint)
}

/// The file that `turnwheel dev` writes into its `data_dir` while it runs.
#[derive(Deserialize)]
struct Marker {
    gateway: String,
}

/// The gateway of the running `dev`. A killed `dev` leaves its marker behind, so the gateway has to respond as well.
pub async fn running_dev(settings: &Settings) -> anyhow::Result<Option<GatewayClient>> {
    let Some(address) = marker(&settings.data_dir) else { return Ok(None) };
    let client = GatewayClient::new(&address, settings.gateway.tokens.first().cloned())?;
    Ok(if client.is_alive().await { Some(client) } else { None })
}

fn marker(data_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join("dev.json")).ok()?;
    serde_json::from_str::<Marker>(&text).ok().map(|marker| marker.gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(data_dir: &Path, settings: Settings) -> Loaded {
        let settings = Settings { data_dir: data_dir.to_owned(), ..settings };
        Loaded { settings, ..Settings::load(&base::config::Sources::default()).unwrap() }
    }

    #[tokio::test]
    async fn without_a_dev_server_the_error_says_what_to_start() {
        let dir = tempfile::tempdir().unwrap();
        // A marker of a dead server: no process listens on a port that was just released.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        for content in
            [None, Some("not json".to_owned()), Some(format!("{{\"gateway\":\"http://{address}\",\"pid\":1}}"))]
        {
            if let Some(content) = content {
                std::fs::write(dir.path().join("dev.json"), content).unwrap();
            }
            let opened = Access::open(&loaded(dir.path(), Settings::default()), &Tasks::new()).await;
            let lines = crate::failure::lines(&opened.err().unwrap());
            assert!(lines[1].contains("turnwheel dev") && lines[1].contains("NATS_URL"), "{lines:?}");
        }
    }
}
