//! Checks of the stored data: storage, the largest sessions, the oldest unhandled message.

use super::Finding;
use base::clock;
use std::time::Duration;
use storage::queue::{Queue, Storage};
use storage::store::{SessionSize, Store};
use types::duration;

/// A message that waits longer is worth advice.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// The number of sessions that are named.
const NAMED_SESSIONS: usize = 5;
/// A session of this size is worth advice: its history is bounded, so it has many or large steps.
const LARGE_SESSION: u64 = 64 << 20;
/// The use in percent of a limit that is worth advice, and the one that is a problem.
const NOTABLE_USE: u64 = 75;
const HARMFUL_USE: u64 = 90;

/// Checks how full storage is, names the largest sessions, and looks at the oldest unhandled message.
pub(super) async fn capacity(queue: &dyn Queue, store: &dyn Store) -> Vec<Finding> {
    let mut findings = match stored(queue, store).await {
        Ok(parts) => storage(&parts),
        Err(error) => vec![Finding::unknown("storage", "its size", &error)],
    };
    findings.extend(match store.largest_sessions(NAMED_SESSIONS).await {
        Ok(sizes) => sessions(&sizes),
        Err(error) => Some(Finding::unknown("largest sessions", "their size", &error)),
    });
    findings.push(oldest(queue).await);
    findings
}

async fn stored(queue: &dyn Queue, store: &dyn Store) -> Result<Vec<Storage>, String> {
    let mut parts = queue.storage().await.map_err(|error| error.to_string())?;
    parts.extend(store.storage().await.map_err(|error| error.to_string())?);
    Ok(parts)
}

/// One finding for each part that is nearly full, and one for all others.
fn storage(parts: &[Storage]) -> Vec<Finding> {
    let (mut findings, mut others) = (Vec::new(), Vec::new());
    for part in parts {
        let used = part.max_bytes.map_or(0, |max| part.bytes.saturating_mul(100) / max.max(1));
        let what = match part.max_bytes {
            Some(max) => format!("{} {} of {} ({used} %)", part.part, size(part.bytes), size(max)),
            None => format!("{} {}", part.part, size(part.bytes)),
        };
        match used {
            // The stream of events drops its oldest ones by design, so it may stay full.
            HARMFUL_USE.. if part.part != "out" => findings.push(Finding::problem("storage", what, remedy(part))),
            NOTABLE_USE.. => findings.push(Finding::advice("storage", what, remedy(part))),
            _ => others.push(what),
        }
    }
    if !others.is_empty() {
        findings.insert(0, Finding::ok("storage", others.join(", ")));
    }
    findings
}

fn remedy(part: &Storage) -> &'static str {
    match part.part {
        "jobs" => {
            "start workers, or raise streams.jobs_max_mib and the limit of the stream: it refuses messages when it is full"
        }
        "out" => {
            "raise streams.out_max_mib and the limit of the stream: it drops its oldest events before retention.out"
        }
        "dead" => {
            "`turnwheel dead replay` or `turnwheel dead delete`: it drops its oldest dead letters when it is full"
        }
        _ => {
            "give it a larger disk, or keep less: retention.turns, retention.closed_sessions; docs/operations.md, Capacity"
        }
    }
}

fn sessions(sizes: &[SessionSize]) -> Option<Finding> {
    let place = "largest sessions";
    let largest = sizes.first()?;
    let named: Vec<String> = sizes
        .iter()
        .map(|one| format!("{} {} ({} in steps)", one.session_id, size(one.total()), size(one.step_bytes)))
        .collect();
    let what = named.join(", ");
    if largest.total() < LARGE_SESSION {
        return Some(Finding::ok(place, what));
    }
    let remedy = "`turnwheel sessions show ID --steps` shows what is large: results of tools, or a loop of messages. Steps \
                  expire with retention.turns";
    Some(Finding::advice(place, what, remedy))
}

async fn oldest(queue: &dyn Queue) -> Finding {
    let place = "oldest message";
    let backlog = match queue.backlog().await {
        Ok(backlog) => backlog,
        Err(error) => return Finding::unknown(place, "its age", &error),
    };
    let Some(oldest) = backlog.oldest else { return Finding::ok(place, "no job waits") };
    let waited = Duration::from_secs(oldest.until(clock::now()).as_secs());
    let what = format!("the oldest of {} unhandled jobs has waited for {}", backlog.jobs, duration::format(waited));
    if waited < LONG_WAIT {
        return Finding::ok(place, what);
    }
    let remedy = "start workers, or raise worker.concurrency; a long turn, or a session that cannot be opened, holds its jobs, \
                  too: see the lines about workers and lanes";
    Finding::advice(place, what, remedy)
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut unit, mut scale) = (0, 1_u64);
    while bytes / scale >= 1_024 && unit + 1 < UNITS.len() {
        unit += 1;
        scale *= 1_024;
    }
    let tenths = u128::from(bytes) * 10 / u128::from(scale);
    if unit == 0 || tenths >= 1_000 {
        format!("{} {}", tenths / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1_023, 1_536, 5 << 20, 300 << 20, 3 << 30].map(size);
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "300 MiB", "3.0 GiB"]);
    }

    #[test]
    fn what_is_nearly_full_is_named() {
        let part = |part, bytes, max_bytes| Storage { part, bytes, max_bytes };
        let full = [
            part("jobs", 80, Some(100)),
            part("out", 100, Some(100)),
            part("mongodb", 95, Some(100)),
            part("dead", 1, None),
        ];
        let levels: Vec<(Level, String)> = storage(&full).into_iter().map(|found| (found.level, found.what)).collect();
        let expected = [
            (Level::Ok, "dead 1 B"),
            (Level::Advice, "jobs 80 B of 100 B (80 %)"),
            (Level::Advice, "out 100 B of 100 B (100 %)"),
            (Level::Problem, "mongodb 95 B of 100 B (95 %)"),
        ];
        assert_eq!(levels, expected.map(|(level, what)| (level, what.to_owned())));
    }

    #[test]
    fn a_large_session_is_advice() {
        let of = |step_bytes| SessionSize { session_id: "s1".into(), session_bytes: 2_048, step_bytes };
        assert_eq!(sessions(&[]), None);
        let small = sessions(&[of(1_024)]).unwrap();
        assert_eq!((small.level, small.what.as_str()), (Level::Ok, "s1 3.0 KiB (1.0 KiB in steps)"));
        assert_eq!(sessions(&[of(LARGE_SESSION)]).unwrap().level, Level::Advice);
    }
}
