//! Jobs: the lanes in memory, as the file has them, and what is handed out.

use crate::clock::{self, Timestamp};
use crate::queue::{Delivery, DeliveryToken, Message, Publish};
use crate::store::embedded::EmbeddedFile;
use crate::store::embedded::fault::Fault;
use crate::store::embedded::tables::{self, Tables};
use bytes::Bytes;
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// The counter of job sequences in the file.
const LAST: &str = "last_job";
/// When the job stream was made.
const CREATED: &str = "jobs_created";

/// See the module.
pub(super) struct Jobs {
    created: u64,
    last: u64,
    messages: BTreeMap<u64, Message>,
    lanes: HashMap<String, BTreeSet<u64>>,
    /// Published and on their way to the file: they count for the lane's depth.
    arriving: HashMap<String, u64>,
    ids: HashMap<String, (u64, Timestamp)>,
    /// When what is handed out comes again.
    handed_out: HashMap<u64, (String, Instant)>,
    /// What may be handed out, by time.
    waiting: BTreeSet<(Instant, u64)>,
    tokens: u64,
}

/// Reads the jobs of the file.
pub(super) fn load(file: &EmbeddedFile) -> Result<Jobs, Fault> {
    let now = Instant::now();
    let mut jobs = Jobs {
        created: 0,
        last: 0,
        messages: BTreeMap::new(),
        lanes: HashMap::new(),
        arriving: HashMap::new(),
        ids: HashMap::new(),
        handed_out: HashMap::new(),
        waiting: BTreeSet::new(),
        tokens: 0,
    };
    let created = u64::try_from(clock::now().as_millis()).unwrap_or(0);
    file.read(|read| {
        let meta = read.open_table(tables::META)?;
        jobs.last = meta.get(LAST)?.map_or(0, |last| last.value());
        jobs.created = meta.get(CREATED)?.map_or(created, |created| created.value());
        for row in read.open_table(tables::JOBS)?.iter()? {
            let (seq, row) = row?;
            let (at, session_id, msg_id, payload) = row.value();
            let message = Message {
                session_id: session_id.to_owned(),
                seq: seq.value(),
                payload: Bytes::copy_from_slice(payload),
                msg_id: msg_id.map(str::to_owned),
                default_id: format!("{}-{}", jobs.created, seq.value()),
                at: Timestamp::from_millis(at),
            };
            jobs.lanes.entry(message.session_id.clone()).or_default().insert(message.seq);
            jobs.waiting.insert((now, message.seq));
            jobs.messages.insert(message.seq, message);
        }
        for row in read.open_table(tables::JOB_IDS)?.iter()? {
            let (seq, row) = row?;
            jobs.ids.insert(row.value().1.to_owned(), (seq.value(), Timestamp::from_millis(row.value().0)));
        }
        Ok(())
    })?;
    let created = jobs.created;
    file.write_lazily(move |tables| {
        if tables.meta.get(CREATED)?.is_none() {
            tables.meta.insert(CREATED, created)?;
        }
        Ok(())
    });
    Ok(jobs)
}

/// Writes a job.
pub(super) fn insert(tables: &mut Tables<'_>, message: &Message) -> Result<(), Fault> {
    let at = message.at.as_millis();
    super::next_seq(tables, LAST, message.seq)?;
    let row = (at, message.session_id.as_str(), message.msg_id.as_deref(), message.payload.as_ref());
    tables.jobs.insert(message.seq, row)?;
    if let Some(msg_id) = &message.msg_id {
        tables.job_ids.insert(message.seq, (at, msg_id.as_str()))?;
    }
    // A few expired ids go with each new one.
    let before = message.at.minus(super::DUPLICATE_WINDOW).as_millis();
    let mut expired = Vec::new();
    for row in tables.job_ids.iter()?.take(4) {
        let (seq, row) = row?;
        if row.value().0 < before {
            expired.push(seq.value());
        }
    }
    for seq in expired {
        tables.job_ids.remove(seq)?;
    }
    Ok(())
}

