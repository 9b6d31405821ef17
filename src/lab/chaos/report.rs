//! The verdict: the figures of a run, and the broken promises.

use super::checker::{Counts, Violation};
use super::faults::{Fault, Happened};
use super::load::Published;
use super::recovery::{Recovered, Times};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum of printed violations, and of characters of each; `verdict.json` has all of them.
const MAX_SHOWN: usize = 8;
const MAX_CHARS: usize = 300;

/// The result of a run. Serializes to the JSON that `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// All promises were kept.
    pub clean: bool,
    /// The same seed repeats the same conversations and faults.
    pub seed: u64,
    /// How long faults happened, in minutes.
    pub minutes: f64,
    /// NATS servers, each with a copy of every stream.
    pub replicas: usize,
    /// Members of the MongoDB replica set.
    pub members: usize,
    /// Counts of the published messages.
    pub published: Published,
    /// Counts of turns, replies, actions and timers.
    pub counts: Counts,
    /// Number of faults by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Deliveries beyond the first of each job; `None` if unknown.
    pub redeliveries: Option<u64>,
    /// NATS servers that caught up with their leader only after a restart, because of a defect of the server.
    pub mended: u64,
    /// Recovery times of turns that were in flight in killed workers.
    pub recovery: Recovered,
    /// Delay between due time and effect of timers, including delays by faults.
    pub timers_late: Times,
    /// Seconds from the last fault until no work was left; `None` if work remained at the deadline.
    pub quiet_after_s: Option<f64>,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// All faults in order.
    pub happened: Vec<Happened>,
    /// Folder with the logs of all processes, if it was kept.
    pub folder: Option<PathBuf>,
}

/// Counts faults by kind.
pub(super) fn by_kind(happened: &[Happened]) -> BTreeMap<Fault, u64> {
    let mut faults = BTreeMap::new();
    for happened in happened {
        *faults.entry(happened.fault).or_default() += 1;
    }
    faults
}

/// Rounds to seconds with one digit after the decimal point.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.clean { "nothing lost, nothing twice" } else { "PROMISES WERE BROKEN" };
        let Self { seed, minutes, replicas, members, .. } = self;
        let servers = format!("{replicas} NATS server(s), {members} mongod(s)");
        writeln!(f, "{outcome} (seed {seed}, {minutes} minutes of faults, {servers})")?;
        self.fmt_counts(f)?;
        self.fmt_recovery(f)?;
        for violation in self.violations.iter().take(MAX_SHOWN) {
            let at = if violation.session_id.is_empty() { "run" } else { &violation.session_id };
            let what: String = violation.what.chars().take(MAX_CHARS).collect();
            let cut = if what.len() < violation.what.len() { "…" } else { "" };
            writeln!(f, "  broken: {:?} in {at}: {what}{cut}", violation.promise)?;
        }
        if self.violations.len() > MAX_SHOWN {
            writeln!(f, "  … and {} more", self.violations.len() - MAX_SHOWN)?;
        }
        if let Some(folder) = &self.folder {
            writeln!(f, "  all violations (verdict.json), facts.json and the logs are in {}", folder.display())?;
        }
        Ok(())
    }
}

impl Verdict {
    fn fmt_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (published, counts) = (&self.published, &self.counts);
        writeln!(
            f,
            "  messages   {} in {} sessions, {} accepted; published again: {} on purpose, {} without an acknowledgement",
            published.messages, counts.sessions, published.accepted, published.repeated, published.retried
        )?;
        writeln!(
            f,
            "  turns      {}, {} messages merged into them, {} begun more than once, {} dead-lettered; {} invalid jobs",
            counts.turns, counts.merged, counts.turns_resumed, counts.given_up, counts.bad_jobs
        )?;
        writeln!(
            f,
            "  effects    {} replies ({} published again with the same id), {} actions ({} called again with the same key)",
            counts.replies, counts.replies_repeated, counts.actions, counts.calls_repeated
        )?;
        writeln!(
            f,
            "  timers     {} fired, {} cancelled; late p50 {}, p99 {}, at most {}",
            counts.timers_fired,
            counts.timers_cancelled,
            millis(self.timers_late.p50_ms),
            millis(self.timers_late.p99_ms),
            millis(self.timers_late.max_ms)
        )?;
        writeln!(f, "  authoring  {} dialogues, {} workflows published", counts.dialogues, counts.workflows)?;
        let faults: Vec<String> = self.faults.iter().map(|(fault, times)| format!("{fault} {times}")).collect();
        writeln!(f, "  faults     {}: {}", self.happened.len(), faults.join(", "))
    }

    fn fmt_recovery(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |times: &Times| {
            let Times { turns, p50_ms, p99_ms, max_ms } = *times;
            format!("p50 {}, p99 {}, at most {} ({turns} turns)", millis(p50_ms), millis(p99_ms), millis(max_ms))
        };
        let Recovered { undisturbed, all, unseen_kills } = &self.recovery;
        writeln!(f, "  recovery   of a killed worker's turns: {}", line(undisturbed))?;
        writeln!(f, "             including turns that another fault hit: {}", line(all))?;
        if *unseen_kills > 0 {
            writeln!(f, "             not counted: {unseen_kills} kills while MongoDB was unreachable")?;
        }
        let redeliveries = self.redeliveries.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let quiet = match self.quiet_after_s {
            Some(seconds) => format!("no work left {seconds} s after the last fault"),
            None => "work was still left at the deadline".to_owned(),
        };
        let mended = match self.mended {
            0 => String::new(),
            mended => format!("; {mended} NATS server(s) restarted because they did not catch up"),
        };
        writeln!(f, "  queue      {redeliveries} redeliveries; {quiet}{mended}")
    }
}

#[allow(clippy::cast_precision_loss)] // Exact up to 2^53 milliseconds.
fn millis(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{:.1} s", millis as f64 / 1_000.0) }
}
