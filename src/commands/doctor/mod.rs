//! Faults of a deployment and their remedies. Only [`initiate()`] changes anything.
//!
//! [`cluster`] asks the servers (`nats`, `mongo`) and, where they are as they should be, goes on to [`fn@work`]: agents, lanes,
//! timers and dead letters, over the two traits. [`fn@files`] looks at prompts and models' keys, [`unapplied`] at agent files,
//! [`fn@telemetry`] asks the collector of traces.

mod files;
mod initiate;
mod mongo;
mod nats;
mod replicas;
mod telemetry;
mod work;

pub use files::{files, unapplied};
pub use initiate::initiate;
pub use telemetry::telemetry;
pub use work::work;

use base::config::Settings;
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use definitions::agent::validate::Known;
use engine::run;
use engine::workflow::Flows;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::Duration;
use utoipa::ToSchema;

/// How long a server may take to answer.
const LIMIT: Duration = Duration::from_secs(6);

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and could be safer or better.
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

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Examined)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// Where: a server, a stream, a setting, an agent.
    #[serde(rename = "where")]
    pub place: String,
    /// What was found.
    pub what: String,
    /// What to change; empty when nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { level: Level::Ok, place: place.into(), what: what.into(), remedy: String::new() }
    }

    /// Could be safer or better.
    pub fn advice(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Advice, place: place.into(), what: what.into(), remedy: remedy.into() }
    }

    /// Does not work, or may lose messages.
    pub fn problem(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::advice(place, what, remedy) }
    }

    /// What cannot be looked at.
    fn unknown(place: &str, what: &str, error: &dyn Display) -> Self {
        Self::advice(place, format!("{what} cannot be known from here: {error}"), "look with an account that may")
    }
}

/// All findings of a cluster: servers first, then the work. `monitor` is the address of nats-server's monitoring port; unless
/// given, the usual port of the server is tried.
pub async fn cluster(settings: &Settings, flows: &Flows, monitor: Option<&str>) -> Vec<Finding> {
    let known = Known::new(settings, flows.ids()).with_flows(run::known_ids(settings));
    let ((mut findings, streams), (of_mongo, indexes), of_collector) =
        tokio::join!(nats::examine(settings, monitor), mongo::examine(settings), telemetry(settings));
    findings.extend(of_mongo);
    findings.extend(files(settings));
    findings.extend(of_collector);
    // Opening queue and store makes what is missing; that is for the processes to do.
    if streams && indexes {
        let tasks = Tasks::new();
        match tokio::time::timeout(LIMIT, opened(settings, &tasks)).await {
            Ok(Ok((queue, store))) => {
                findings.extend(work(&queue, &store, (settings, &known)).await);
                findings.extend(unapplied(&store, settings).await);
            }
            Ok(Err(problem)) => findings.push(Finding::problem("queue and store", problem, "see the lines above")),
            Err(_) => {
                let what = format!("they do not open within {} s", LIMIT.as_secs());
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

/// The answer in time, or why there is none.
async fn in_time<T, E: Display>(asked: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

/// The first numbers of a version such as `2.10.4-beta`.
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
