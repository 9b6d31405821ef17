//! Checks of a deployment. Each finding names a fault and its remedy. Only [`initiate()`] changes anything.
//!
//! [`fn@cluster`] checks the servers (`nats`, `replicas`, `mongo`). When these are usable, it runs [`fn@work`], which
//! checks agents, lanes, timers, dead letters and storage over the traits of queue and store. [`fn@files`] checks prompts and
//! models' keys, [`unapplied`] checks agent files, [`fn@telemetry`] checks the collector of traces, [`fn@python`] the
//! sandbox, [`fn@connectors`] the databases of
//! connectors, and `authoring` what dialogues need.

mod authoring;
mod capacity;
mod connectors;
mod files;
mod initiate;
mod mongo;
mod nats;
mod python;
mod replicas;
mod telemetry;
mod work;

pub use self::connectors::connectors;
pub use files::{files, unapplied, without_file};
pub use initiate::initiate;
pub use python::python;
pub use telemetry::telemetry;
pub use work::work;

use ::connectors::Connectors;
use base::config::Settings;
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use definitions::agent::validate::KnownNames;
use engine::run;
use engine::workflow::Flows;
use sandbox::Sandbox;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::Duration;

/// How long a server may take to respond.
const CHECK_TIMEOUT: Duration = Duration::from_secs(6);

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No fault.
    Ok,
    /// It works, but could be safer or better.
    Advice,
    /// Something does not work, or messages may be lost.
    Problem,
}

impl Level {
    /// The lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Problem => "problem",
        }
    }
}

/// A finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Examined")]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The place: a server, a stream, a setting or an agent.
    #[serde(rename = "where")]
    pub place: String,
    /// The result of the check.
    pub what: String,
    /// What to change. Missing when nothing has to change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// A finding of the level [`Level::Ok`].
    pub fn ok(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { level: Level::Ok, place: place.into(), what: what.into(), remedy: String::new() }
    }

    /// A finding of the level [`Level::Advice`].
    pub fn advice(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Advice, place: place.into(), what: what.into(), remedy: remedy.into() }
    }

    /// A finding of the level [`Level::Problem`].
    pub fn problem(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::advice(place, what, remedy) }
    }

    /// The advice for something that this account cannot check.
    fn unknown(place: &str, what: &str, error: &dyn Display) -> Self {
        Self::advice(place, format!("{what} cannot be read: {error}"), "use an account that may read it")
    }
}

/// What nodes of graphs use besides models and HTTP.
#[derive(Clone, Copy, Debug)]
pub struct Tools<'t> {
    /// Runs scripts.
    pub sandbox: &'t Sandbox,
    /// Databases.
    pub connectors: &'t Connectors,
}

/// Checks a cluster: first the servers, then agents, lanes, timers and dead letters. `monitor` is the address of
/// nats-server's monitoring port; without it, the check tries the usual port of the server.
pub async fn cluster(settings: &Settings, flows: &Flows, tools: Tools<'_>, monitor: Option<&str>) -> Vec<Finding> {
    let known = KnownNames::new(settings, flows.ids()).with_flows(run::known_ids(settings));
    let ((mut findings, streams), (of_mongo, indexes), of_collector) =
        tokio::join!(nats::examine(settings, monitor), mongo::examine(settings), telemetry(settings));
    findings.extend(of_mongo);
    findings.extend(files(settings));
    findings.extend(of_collector);
    findings.extend(python(&settings.python, tools.sandbox).await);
    findings.extend(connectors(tools.connectors).await);
    findings.extend(authoring::ports(settings).await);
    // Opening queue and store would create missing streams and indexes. The doctor must not change anything.
    if streams && indexes {
        let tasks = Tasks::new();
        match tokio::time::timeout(CHECK_TIMEOUT, opened(settings, &tasks)).await {
            Ok(Ok((queue, store))) => {
                findings.extend(work(&queue, &store, settings, &known).await);
                findings.extend(unapplied(&store, settings).await);
            }
            Ok(Err(problem)) => findings.push(Finding::problem("queue and store", problem, "see the lines above")),
            Err(_) => {
                let what = format!("they cannot be opened within {} s", CHECK_TIMEOUT.as_secs());
                findings.push(Finding::problem("queue and store", what, "see the lines above, and try again"));
            }
        }
        tasks.stop();
    }
    findings
}

async fn opened(settings: &Settings, tasks: &Tasks) -> Result<(NatsQueue, MongoStore), String> {
    let queue = NatsQueue::connect(settings, tasks.stop_token()).await.map_err(|error| error.to_string())?;
    let store = MongoStore::connect(settings, tasks).await.map_err(|error| error.to_string())?;
    Ok((queue, store))
}

/// Awaits a response within [`CHECK_TIMEOUT`]. Returns errors as text.
async fn in_time<T, E: Display>(asked: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(CHECK_TIMEOUT, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

/// The first two numbers of a version such as `2.10.4-beta`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(version("2.10.4-beta"), (2, 10));
        assert!(version("2.9.25") < version("2.10.0") && version("10.0") > version("7.0.1"));
        assert_eq!(version("odd"), (0, 0));
    }

    #[test]
    fn a_finding_is_flat_json() {
        let finding = Finding::advice("TW_JOBS", "one replica", "make it three");
        let expected = r#"{"level":"advice","where":"TW_JOBS","what":"one replica","remedy":"make it three"}"#;
        assert_eq!(serde_json::to_string(&finding).unwrap(), expected);
        assert!(Level::Ok < Level::Advice && Level::Advice < Level::Problem);
    }
}
