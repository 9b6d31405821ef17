//! How commands reach a system: always through a gateway. For a cluster this process serves one itself, on a loopback
//! port and behind a random token. Without a cluster it is the gateway of the running `turnwheel dev`, because only
//! `dev` itself can open its file.

use crate::client::GatewayClient;
use crate::failure::Failure;
use crate::known_names;
use anyhow::Context;
use base::config::load::LoadedSettings;
use base::config::secrets::masked_address;
use base::config::{Backend, Gateway, Settings};
use base::tasks::{OnPanic, Tasks};
use gateway::GatewayState;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tracing::warn;
use turnwheel::Opened;
use uuid::Uuid;

/// Remedy where neither a dev server nor a cluster is found.
pub const NO_SYSTEM_HINT: &str = "start `turnwheel dev`, or set NATS_URL and MONGODB_URI (or `backend = \"cluster\"`)";

/// How long a command waits for a cluster's servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// After this time the command prints which servers it waits for.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

/// Connects to the cluster that the settings name; without one, to the running `dev`.
pub async fn connect(loaded: &LoadedSettings, tasks: &Tasks) -> anyhow::Result<GatewayClient> {
    let settings = &loaded.settings;
    if is_cluster(loaded) {
        let opened = cluster(settings, tasks).await?;
        return serve(settings, opened, tasks).await;
    }
    match running_dev(loaded).await? {
        Some(client) => {
            eprintln!("using the dev server at {}", client.base());
            Ok(client)
        }
        None => Err(nothing_found(settings).into()),
    }
}

/// Connects to the gateway to talk through: the one at `url`, else the running `dev`, else that of `gateway.listen`, else
/// one of this process on the cluster.
pub async fn to_talk(loaded: &LoadedSettings, url: Option<&str>, tasks: &Tasks) -> anyhow::Result<GatewayClient> {
    let settings = &loaded.settings;
    let token = settings.gateway.own_token(&loaded.env);
    if let Some(url) = url {
        return GatewayClient::new(url, token);
    }
    if let Some(client) = running_dev(loaded).await? {
        return Ok(client);
    }
    let client = GatewayClient::new(&format!("http://{}", settings.gateway.listen), token)?;
    if client.is_alive().await {
        return Ok(client);
    }
    if is_cluster(loaded) {
        return connect(loaded, tasks).await;
    }
    let hint = "start `turnwheel dev` (or `turnwheel gateway`), or give the address of a gateway with --url";
    Err(Failure::new(format!("no gateway responds at {}", client.base()), hint).into())
}

/// True if the settings name a cluster.
pub fn is_cluster(loaded: &LoadedSettings) -> bool {
    loaded.backend_is_explicit() && loaded.settings.backend == Backend::Cluster
}

/// Serves a gateway on the cluster's queue and store for this process alone, until `tasks` stop.
async fn serve(settings: &Settings, (queue, store): Opened, tasks: &Tasks) -> anyhow::Result<GatewayClient> {
    let token = Uuid::new_v4().to_string();
    let mut own = settings.clone();
    own.gateway = Gateway { tokens: vec![token.clone()], access: Vec::new(), cors: Vec::new(), ..own.gateway };
    let known = known_names::local_names(settings).with_private(settings.http.allow_private.clone());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on a loopback port")?;
    let address = listener.local_addr()?;
    let state = GatewayState::new(queue, store, Arc::new(own)).with_known(known).for_command_line();
    let stop = tasks.stop_token();
    tasks.spawn("gateway", OnPanic::Log, async move {
        if let Err(error) = gateway::serve(listener, state, stop).await {
            warn!("the gateway of this command has failed: {error}");
        }
    });
    Ok(GatewayClient::new(&format!("http://{address}"), Some(token))?.of_own_gateway())
}