impl Jobs {
    /// The sequence of a message id within the window.
    pub(super) fn known_id(&mut self, msg_id: &str, since: Timestamp) -> Option<u64> {
        let (seq, at) = self.ids.get(msg_id)?;
        if *at >= since {
            return Some(*seq);
        }
        self.ids.retain(|_, (_, at)| *at >= since);
        None
    }

    /// Messages that wait in a lane.
    pub(super) fn depth(&self, session_id: &str) -> u64 {
        let waiting = self.lanes.get(session_id).map_or(0, BTreeSet::len);
        u64::try_from(waiting).unwrap_or(u64::MAX) + self.arriving.get(session_id).copied().unwrap_or(0)
    }

    /// Gives a job its place.
    pub(super) fn begin(&mut self, job: Publish, now: Timestamp) -> Message {
        self.last += 1;
        let seq = self.last;
        *self.arriving.entry(job.session_id.clone()).or_default() += 1;
        if let Some(msg_id) = &job.msg_id {
            self.ids.insert(msg_id.clone(), (seq, now));
        }
        let default_id = format!("{}-{seq}", self.created);
        Message { session_id: job.session_id, seq, payload: job.payload, msg_id: job.msg_id, default_id, at: now }
    }

    /// A job is in the file.
    pub(super) fn arrive(&mut self, message: Message) {
        if let Some(arriving) = self.arriving.get_mut(&message.session_id) {
            *arriving -= 1;
            if *arriving == 0 {
                self.arriving.remove(&message.session_id);
            }
        }
        self.lanes.entry(message.session_id.clone()).or_default().insert(message.seq);
        self.waiting.insert((Instant::now(), message.seq));
        self.messages.insert(message.seq, message);
    }

    /// Hands out what may be handed out now; else says when to look again.
    pub(super) fn hand_out(&mut self, max: usize, ack_wait: Duration) -> (Vec<Delivery>, Option<Instant>) {
        let now = Instant::now();
        let mut deliveries = Vec::new();
        while deliveries.len() < max
            && let Some((at, seq)) = self.waiting.first().copied()
        {
            if at > now {
                break;
            }
            self.waiting.pop_first();
            let Some(message) = self.messages.get(&seq).cloned() else { continue };
            self.tokens += 1;
            let token = format!("{seq}:{}", self.tokens);
            let again = now + ack_wait;
            self.handed_out.insert(seq, (token.clone(), again));
            self.waiting.insert((again, seq));
            deliveries.push(Delivery { message, token: DeliveryToken(token) });
        }
        (deliveries, self.waiting.first().map(|(at, _)| *at))
    }

    pub(super) fn next_in_lane(&self, session_id: &str, after: u64) -> Option<Message> {
        let seq = self.lanes.get(session_id)?.range(after + 1..).next()?;
        self.messages.get(seq).cloned()
    }

    /// Removes a job, whoever acknowledges it; answers its sequence unless it was gone.
    pub(super) fn acknowledge(&mut self, token: &DeliveryToken) -> Option<u64> {
        let seq = token.0.split(':').next()?.parse().ok()?;
        if let Some((_, at)) = self.handed_out.remove(&seq) {
            self.waiting.remove(&(at, seq));
        }
        let message = self.messages.remove(&seq)?;
        if let Some(lane) = self.lanes.get_mut(&message.session_id) {
            lane.remove(&seq);
            if lane.is_empty() {
                self.lanes.remove(&message.session_id);
            }
        }
        Some(seq)
    }

    /// Moves the time at which a delivery comes again, if it is the latest of its job.
    pub(super) fn again_at(&mut self, token: &DeliveryToken, at: Instant) {
        let Some(seq) = token.0.split(':').next().and_then(|seq| seq.parse().ok()) else { return };
        if let Some((latest, again)) = self.handed_out.get_mut(&seq)
            && *latest == token.0
        {
            self.waiting.remove(&(*again, seq));
            *again = at;
            self.waiting.insert((at, seq));
        }
    }
}
