//! Dialogues over HTTP, as a client of the gateway holds them.

use anyhow::{Context, bail};
use base::http_client;
use futures::StreamExt;
use serde_json::{Value, json};
use sse_stream::SseStream;
use std::time::{Duration, Instant};

/// Time limit for one turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of the gateway.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
}

/// The times of one turn, from the sending of its message.
pub(super) struct TurnTimes {
    pub(super) first_event: Duration,
    /// The first piece of the model's text.
    pub(super) first_word: Option<Duration>,
    /// From the beginning of the document to the results of its tests.
    pub(super) generation: Option<Duration>,
    pub(super) events: Vec<Value>,
}

impl Client {
    pub(super) fn new(base: String) -> anyhow::Result<Self> {
        Ok(Self { http: http_client::builder().no_proxy().build()?, base })
    }

    /// Waits until the gateway is ready.
    pub(super) async fn is_ready(&self, limit: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let answer = self.http.get(format!("{}/readyz", self.base)).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < limit, "the engine is not ready after {} s", limit.as_secs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Creates a dialogue about a new workflow. Returns its session.
    pub(super) async fn create(&self) -> anyhow::Result<String> {
        let config = json!({"language": "en"});
        let request = self.http.post(format!("{}/api/v1/session", self.base));
        let answer = request.json(&json!({"action": "create", "config": config})).send().await?;
        let created: Value = checked(answer).await?.json().await?;
        created["session_id"].as_str().map(str::to_owned).context("a new dialogue has no session_id")
    }

    /// Sends a message, and reads the events of its turn.
    pub(super) async fn say(&self, session_id: &str, message: &str) -> anyhow::Result<TurnTimes> {
        let request = self.http.post(format!("{}/api/v1/chat/stream", self.base));
        let request = request.json(&json!({"session_id": session_id, "user_message": message}));
        let sent = Instant::now();
        let reading = async {
            let answer = checked(request.send().await?).await?;
            let mut stream = SseStream::from_bytes_stream(answer.bytes_stream());
            let mut arrived: Vec<(Duration, Value)> = Vec::new();
            while let Some(event) = stream.next().await {
                let Some(data) = event?.data else { continue };
                let event: Value = serde_json::from_str(&data).context("an event is no JSON")?;
                let is_final = event["is_final"] == true;
                arrived.push((sent.elapsed(), event));
                if is_final {
                    return times(arrived);
                }
            }
            bail!("the stream of a turn of `{session_id}` ended without its last event")
        };
        let limit = format!("a turn of `{session_id}` has not ended within {} s", TURN_TIMEOUT.as_secs());
        tokio::time::timeout(TURN_TIMEOUT, reading).await.context(limit)?
    }

    /// Number and sum in seconds of the measured saves of states.
    pub(super) async fn saves(&self) -> anyhow::Result<(f64, f64)> {
        let answer = checked(self.http.get(format!("{}/metrics", self.base)).send().await?).await?;
        let text = answer.text().await?;
        let value = |name: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Ok(line.with_context(|| format!("the metrics have no {name}"))?.trim().parse()?)
        };
        Ok((value("turnwheel_authoring_save_seconds_count")?, value("turnwheel_authoring_save_seconds_sum")?))
    }
}

async fn checked(answer: reqwest::Response) -> anyhow::Result<reqwest::Response> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (status, url) = (answer.status(), answer.url().clone());
    bail!("{url} answered {status}: {}", answer.text().await.unwrap_or_default())
}

fn times(arrived: Vec<(Duration, Value)>) -> anyhow::Result<TurnTimes> {
    let at = |wanted: &dyn Fn(&Value) -> bool| arrived.iter().find(|(_, event)| wanted(event)).map(|(at, _)| *at);
    if let Some((_, error)) = arrived.iter().find(|(_, event)| event["type"] == "error") {
        bail!("a turn failed: {}", error["content"]);
    }
    let begun = at(&|event| event["type"] == "workflow_generation_started");
    let checked = at(&|event| event["type"] == "workflow_debugging");
    Ok(TurnTimes {
        first_event: at(&|_| true).context("a turn has no events")?,
        first_word: at(&|event| event["type"] == "message" && event["delta"].is_string()),
        generation: begun.zip(checked).map(|(begun, checked)| checked.saturating_sub(begun)),
        events: arrived.into_iter().map(|(_, event)| event).collect(),
    })
}

impl TurnTimes {
    /// Fails unless the turn ends with a published workflow whose tests have passed.
    pub(super) fn has_published(&self, tests: u64) -> anyhow::Result<()> {
        let of = |kind: &str| self.events.iter().find(|event| event["type"] == kind);
        let checks = of("workflow_debugging").context("the turn has checked no workflow")?;
        let data = &checks["data"];
        // The engine adds a test in which every call fails.
        let passed = data["tests"]["passed"].as_u64().is_some_and(|passed| passed >= tests);
        anyhow::ensure!(data["ok"] == true && passed, "the workflow failed its checks: {data}");
        let complete = of("workflow_complete").context("the turn has completed no workflow")?;
        anyhow::ensure!(complete["data"]["published"] == true, "the workflow is not published");
        Ok(())
    }
}
