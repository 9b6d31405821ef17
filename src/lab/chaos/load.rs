//! The users of a run: concurrent conversations. Each publishes its messages in order and repeats a message until it is
//! acknowledged.

use super::agents::Manner;
use super::conversations::ScriptMessage;
use super::evidence::{SentInvalidJob, SentMessage};
use super::script::{self, Bad, Conversation, Move, PublishRoute};
use base::http_client;
use base::tasks::{OnPanic, Tasks};
use bytes::Bytes;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::queue::{Publish, Queue, QueueError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// Pause before a message without an acknowledgement is published again.
const REPUBLISH_DELAY: Duration = Duration::from_millis(300);

/// The users of a run, and a ledger of their messages.
pub(super) struct SimulatedUsers {
    seed: u64,
    queue: Arc<dyn Queue>,
    http: reqwest::Client,
    gateway_url: String,
    ledger: Mutex<Ledger>,
    counts: Counters,
    /// The queue's backlog is too long: no conversation starts.
    pub(super) held_up: AtomicBool,
}

/// All published messages and invalid jobs.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    pub(super) sent: Vec<SentMessage>,
    pub(super) bad: Vec<SentInvalidJob>,
    pub(super) troubles: Vec<String>,
}

#[derive(Default)]
struct Counters {
    repeated: AtomicU64,
    retried: AtomicU64,
    by_gateway: AtomicU64,
}

/// Counts of the published messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Published {
    /// Distinct messages.
    pub messages: u64,
    /// Distinct messages with an acknowledgement.
    pub accepted: u64,
    /// Publishes through the gateway.
    pub by_gateway: u64,
    /// Deliberate repeats under a known job id.
    pub repeated: u64,
    /// Repeats because no acknowledgement arrived.
    pub retried: u64,
}

/// A message to publish.
struct Post<'a> {
    session_id: &'a str,
    msg_id: Option<String>,
    payload: Value,
    way: PublishRoute,
}

impl SimulatedUsers {
    pub(super) fn new(seed: u64, queue: Arc<dyn Queue>, gateway_url: String) -> reqwest::Result<Arc<Self>> {
        let http = http_client::builder().no_proxy().timeout(Duration::from_secs(8)).build()?;
        let (ledger, counts, held_up) = Default::default();
        Ok(Arc::new(Self { seed, queue, http, gateway_url, ledger, counts, held_up }))
    }

    /// Starts conversations at `rate` messages per second until `end`. Started conversations continue in `tasks`.
    pub(super) async fn run(self: &Arc<Self>, rate: f64, end: Instant, tasks: &Tasks) {
        let mut begin = interval(Duration::from_secs_f64(script::AVERAGE_MESSAGES / rate));
        begin.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0;
        while Instant::now() < end {
            begin.tick().await;
            if self.held_up.load(Ordering::Relaxed) {
                continue;
            }
            let conversation = script::conversation(self.seed, number);
            let (load, stop) = (Arc::clone(self), tasks.stop_token());
            tasks.spawn("conversation", OnPanic::Log, async move { load.converse(conversation, stop).await });
            number += 1;
        }
    }

    /// A copy of the ledger, for the checker.
    pub(super) fn published(&self) -> Ledger {
        self.ledger().clone()
    }

