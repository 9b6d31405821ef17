//! The load: simulated users who write to sessions and wait for the replies.

use super::Progress;
use super::agent::{AGENT, SAYINGS};
use super::figures::Latencies;
use super::replies::{SeenEvent, TurnEvent};
use super::test_cluster::TestNamespace;
use base::clock;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::queue::{Publish, Published, Queue, QueueError};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use types::job::{Job, JobBody, UserMessage};

/// Concurrent turns while [`Load::fill`] creates sessions.
pub(super) const FILL_CONCURRENCY: usize = 256;
/// How long to wait for replies after the last message.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Seed of the random choice of sessions.
const SEED: u64 = 20_260_101;

/// When the users write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// Closed loop with this number of users: each writes again when the reply to the previous message arrives.
    Closed(usize),
    /// Open loop with this number of messages per second, evenly spaced, regardless of replies.
    Open(f64),
}

/// Figures of a load.
pub(super) struct Measured {
    /// Latencies of turns whose messages were due within the measured time, counted from the intended time.
    pub(super) latencies: Latencies,
    /// Replies received within the measured time.
    pub(super) turns: u64,
    pub(super) seconds: f64,
    /// Messages that had no reply when the wait ended.
    pub(super) unanswered: usize,
    /// All messages that got a reply, including those before and after the measured time.
    pub(super) answered: u64,
    /// Messages that the queue refused because it was full.
    pub(super) refused: u64,
    /// Maximum of concurrent turns that had begun and not replied. Known only if the load watches turns begin.
    pub(super) begun_peak: usize,
    /// Replies received in the hot session within the measured time. The other figures exclude them.
    pub(super) hot_turns: u64,
}

impl Measured {
    pub(super) fn rate(&self) -> f64 {
        self.turns as f64 / self.seconds
    }

    /// Adds the figures of a later span of the same load.
    pub(super) fn add(&mut self, later: &Self) {
        self.latencies.add(&later.latencies);
        self.turns += later.turns;
        self.seconds += later.seconds;
        self.unanswered += later.unanswered;
        self.answered += later.answered;
        self.refused += later.refused;
        self.begun_peak = self.begun_peak.max(later.begun_peak);
        self.hot_turns += later.hot_turns;
    }
}

/// A published message without a reply.
struct Pending {
    intended: Instant,
    /// The session, if its user had no other message pending.
    taken: Option<usize>,
    /// The message went to the hot session.
    hot: bool,
}

type Publishing = BoxFuture<'static, (String, Result<Published, QueueError>)>;

/// Simulated users, their pending messages, and the reader of the replies.
pub(super) struct Load {
    queue: Arc<dyn Queue>,
    seen: mpsc::UnboundedReceiver<SeenEvent>,
    pending: HashMap<String, Pending>,
    publishing: FuturesUnordered<Publishing>,
    /// Sessions without a pending message.
    idle: Vec<usize>,
    sessions: usize,
    /// Users who all write to one additional session, each when the reply to the previous message arrives.
    hot_users: usize,
    random: StdRng,
    sent: u64,
    refused: u64,
    /// Turns that have begun and not replied.
    begun: usize,
    begun_peak: usize,
}

/// The measured span and its figures.
struct Window {
    from: Instant,
    until: Instant,
    latencies: Latencies,
    turns: u64,
    hot_turns: u64,
}

impl Window {
    fn new(from: Instant, measure: Duration) -> anyhow::Result<Self> {
        Ok(Self { from, until: from + measure, latencies: Latencies::new()?, turns: 0, hot_turns: 0 })
    }

    fn settle(&mut self, pending: &Pending, seen: Instant) {
        if !pending.hot {
            self.note(pending.intended, seen);
        } else if seen >= self.from && seen < self.until {
            self.hot_turns += 1;
        }
    }

    fn note(&mut self, intended: Instant, seen: Instant) {
        if intended >= self.from && intended < self.until {
            self.latencies.record(seen.saturating_duration_since(intended));
        }
        if seen >= self.from && seen < self.until {
            self.turns += 1;
        }
    }
}

impl Load {
    /// Creates the users of `sessions` sessions. With `begun`, the load also watches turns begin.
    pub(super) async fn new(namespace: &TestNamespace, sessions: usize, begun: bool) -> anyhow::Result<Self> {
        Ok(Self {
            queue: Arc::clone(&namespace.queue),
            seen: namespace.watch(begun).await?,
            pending: HashMap::new(),
            publishing: FuturesUnordered::new(),
            idle: (0..sessions).collect(),
            sessions,
            hot_users: 0,
            random: StdRng::seed_from_u64(SEED),
            sent: 0,
            refused: 0,
            begun: 0,
            begun_peak: 0,
        })
    }

