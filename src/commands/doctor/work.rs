//! Checks of the data in store and queue: invalid agents, abandoned lanes, overdue timers, dead letters.

use super::Finding;
use super::capacity::capacity;
use base::config::Settings;
use definitions::agent::validate::KnownNames;
use engine::admission::WorkersOverview;
use engine::worker::rewind;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::records::SessionQuery;
use storage::store::{Damaged, Listed, Store, StoreError};

/// For how long a job counts that a worker has left to newer workers. Such a job is tried every 15 s.
const LEFT_WITHIN: Duration = Duration::from_secs(60);
/// A lane that is abandoned for this long is a problem, since the scheduler has woken it several times by then.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// A timer that is overdue by this much is a problem.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// The number of recently changed sessions that are compared with the stream.
const MAX_COMPARED_SESSIONS: usize = 20;
/// The largest number of items of each kind that are counted.
const MAX_COUNTED: usize = 1_000;
/// The largest number of items that are named.
const MAX_NAMED: usize = 5;

/// Checks workers, agents, lanes, timers and dead letters. Validates agents against the running workers, or against the
/// names `here` when none runs.
pub async fn work(queue: &dyn Queue, store: &dyn Store, settings: &Settings, here: &KnownNames) -> Vec<Finding> {
    let mut findings = match checked(store, settings, here).await {
        Ok((crew, known)) => {
            let mut findings = workers(&crew, settings);
            findings.extend(left_to_newer(&crew));
            findings.extend(agents(store, &known).await);
            findings
        }
        Err(error) => vec![away("workers", &error)],
    };
    findings.push(lanes(store).await);
    findings.push(sequences(queue, store).await);
    findings.push(timers(store).await);
    findings.push(dead_letters(queue).await);
    findings.extend(capacity(queue, store).await);
    findings
}

async fn checked(
    store: &dyn Store,
    settings: &Settings,
    here: &KnownNames,
) -> Result<(WorkersOverview, KnownNames), StoreError> {
    let crew = WorkersOverview::from_store(store).await?;
    let local = here.clone().with_private(settings.http.allow_private.clone());
    let known = crew.check_against(store, &local).await?;
    Ok((crew, known))
}

/// Checks whether workers run, and whether they have the same settings.
fn workers(crew: &WorkersOverview, settings: &Settings) -> Vec<Finding> {
    if crew.is_empty() {
        let what = "none runs: agents are validated against the settings here";
        return vec![Finding::advice("workers", what, "start `turnwheel worker`")];
    }
    let mut findings: Vec<_> = crew
        .differences()
        .into_iter()
        .map(|what| {
            let remedy = "give all workers the same settings and the same version";
            Finding::advice("workers", format!("they differ in {what}"), remedy)
        })
        .collect();
    if findings.is_empty() {
        let differing = crew.differing(settings);
        let note =
            if differing.is_empty() { String::new() } else { format!("; different here: {}", differing.join("; ")) };
        findings.push(Finding::ok("workers", format!("{} run{note}", crew.len())));
    }
    findings
}

/// Reports jobs that workers have lately left to workers of a newer version.
fn left_to_newer(crew: &WorkersOverview) -> Option<Finding> {
    let (leaving, known) = crew.leaving_to_newer(base::clock::now(), LEFT_WITHIN)?;
    let what = format!("{leaving} of {} workers leave jobs to workers of a newer version", crew.len());
    Some(match crew.highest_format() > known {
        true => Finding::advice("newer jobs", what, "finish the upgrade: replace the older workers"),
        false => Finding::problem(
            "newer jobs",
            format!("{what}, and no such worker runs: these jobs wait"),
            "start workers of the newer version again; the jobs are kept until then",
        ),
    })
}

fn away(place: &str, error: &dyn std::fmt::Display) -> Finding {
    Finding::problem(place, error.to_string(), "correct the findings about the servers, and try again")
}