/// Opens the queue and the store of a cluster, within a time limit.
pub async fn cluster(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Opened> {
    let (nats, mongodb) = (masked_address(&settings.nats.url), masked_address(&settings.mongodb.uri));
    let servers = format!("nats.url = {nats}, mongodb.uri = {mongodb}");
    let mut opening = pin!(turnwheel::open(settings, tasks));
    let mut opened = timeout(NOTICE_DELAY, &mut opening).await;
    if opened.is_err() {
        eprintln!("waiting up to {}s for {servers}", CONNECT_TIMEOUT.as_secs());
        opened = timeout(CONNECT_TIMEOUT - NOTICE_DELAY, &mut opening).await;
    }
    let problem = match opened {
        Ok(opened) => return Ok(opened?),
        // After a stop, the opening returns the error that it has been retrying.
        Err(_) => {
            tasks.stop();
            let ended = timeout(NOTICE_DELAY, opening).await;
            ended.ok().and_then(Result::err).map(|error| format!(" ({error})")).unwrap_or_default()
        }
    };
    let message =
        format!("timed out after {}s while connecting to the servers: {servers}{problem}", CONNECT_TIMEOUT.as_secs());
    let hint = "start the servers, or correct the settings; `turnwheel config` shows where each setting comes from";
    Err(Failure::new(message, hint).into())
}

fn nothing_found(settings: &Settings) -> Failure {
    let message =
        format!("no dev server is running (looked in {}), and no cluster is configured", settings.data_dir.display());
    Failure::new(message, NO_SYSTEM_HINT)
}

/// The file that `turnwheel dev` writes into its `data_dir` while it runs.
#[derive(Deserialize)]
struct DevServerInfo {
    gateway: String,
}

/// The gateway of the running `dev`. A killed `dev` leaves its marker behind, so the gateway has to respond as well.
pub async fn running_dev(loaded: &LoadedSettings) -> anyhow::Result<Option<GatewayClient>> {
    let settings = &loaded.settings;
    let Some(address) = marker(&settings.data_dir) else { return Ok(None) };
    let client = GatewayClient::new(&address, settings.gateway.own_token(&loaded.env))?;
    Ok(if client.is_alive().await { Some(client) } else { None })
}

fn marker(data_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join("dev.json")).ok()?;
    serde_json::from_str::<DevServerInfo>(&text).ok().map(|marker| marker.gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(data_dir: &Path, settings: Settings) -> LoadedSettings {
        let settings = Settings { data_dir: data_dir.to_owned(), ..settings };
        LoadedSettings { settings, ..Settings::load(&base::config::Sources::default()).unwrap() }
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
            let opened = connect(&loaded(dir.path(), Settings::default()), &Tasks::new()).await;
            let lines = crate::failure::lines(&opened.err().unwrap());
            assert!(lines[1].contains("turnwheel dev") && lines[1].contains("NATS_URL"), "{lines:?}");
        }
    }

    #[tokio::test]
    async fn the_command_s_own_gateway_serves_no_one_else() {
        let dir = tempfile::tempdir().unwrap();
        let (backend, data_dir) = (Backend::Embedded, dir.path().to_owned());
        let mut settings = Settings { backend, data_dir, ..Settings::default() };
        settings.gateway.tokens = vec!["of-the-settings".into()];
        let tasks = Tasks::new();
        let opened = turnwheel::open(&settings, &tasks).await.unwrap();
        let client = serve(&settings, opened, &tasks).await.unwrap();
        assert!(client.agents().await.unwrap().is_empty(), "the command itself is served");
        let http = base::http_client::builder().no_proxy().build().unwrap();
        for path in ["/api/v1/agents", "/api/v1/sessions/s1", "/metrics", "/openapi.json", "/nowhere"] {
            let url = format!("{}{path}", client.base());
            assert_eq!(http.get(&url).send().await.unwrap().status(), 401, "{path}");
            // The token is random: that of the settings does not count.
            let known = http.get(&url).bearer_auth("of-the-settings");
            assert_eq!(known.send().await.unwrap().status(), 401, "{path}");
        }
        tasks.stop();
    }
}