    /// Adds `users` users who all write to one additional session while the load runs.
    pub(super) fn beside_hot(mut self, users: usize) -> Self {
        self.hot_users = users;
        self
    }

    /// Runs one turn in each of the first `sessions` sessions, `at_once` concurrently, so that the sessions exist
    /// before the measurement.
    pub(super) async fn fill(
        &mut self,
        sessions: usize,
        at_once: usize,
        progress: &dyn Progress,
    ) -> anyhow::Result<()> {
        let (mut next, mut buffer) = (0, Vec::new());
        self.idle.retain(|session| *session >= sessions);
        while next < sessions || !self.pending.is_empty() {
            while next < sessions && self.pending.len() < at_once {
                self.send(next, Some(next), Instant::now());
                next += 1;
            }
            tokio::select! {
                count = self.seen.recv_many(&mut buffer, 1_024) => anyhow::ensure!(count > 0, "the reader of replies has stopped"),
                Some((turn_id, done)) = self.publishing.next() => self.published(&turn_id, done)?,
                () = tokio::time::sleep(DRAIN_TIMEOUT) => anyhow::bail!("no reply within {} s; is the machine too slow?", DRAIN_TIMEOUT.as_secs()),
            }
            for seen in buffer.drain(..) {
                self.settled(&seen);
            }
            progress.tick(&format!("{} of {} sessions", next - self.pending.len(), sessions));
        }
        self.idle.sort_unstable();
        Ok(())
    }

    /// Runs the load for `warm_up` and then `measure`, and returns the figures of the measured time.
    pub(super) async fn run(
        &mut self,
        arrivals: Arrivals,
        warm_up: Duration,
        measure: Duration,
        progress: &dyn Progress,
    ) -> anyhow::Result<Measured> {
        let mut window = Window::new(Instant::now() + warm_up, measure)?;
        self.refused = 0;
        self.begun_peak = self.begun;
        let sent = self.sent;
        self.drive(arrivals, &mut window, progress).await?;
        self.drain(&mut window).await?;
        let Window { latencies, turns, hot_turns, .. } = window;
        let unanswered = std::mem::take(&mut self.pending).len();
        let (seconds, refused, begun_peak) = (measure.as_secs_f64(), self.refused, self.begun_peak);
        let answered = (self.sent - sent).saturating_sub(unanswered as u64 + refused);
        Ok(Measured { latencies, turns, seconds, unanswered, answered, refused, begun_peak, hot_turns })
    }

    /// Sends one message to each session. Returns when all turns have begun.
    pub(super) async fn begin_all(&mut self, progress: &dyn Progress) -> anyhow::Result<()> {
        for session in std::mem::take(&mut self.idle) {
            self.send(session, Some(session), Instant::now());
        }
        let end = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        while self.begun < self.pending.len() || !self.publishing.is_empty() {
            tokio::select! {
                Some(seen) = self.seen.recv() => drop(self.settled(&seen)),
                Some((turn_id, done)) = self.publishing.next() => self.published(&turn_id, done)?,
                () = tokio::time::sleep_until(end) => anyhow::bail!("not all turns have begun within {} s", DRAIN_TIMEOUT.as_secs()),
            }
            progress.tick(&format!("{} turns have begun", self.begun));
        }
        Ok(())
    }

    /// Waits for the replies to all pending messages. Latencies count from `since`.
    pub(super) async fn await_all(&mut self, since: Instant) -> anyhow::Result<Measured> {
        let mut window = Window::new(since, 2 * DRAIN_TIMEOUT)?;
        for pending in self.pending.values_mut() {
            pending.intended = since;
        }
        self.drain(&mut window).await?;
        let unanswered = std::mem::take(&mut self.pending).len();
        let seconds = since.elapsed().as_secs_f64();
        let Window { latencies, turns, hot_turns, .. } = window;
        let (refused, begun_peak) = (self.refused, self.begun_peak);
        Ok(Measured { latencies, turns, seconds, unanswered, answered: turns, refused, begun_peak, hot_turns })
    }

