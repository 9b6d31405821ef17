//! The connection to NATS. Everything that connects uses [`connect`], so that servers, credentials and TLS are the same
//! everywhere.

use super::REQUEST_TIMEOUT;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};
use base::config::nats::{Login, NatsAccess};
use base::config::secrets::masked_address;
use base::config::{Environment, Nats, Settings};
use base::error::SharedError;
use std::path::Path;
use std::time::Duration;
use storage::queue::{QueueError, Result};

/// The interval at which the client pings its server. After three pings without a pong it connects to another server.
/// Without pings it would not notice a server that hangs or is unreachable, because no connection closes.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to reconnect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Connects to the first server of `nats.url` that responds. Fails with `Refused` when waiting cannot help: a setting
/// is wrong, or the server does not accept the credentials.
pub async fn connect(settings: &Settings) -> Result<Client> {
    let access = NatsAccess::from_settings(&settings.nats, &Environment::from_process()).map_err(|problems| {
        let lines = problems.iter().map(|problem| format!("{} {}; {}", problem.key, problem.found, problem.remedy));
        QueueError::refused(lines.collect::<Vec<_>>().join("; "))
    })?;
    let options = ConnectOptions::new()
        .name("turnwheel")
        .request_timeout(Some(REQUEST_TIMEOUT))
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(reconnect_delay)
        .require_tls(access.tls);
    let options = match &settings.nats.inbox_prefix {
        Some(prefix) => options.custom_inbox_prefix(prefix),
        None => options,
    };
    let options = Box::pin(certified(options, &settings.nats)).await?;
    let options = Box::pin(logged_in(options, &access.login)).await?;
    let parsed = access.servers.iter().map(|server| server.parse::<ServerAddr>()).collect::<std::io::Result<Vec<_>>>();
    let servers = parsed.map_err(|error| refused(format!("nats.url: {error}"), error))?;
    // Boxed so that the client's handshake does not enlarge the future of every caller.
    let connected = Box::pin(options.connect(servers)).await;
    connected.map_err(|error| refusal(error, settings, &access.login))
}

/// The pause before a reconnect attempt. Short, so that the client finds a restarted server soon, however long the
/// restart took.
fn reconnect_delay(attempts: usize) -> Duration {
    let doubled = u32::try_from(attempts.min(10)).map_or(1, |attempts| 1_u64 << attempts);
    Duration::from_millis(doubled).min(MAX_RECONNECT_DELAY)
}

/// Adds the certificates of the settings.
async fn certified(mut options: ConnectOptions, nats: &Nats) -> Result<ConnectOptions> {
    if let Some(ca) = &nats.ca {
        has("nats.ca", ca, "CERTIFICATE-----").await?;
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(cert), Some(key)) = (&nats.cert, &nats.key) {
        has("nats.cert", cert, "CERTIFICATE-----").await?;
        has("nats.key", key, "PRIVATE KEY-----").await?;
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    Ok(options)
}

async fn logged_in(options: ConnectOptions, login: &Login) -> Result<ConnectOptions> {
    Ok(match login {
        Login::Anonymous => options,
        Login::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
        Login::Token(token) => options.token(token.clone()),
        Login::Nkey(path) => options.nkey(seed(path).await?),
        Login::Creds(path) => {
            let problem = |error| refused(format!("nats.creds = {}: {error}", path.display()), error);
            options.credentials_file(path).await.map_err(problem)?
        }
    })
}

/// Refuses a file that cannot be read or has no such PEM block. The client would take such a file as an empty list.
async fn has(setting: &str, path: &Path, block: &str) -> Result<()> {
    if read(setting, path).await?.contains(block) {
        return Ok(());
    }
    let shown = path.display();
    Err(QueueError::refused(format!(
        "{setting} = {shown}: the file has no PEM block that ends in `{block}`; correct it"
    )))
}

/// Reads the seed from a file: the line that begins with `SU`. The file may have the markers that the `nk` tool writes.
async fn seed(path: &Path) -> Result<String> {
    let text = read("nats.nkey", path).await?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
    seed.map(str::to_owned).ok_or_else(|| {
        let shown = path.display();
        QueueError::refused(format!(
            "nats.nkey = {shown}: the file has no line that begins with `SU`; write the user's seed into it (`nk -gen user`)"
        ))
    })
}

async fn read(setting: &str, path: &Path) -> Result<String> {
    let shown = path.display();
    let problem = |error| refused(format!("{setting} = {shown}: {error}; correct the path"), error);
    tokio::fs::read_to_string(path).await.map_err(problem)
}

/// Creates a refusal that prints `text`, caused by `error`.
fn refused(text: String, error: impl Into<SharedError>) -> QueueError {
    QueueError::Refused(SharedError::explained(text, error))
}

/// Converts a connection error. Errors in settings, credentials and certificates become `Refused`, all others
/// `Unavailable`.
fn refusal(error: ConnectError, settings: &Settings, login: &Login) -> QueueError {
    let place = format!("NATS at nats.url = {}", masked_address(&settings.nats.url));
    let given = match login {
        Login::Anonymous => {
            "none are set: set nats.user and nats.password_env, nats.token_env, nats.nkey or nats.creds"
        }
        Login::Password { .. } if settings.nats.user.is_some() => "correct nats.user and nats.password_env",
        Login::Password { .. } | Login::Token(_) if settings.nats.token_env.is_none() => "correct those in nats.url",
        Login::Password { .. } | Login::Token(_) => "correct nats.token_env",
        Login::Nkey(_) => "correct nats.nkey",
        Login::Creds(_) => "correct nats.creds",
    };
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            refused(format!("{place} does not accept the credentials ({error}); {given}"), error)
        }
        ConnectErrorKind::ServerParse => refused(format!("{place}: {error}"), error),
        _ if error.to_string().contains("InvalidContentType") => {
            let remedy = "remove `tls://`, nats.ca and nats.cert, or give nats-server a `tls` block";
            refused(format!("{place}: the server responds without TLS; {remedy}"), error)
        }
        _ if is_of_certificates(&error) => {
            let remedy = "check nats.ca, nats.cert and nats.key, and that the server's certificate names its host";
            refused(format!("{place}: TLS failed: {error}; {remedy}"), error)
        }
        _ => QueueError::unavailable(error),
    }
}

/// True when TLS failed because of the certificates, and not because of the network.
fn is_of_certificates(error: &ConnectError) -> bool {
    let text = error.to_string();
    error.kind() == ConnectErrorKind::Tls || text.contains("certificate") || text.contains("received fatal alert")
}