    pub(super) fn count(&self) -> Published {
        let ledger = self.ledger();
        let accepted = ledger.sent.iter().filter(|sent| sent.accepted).count();
        Published {
            messages: u64::try_from(ledger.sent.len()).unwrap_or(0),
            accepted: u64::try_from(accepted).unwrap_or(0),
            by_gateway: self.counts.by_gateway.load(Ordering::Relaxed),
            repeated: self.counts.repeated.load(Ordering::Relaxed),
            retried: self.counts.retried.load(Ordering::Relaxed),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn converse(&self, conversation: Conversation, stop: CancellationToken) {
        let talk = async {
            if conversation.manner == Manner::Authoring {
                self.create(&conversation).await;
            }
            for step in &conversation.moves {
                self.step(&conversation, step).await;
            }
        };
        tokio::select! {
            () = talk => {}
            () = stop.cancelled() => {}
        }
    }

    async fn step(&self, conversation: &Conversation, step: &Move) {
        match step {
            Move::Wait(pause) => sleep(*pause).await,
            Move::Say(line, way) => self.publish_message(conversation, line, *way).await,
            Move::Again { message, way, keyed } => {
                let mut said = conversation.moves.iter().filter_map(|step| match step {
                    Move::Say(line, _) => Some(line),
                    Move::Wait(_) | Move::Again { .. } | Move::Bad(_) => None,
                });
                let Some(line) = said.nth(*message) else { return };
                let mut post = post(conversation, line, *way);
                post.msg_id = post.msg_id.filter(|_| *keyed);
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                self.until_acknowledged(&post).await;
            }
            Move::Bad(bad) => self.bad(conversation, bad).await,
        }
    }

    /// Creates an authoring dialogue. Repeats the request until it succeeds: a repeat gets the same response.
    async fn create(&self, conversation: &Conversation) {
        let url = format!("{}/api/v1/session", self.gateway_url);
        // A paused process must not end a stage.
        let body = json!({"action": "create", "session_id": conversation.session_id, "user_id": conversation.session_id,
                          "config": {"language": "en", "timeout_seconds": 300}});
        loop {
            match self.http.post(&url).json(&body).send().await {
                Ok(answer) if answer.status().is_success() => return,
                Ok(answer) if answer.status().is_client_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS => {
                    let text = format!("a dialogue was refused: {}: {body}", answer.status());
                    return self.ledger().troubles.push(text);
                }
                Ok(_) | Err(_) => sleep(REPUBLISH_DELAY).await,
            }
        }
    }

    async fn publish_message(&self, conversation: &Conversation, line: &ScriptMessage, way: PublishRoute) {
        let place = {
            let mut ledger = self.ledger();
            ledger.sent.push(SentMessage {
                session_id: conversation.session_id.clone(),
                job_id: line.tag.clone(),
                text: line.to_string(),
                manner: conversation.manner,
                accepted: false,
            });
            ledger.sent.len() - 1
        };
        self.until_acknowledged(&post(conversation, line, way)).await;
        self.ledger().sent[place].accepted = true;
    }

    async fn bad(&self, conversation: &Conversation, bad: &Bad) {
        let session_id = conversation.session_id.clone();
        let place = {
            let mut ledger = self.ledger();
            let payload = bad.payload.clone();
            ledger.bad.push(SentInvalidJob {
                session_id: session_id.clone(),
                payload,
                cause: bad.cause,
                accepted: false,
                sends: 0,
            });
            ledger.bad.len() - 1
        };
        let msg_id = Some(format!("{session_id}:{}", bad.tag));
        loop {
            self.ledger().bad[place].sends += 1;
            let (session_id, msg_id) = (session_id.clone(), msg_id.clone());
            if self.queue.publish(Publish { session_id, msg_id, payload: bad.payload.clone().into() }).await.is_ok() {
                self.ledger().bad[place].accepted = true;
                return;
            }
            sleep(REPUBLISH_DELAY).await;
        }
    }

    /// Publishes under the same ids until an acknowledgement arrives: a publish without one may still have arrived.
    async fn until_acknowledged(&self, post: &Post<'_>) {
        while !self.publish(post).await {
            self.counts.retried.fetch_add(1, Ordering::Relaxed);
            sleep(REPUBLISH_DELAY).await;
        }
    }

    async fn publish(&self, post: &Post<'_>) -> bool {
        match post.way {
            PublishRoute::Gateway => self.post(post).await,
            PublishRoute::Nats => {
                let payload = Bytes::from(post.payload.to_string());
                let (session_id, msg_id) = (post.session_id.to_owned(), post.msg_id.clone());
                match self.queue.publish(Publish { session_id, msg_id, payload }).await {
                    Ok(_) => true,
                    Err(QueueError::Unavailable(_) | QueueError::Full(_)) => false,
                    Err(error) => self.trouble(post, &error),
                }
            }
        }
    }

    async fn post(&self, post: &Post<'_>) -> bool {
        self.counts.by_gateway.fetch_add(1, Ordering::Relaxed);
        let request = self.http.post(format!("{}/api/v1/messages", self.gateway_url)).json(&post.payload);
        match request.send().await {
            Ok(answer) if answer.status() == StatusCode::ACCEPTED => true,
            Ok(answer) if answer.status().is_client_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS => {
                let problem = format!("{}: {}", answer.status(), answer.text().await.unwrap_or_default());
                self.trouble(post, &problem)
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Records a refusal that no fault explains and that a retry cannot resolve.
    fn trouble(&self, post: &Post<'_>, problem: &dyn std::fmt::Display) -> bool {
        let text = format!("a message was refused: {problem}: {}", post.payload);
        let mut ledger = self.ledger();
        if !ledger.troubles.contains(&text) {
            ledger.troubles.push(text);
        }
        false
    }
}

fn post<'a>(conversation: &'a Conversation, line: &ScriptMessage, way: PublishRoute) -> Post<'a> {
    let session_id = conversation.session_id.as_str();
    // The session of a dialogue has its agent and its user.
    let (agent_id, user_id) = match conversation.manner {
        Manner::Authoring => (None, session_id),
        manner => (Some(manner.agent_id()), "someone"),
    };
    let payload = json!({
        "type": "user_message", "session_id": session_id, "agent_id": agent_id, "job_id": line.tag,
        "text": line.to_string(), "user_id": user_id, "channel": "chaos",
    });
    Post { session_id, msg_id: Some(format!("{session_id}:{}", line.tag)), payload, way }
}