    async fn drive(&mut self, arrivals: Arrivals, window: &mut Window, progress: &dyn Progress) -> anyhow::Result<()> {
        for _ in 0..self.hot_users {
            self.write_hot();
        }
        let gap = match arrivals {
            Arrivals::Closed(users) => {
                for _ in 0..users {
                    self.write(Instant::now());
                }
                None
            }
            Arrivals::Open(rate) => Some(Duration::from_secs_f64(1.0 / rate)),
        };
        let mut due = Instant::now();
        let mut buffer = Vec::new();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < window.until {
            tokio::select! {
                count = self.seen.recv_many(&mut buffer, 1_024) => anyhow::ensure!(count > 0, "the reader of replies has stopped"),
                Some((turn_id, done)) = self.publishing.next() => self.published(&turn_id, done)?,
                () = tokio::time::sleep_until(due.into()), if gap.is_some() => {}
                () = tokio::time::sleep_until(window.until.into()) => {}
                _ = second.tick() => self.report_progress(window, progress),
            }
            for seen in buffer.drain(..) {
                let Some(pending) = self.settled(&seen) else { continue };
                window.settle(&pending, seen.at);
                match pending.hot {
                    true => self.write_hot(),
                    false if gap.is_none() => self.write(Instant::now()),
                    false => {}
                }
            }
            while let Some(gap) = gap
                && due <= Instant::now()
                && due < window.until
            {
                self.write(due);
                due += gap;
            }
        }
        Ok(())
    }

    async fn drain(&mut self, window: &mut Window) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        while !self.pending.is_empty() {
            tokio::select! {
                seen = self.seen.recv() => {
                    let Some(seen) = seen else { break };
                    if let Some(pending) = self.settled(&seen) {
                        window.settle(&pending, seen.at);
                    }
                }
                Some((turn_id, done)) = self.publishing.next() => self.published(&turn_id, done)?,
                () = tokio::time::sleep_until(end) => break,
            }
        }
        Ok(())
    }

    fn report_progress(&self, window: &Window, progress: &dyn Progress) {
        let now = Instant::now();
        let text = match now.checked_duration_since(window.from) {
            None => "warming up".to_owned(),
            Some(past) => {
                let rate = window.turns as f64 / past.as_secs_f64().max(0.001);
                let all = window.until - window.from;
                format!("{} of {} s, {rate:.0} turns/s, {} waiting", past.as_secs(), all.as_secs(), self.pending.len())
            }
        };
        progress.tick(&text);
    }

    /// Sends a message to the hot session; its number follows those of the other sessions.
    fn write_hot(&mut self) {
        self.send(self.sessions, None, Instant::now());
    }

    /// Sends a message to a random session, preferably to one without a pending message.
    fn write(&mut self, intended: Instant) {
        match self.idle.len() {
            0 => {
                let session = self.random.random_range(0..self.sessions);
                self.send(session, None, intended);
            }
            idle => {
                let session = self.idle.swap_remove(self.random.random_range(0..idle));
                self.send(session, Some(session), intended);
            }
        }
    }

    fn send(&mut self, session: usize, taken: Option<usize>, intended: Instant) {
        let (session_id, job_id) = (format!("s{session}"), format!("j{}", self.sent));
        let text = SAYINGS[(self.sent % SAYINGS.len() as u64) as usize];
        self.sent += 1;
        let body = JobBody::UserMessage(UserMessage {
            agent_id: Some(AGENT.to_owned()),
            text: text.to_owned(),
            user_id: Some(format!("u{session}")),
            channel: Some("bench".to_owned()),
            sent_at: Some(clock::now()),
            ..UserMessage::default()
        });
        let job = Job { session_id, job_id: job_id.clone(), body };
        let msg_id = Some(format!("{}:{job_id}", job.session_id));
        let publish = Publish { payload: job.encode(), session_id: job.session_id, msg_id };
        let hot = session == self.sessions;
        self.pending.insert(job_id.clone(), Pending { intended, taken, hot });
        let queue = Arc::clone(&self.queue);
        self.publishing.push(Box::pin(async move { (job_id, queue.publish(publish).await) }));
    }

    fn published(&mut self, turn_id: &str, done: Result<Published, QueueError>) -> anyhow::Result<()> {
        match done {
            Ok(_) => Ok(()),
            Err(QueueError::Full(_)) => {
                self.refused += 1;
                self.forget(turn_id);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn settled(&mut self, seen: &SeenEvent) -> Option<Pending> {
        if !self.pending.contains_key(&seen.turn_id) {
            return None;
        }
        if seen.mark == TurnEvent::Begun {
            self.begun += 1;
            self.begun_peak = self.begun_peak.max(self.begun);
            return None;
        }
        self.begun = self.begun.saturating_sub(1);
        self.forget(&seen.turn_id)
    }

    fn forget(&mut self, turn_id: &str) -> Option<Pending> {
        let pending = self.pending.remove(turn_id)?;
        self.idle.extend(pending.taken);
        Some(pending)
    }
}