async fn agents(store: &dyn Store, known: &KnownNames) -> Vec<Finding> {
    let Listed { good: agents, damaged } = match store.agents().await {
        Ok(agents) => agents,
        Err(error) => return vec![away("agents", &error)],
    };
    if agents.is_empty() && damaged.is_empty() {
        let remedy = "store some with `turnwheel agents apply`";
        return vec![Finding::advice("agents", "no agent is stored: every message becomes a dead letter", remedy)];
    }
    let count = agents.len();
    let remedy = "correct its file, and store it with `turnwheel agents apply`";
    let unread =
        |Damaged { id, problem }| Finding::problem(format!("agent {id}"), format!("cannot be read: {problem}"), remedy);
    let mut findings: Vec<_> = damaged.into_iter().map(unread).collect();
    for agent in agents {
        let place = format!("agent {}", agent.id());
        match known.check(agent.as_ref().clone()) {
            Ok((_, warnings)) => findings
                .extend(warnings.into_iter().map(|warning| Finding::advice(&place, warning.to_string(), remedy))),
            Err(problem) => findings.push(Finding::problem(place, problem.to_string(), remedy)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("agents", format!("{count} in the store, all valid")));
    }
    findings
}

/// Joins the first few names of a list.
fn named(all: &[String]) -> String {
    let more = all.len().saturating_sub(MAX_NAMED);
    let shown = all[..all.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

async fn lanes(store: &dyn Store) -> Finding {
    match store.abandoned_lanes(STUCK_AFTER, MAX_COUNTED).await {
        Ok(lanes) if lanes.is_empty() => Finding::ok("lanes", "no session has abandoned work"),
        Ok(lanes) => {
            let ids: Vec<_> = lanes.into_iter().map(|lane| lane.session_id).collect();
            let what = format!("work without a worker for {} s in {}", STUCK_AFTER.as_secs(), named(&ids));
            let remedy = "is a worker running, and a scheduler, which wakes them? See their logs for these sessions";
            Finding::problem("lanes", what, remedy)
        }
        Err(error) => away("lanes", &error),
    }
}

/// Checks whether the sessions that changed last match the current stream of jobs.
async fn sequences(queue: &dyn Queue, store: &dyn Store) -> Finding {
    let stream = match queue.stream().await {
        Ok(stream) => stream,
        Err(error) => return away("sequences", &error),
    };
    let sessions = match store.sessions(SessionQuery { limit: MAX_COMPARED_SESSIONS, ..SessionQuery::default() }).await
    {
        Ok(sessions) => sessions,
        Err(error) => return away("sequences", &error),
    };
    match rewind::difference(&stream, &sessions) {
        None => Finding::ok("sequences", "sessions and the stream of jobs match"),
        Some(what) => {
            let remedy = "sessions adjust themselves with their next message; programs that have published jobs since \
                          the last processed one should publish them again, under the same job_id";
            Finding::problem("sequences", what, remedy)
        }
    }
}

async fn timers(store: &dyn Store) -> Finding {
    let due = match store.due_timers(Duration::ZERO, MAX_COUNTED).await {
        Ok(due) => due,
        Err(error) => return away("timers", &error),
    };
    let late = due.timers.iter().filter(|timer| timer.timer.due_at < due.now.minus(LATE_AFTER));
    let ids: Vec<_> = late.map(|late| late.session_id.clone()).collect();
    if ids.is_empty() {
        return Finding::ok("timers", "none is overdue");
    }
    let what = format!("overdue for more than {} s in {}", LATE_AFTER.as_secs(), named(&ids));
    let remedy = "is a scheduler running, and are workers? `turnwheel timers list` shows them";
    Finding::problem("timers", what, remedy)
}

async fn dead_letters(queue: &dyn Queue) -> Finding {
    let letters = match crate::dead_letters::newest(queue, MAX_COUNTED).await {
        Ok(letters) => letters,
        Err(reject) => return away("dead letters", &reject),
    };
    let Some(newest) = letters.first() else { return Finding::ok("dead letters", "none") };
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for letter in &letters {
        *causes.entry(letter.cause.as_str()).or_default() += 1;
    }
    let counts: Vec<_> = causes.into_iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    let what = format!("{}, the last at {}: {}", counts.join(", "), newest.at, newest.reason);
    let remedy = "`turnwheel dead list` shows them; `turnwheel dead replay` repeats one, or many, after their cause is corrected";
    Finding::advice("dead letters", what, remedy)
}
