//! Checks of NATS: connection, version, streams, consumer, and the sync interval of its files.

use super::replicas::{self, Servers};
use super::{CHECK_TIMEOUT, Finding, in_time, version};
use async_nats::jetstream::account::Account;
use async_nats::jetstream::stream::{DiscardPolicy, Info, State, StorageType};
use async_nats::jetstream::{self, Context};
use base::config::Settings;
use base::config::secrets::masked_address;
use cluster::nats;
use cluster::nats::streams::{CONSUMER, Difference, differences, wanted, wanted_consumer};
use serde_json::Value;
use std::time::Duration;
use url::Url;

/// The oldest version that has all features of the streams.
const MIN_VERSION: (u32, u32) = (2, 10);
/// The text of nats-server's error for a stream that does not exist.
const STREAM_NOT_FOUND: &str = "stream not found";
/// The usual monitoring port of nats-server.
const MONITOR_PORT: u16 = 8222;
/// How often the check looks for a worker that pulls. A worker pauses for a moment between two pulls.
const MAX_CHECKS: u32 = 10;

/// Runs all checks of NATS. Also returns whether all streams exist.
pub(super) async fn examine(settings: &Settings, monitor: Option<&str>) -> (Vec<Finding>, bool) {
    let place = format!("nats.url = {}", masked_address(&settings.nats.url));
    let client = match in_time(nats::connect(settings)).await {
        Ok(client) => client,
        Err(error) => return (vec![no_connection(place, &error)], false),
    };
    let server = client.server_info();
    let mut findings = vec![match version(&server.version) {
        found if found < MIN_VERSION => {
            let (major, minor) = MIN_VERSION;
            let what = format!("nats-server {} is older than {major}.{minor}", server.version);
            Finding::problem(&place, what, format!("upgrade nats-server to {major}.{minor} or newer"))
        }
        _ => Finding::ok(&place, format!("nats-server {} responds", server.version)),
    }];
    let context = jetstream::new(client);
    match in_time(context.query_account()).await {
        Ok(account) => findings.push(storage(&account)),
        Err(error) => {
            let remedy = "start nats-server with `-js`, or set `jetstream` in its file, and allow it to this account";
            findings.push(Finding::problem(place, format!("JetStream cannot be used: {}", cause(&error)), remedy));
            return (findings, false);
        }
    }
    let servers = Servers::known_to(&server);
    let mut replicas = usize::MAX;
    let mut complete = true;
    for wanted in wanted(settings) {
        match in_time(context.get_stream(&wanted.name)).await {
            Ok(stream) => {
                let info = stream.cached_info();
                replicas = replicas.min(info.config.num_replicas.max(1));
                findings.extend(of_stream(info, &differences(&info.config, &wanted), &servers));
            }
            Err(error) if error.contains(STREAM_NOT_FOUND) => {
                complete = false;
                let what = "the stream does not exist yet";
                findings.push(Finding::advice(&wanted.name, what, "the first worker, scheduler or gateway creates it"));
            }
            Err(error) => {
                complete = false;
                let remedy = "start the servers that hold its replicas; directly after a failure, try again";
                let what = format!("the stream's state cannot be read: {}", cause(&error));
                findings.push(Finding::problem(&wanted.name, what, remedy));
            }
        }
    }
    if !complete {
        findings.extend(replicas::of_setting(settings.nats.replicas, &servers));
    }
    if complete {
        let [jobs, ..] = wanted(settings);
        findings.push(consumer(settings, &context, &jobs.name).await);
        findings.push(syncing(settings, monitor, &server.server_id, replicas).await);
    }
    (findings, complete)
}

/// Reports the account's used and reserved storage.
fn storage(account: &Account) -> Finding {
    let place = "JetStream storage";
    let (used, reserved) = (account.storage >> 20, account.reserved_storage >> 20);
    let Some(limit) = account.limits.max_storage.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0)
    else {
        return Finding::ok(
            place,
            format!("{used} MiB used, {reserved} MiB reserved; the account has no limit of its own"),
        );
    };
    let (limit, what) = (limit >> 20, format!("{used} MiB used, {reserved} MiB reserved of {} MiB", limit >> 20));
    match used.max(reserved) * 10 < limit * 9 {
        true => Finding::ok(place, what),
        false => Finding::advice(place, what, "raise the account's `max_file`, or lower the streams' `max_bytes`"),
    }
}

