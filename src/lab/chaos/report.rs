//! The verdict: what happened, and whether the promises were kept.

use super::checker::{Counts, Violation};
use super::faults::{Fault, Happened};
use super::load::Published;
use super::recovery::{Recovered, Times};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Violations that are printed, and characters of each; all of them are in `verdict.json`.
const SHOWN: usize = 8;
const LONGEST: usize = 300;

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Every promise was kept.
    pub clean: bool,
    /// The same seed says, suffers and expects the same.
    pub seed: u64,
    /// How long faults happened.
    pub minutes: f64,
    /// NATS servers, each with a copy of every stream.
    pub replicas: usize,
    /// Members of the MongoDB replica set.
    pub members: usize,
    /// What was published.
    pub published: Published,
    /// What came of it.
    pub counts: Counts,
    /// Faults by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Deliveries beyond the first of each job, where known.
    pub redeliveries: Option<u64>,
    /// NATS servers that caught up with their leader only after a restart: a defect of the server, not of Turnwheel.
    pub mended: u64,
    /// How long the turns in hand of killed workers took.
    pub recovery: Recovered,
    /// How late timers took effect, faults and all.
    pub timers_late: Times,
    /// How long it took until all was quiet after the last fault; `None` if it did not become quiet.
    pub quiet_after_s: Option<f64>,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Every fault.
    pub happened: Vec<Happened>,
    /// Where the logs of all processes are, if they were kept.
    pub folder: Option<PathBuf>,
}

/// Faults by kind.
pub(super) fn by_kind(happened: &[Happened]) -> BTreeMap<Fault, u64> {
    let mut faults = BTreeMap::new();
    for happened in happened {
        *faults.entry(happened.fault).or_default() += 1;
    }
    faults
}

/// Seconds with one digit after the point.
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
        for violation in self.violations.iter().take(SHOWN) {
            let at = if violation.session_id.is_empty() { "run" } else { &violation.session_id };
            let what: String = violation.what.chars().take(LONGEST).collect();
            let cut = if what.len() < violation.what.len() { "…" } else { "" };
            writeln!(f, "  broken: {:?} in {at}: {what}{cut}", violation.promise)?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "  … and {} more", self.violations.len() - SHOWN)?;
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
            "  messages   {} in {} sessions, {} accepted; {} sent again on purpose, {} for want of an acknowledgement",
            published.messages, counts.sessions, published.accepted, published.repeated, published.retried
        )?;
        writeln!(
            f,
            "  turns      {}, {} messages merged into them, {} begun more than once, {} given up; {} bad jobs",
            counts.turns, counts.merged, counts.turns_resumed, counts.given_up, counts.bad_jobs
        )?;
        writeln!(
            f,
            "  effects    {} replies ({} seen again under their id), {} actions ({} called again under their key)",
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
        writeln!(f, "             with those that something else hit, too: {}", line(all))?;
        if *unseen_kills > 0 {
            writeln!(f, "             not counted: {unseen_kills} kills while the store was away")?;
        }
        let redeliveries = self.redeliveries.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let quiet = match self.quiet_after_s {
            Some(seconds) => format!("quiet {seconds} s after the last fault"),
            None => "it did not become quiet".to_owned(),
        };
        let mended = match self.mended {
            0 => String::new(),
            mended => format!("; {mended} NATS server(s) restarted, since they did not catch up by themselves"),
        };
        writeln!(f, "  queue      {redeliveries} redeliveries; {quiet}{mended}")
    }
}

#[allow(clippy::cast_precision_loss)] // Nobody waits for that many milliseconds.
fn millis(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{:.1} s", millis as f64 / 1_000.0) }
}