/// The finding for a failed connection. A refusal brings its own remedy after the last semicolon.
fn no_connection(place: String, error: &str) -> Finding {
    match error.rsplit_once("; ").filter(|(what, _)| what.starts_with("the queue refused")) {
        Some((what, remedy)) => Finding::problem(place, what, remedy),
        None => {
            let remedy = "start nats-server with JetStream (`nats-server -js`), or correct nats.url (NATS_URL)";
            Finding::problem(place, format!("cannot connect: {}", cause(error)), remedy)
        }
    }
}

/// Translates an error of the client. The client's text names the layers that the error came through, and error numbers
/// of the system.
fn cause(error: &str) -> String {
    const LAYERS: [&str; 5] =
        ["the queue is unavailable: ", "JetStream error: ", "request error: ", "request failed: ", "IO error: "];
    const WORDS: [(&str, &str); 7] = [
        ("Connection refused", "no server listens there"),
        ("timed out", "the server did not respond in time"),
        ("no responders", "JetStream is not enabled on the server, or not for this account"),
        ("not enabled", "JetStream is not enabled on the server, or not for this account"),
        ("failed to lookup", "the host name is unknown"),
        ("permissions violation", "the permissions of this user do not allow it"),
        ("insufficient resources", "the servers have too little storage left"),
    ];
    let is_there = |part: &str| error.to_lowercase().contains(&part.to_lowercase());
    if let Some((_, words)) = WORDS.iter().find(|(part, _)| is_there(part)) {
        return (*words).to_owned();
    }
    let mut rest = error;
    while let Some(inner) = LAYERS.iter().find_map(|layer| rest.strip_prefix(layer)) {
        rest = inner;
    }
    rest.to_owned()
}

fn of_stream(info: &Info, differing: &[Difference], servers: &Servers) -> Vec<Finding> {
    let (name, config) = (&info.config.name, &info.config);
    let mut findings: Vec<_> = differing
        .iter()
        .map(|Difference { field, found, wanted }| {
            let what = format!("{field} is {found}, but should be {wanted}");
            let remedy = format!("`nats stream edit {name}`, or change the setting");
            // Operators may choose how long data is kept. The other fields are needed for the guarantees.
            match *field {
                "max_age" | "duplicate_window" | "max_bytes" => Finding::advice(name, what, remedy),
                "num_replicas" => replicas::differs(name, found, wanted),
                _ => Finding::problem(name, what, remedy),
            }
        })
        .collect();
    if config.storage == StorageType::Memory {
        let remedy = "its storage cannot be changed: drain and delete it; the next process creates it again";
        findings.push(Finding::problem(name, "it is stored in memory: a restart of the server loses it", remedy));
    }
    findings.extend(fill(info));
    findings.extend(replicas::of_stream(info, !differing.iter().any(|found| found.field == "num_replicas"), servers));
    if findings.is_empty() {
        let State { messages, bytes, .. } = info.state;
        findings
            .push(Finding::ok(name, format!("{messages} messages, {bytes} bytes, {} replicas", config.num_replicas)));
    }
    findings
}

/// Reports a stream whose byte limit is nearly reached.
fn fill(info: &Info) -> Option<Finding> {
    let (name, bytes) = (&info.config.name, info.state.bytes);
    let limit = u64::try_from(info.config.max_bytes).ok().filter(|limit| *limit > 0)?;
    if bytes < limit / 5 * 4 {
        return None;
    }
    let what = format!("it holds {bytes} of {limit} bytes");
    Some(match info.config.discard {
        DiscardPolicy::New => {
            let remedy =
                "start workers, or raise `streams.jobs_max_mib` and the stream's `max_bytes` (`nats stream edit`)";
            Finding::problem(name, format!("{what}: it refuses users' messages, or will do so soon"), remedy)
        }
        DiscardPolicy::Old => {
            let remedy = format!("raise the limit in `[streams]` and by `nats stream edit {name} --max-bytes`");
            Finding::advice(name, format!("{what}: it drops its oldest messages before their retention ends"), remedy)
        }
    })
}

async fn consumer(settings: &Settings, context: &Context, stream: &str) -> Finding {
    let place = format!("{stream} > {CONSUMER}");
    let look = async || {
        let stream = context.get_stream(stream).await.map_err(|error| error.to_string())?;
        stream.consumer_info(CONSUMER).await.map_err(|error| error.to_string())
    };
    let Ok(mut info) = in_time(look()).await else {
        return Finding::advice(
            place,
            "the consumer does not exist yet: no worker has run",
            "start `turnwheel worker`",
        );
    };
    let (config, wanted) = (&info.config, wanted_consumer(settings));
    let edit = format!("`nats consumer edit {stream} {CONSUMER}`");
    if config.ack_wait != wanted.ack_wait {
        let what = format!("ack_wait is {:?}, but worker.ack_wait is {:?}", config.ack_wait, wanted.ack_wait);
        return Finding::problem(place, what, format!("{edit}, or set worker.ack_wait to the consumer's value"));
    }
    if config.max_deliver > 0 || config.max_ack_pending > 0 || config.ack_policy != wanted.ack_policy {
        let what = format!(
            "max_deliver is {}, max_ack_pending {}, ack_policy {:?}: some messages would not be delivered",
            config.max_deliver, config.max_ack_pending, config.ack_policy
        );
        return Finding::problem(place, what, format!("{edit}: -1, -1 and explicit"));
    }
    for _ in 0..MAX_CHECKS {
        if info.num_waiting > 0 {
            return Finding::ok(place, format!("workers pull; {} jobs wait", info.num_pending));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Ok(again) = in_time(look()).await {
            info = again;
        }
    }
    let what = format!("no worker pulls, {} jobs wait, {} are in flight", info.num_pending, info.num_ack_pending);
    let remedy = "start workers; if some run, all their slots are busy: start more, or raise worker.concurrency";
    if info.num_pending > 0 { Finding::problem(place, what, remedy) } else { Finding::advice(place, what, remedy) }
}

/// Checks when acknowledged messages are on disk. Only the server's monitoring port reports the sync interval.
async fn syncing(settings: &Settings, monitor: Option<&str>, server_id: &str, replicas: usize) -> Finding {
    let place = "jetstream.sync_interval";
    let remedy = "set `sync_interval: always` in the server's `jetstream` block, or keep three replicas";
    if replicas >= 3 {
        return Finding::ok(place, "three replicas: the failure of one machine loses no acknowledged message");
    }
    let asked = monitor.map(str::to_owned).or_else(|| usual_monitor(&settings.nats.url));
    let answer = match &asked {
        Some(address) => ask(address).await,
        None => Err("nats.url names no server".to_owned()),
    };
    match answer {
        Ok(answer) if answer["server_id"] != server_id => {
            let what = format!("{} monitors another server than the one in nats.url", asked.unwrap_or_default());
            Finding::advice(place, what, "pass the monitoring port of that server with --nats-monitor")
        }
        Ok(answer) if answer["config"]["sync_always"] == true => {
            Finding::ok(place, "always: acknowledged messages are on disk")
        }
        Ok(answer) => {
            let nanos = answer["config"]["sync_interval"].as_u64().unwrap_or(120_000_000_000);
            let what = format!(
                "files are synced every {:?}: a power failure loses messages that were acknowledged in between",
                Duration::from_nanos(nanos)
            );
            Finding::advice(place, what, remedy)
        }
        Err(error) => {
            let what = format!("the sync interval is unknown, only the monitoring port reports it ({error})");
            let remedy = format!(
                "make sure to {remedy}; to check, set `http_port` on the server and pass \
                 --nats-monitor http://HOST:{MONITOR_PORT}"
            );
            Finding::advice(place, what, remedy)
        }
    }
}

fn usual_monitor(urls: &str) -> Option<String> {
    let first = urls.split(',').next()?.trim();
    let first = if first.contains("://") { first.to_owned() } else { format!("nats://{first}") };
    let url = Url::parse(&first).ok()?;
    Some(format!("http://{}:{MONITOR_PORT}", url.host_str()?))
}

async fn ask(address: &str) -> Result<Value, String> {
    let client = base::http_client::builder().no_proxy().timeout(CHECK_TIMEOUT / 3).build();
    let client = client.map_err(|error| error.to_string())?;
    let url = format!("{}/jsz", address.trim_end_matches('/'));
    let answer = client.get(&url).send().await.map_err(|_| format!("{address} is unreachable"))?;
    answer.json().await.map_err(|_| format!("{url} did not return JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_client_are_told_in_words() {
        for (error, words) in [
            ("the queue is unavailable: IO error: Connection refused (os error 111)", "no server listens there"),
            ("JetStream error: JetStream not enabled for account (code 503, error code 10039)", "not for this account"),
            ("request error: timed out", "did not respond in time"),
            ("no response within 6 s", "no response within 6 s"),
        ] {
            assert!(cause(error).ends_with(words), "{}", cause(error));
        }
        assert_eq!(cause("JetStream error: request error: odd"), "odd");
    }

    #[test]
    fn the_usual_monitoring_port_is_on_the_first_server() {
        assert_eq!(usual_monitor("nats://me:pw@q1:4222,nats://q2").as_deref(), Some("http://q1:8222"));
        assert_eq!(usual_monitor("q1:4222").as_deref(), Some("http://q1:8222"));
        assert_eq!(usual_monitor(""), None);
    }
}
