//! Tries all points of a scenario and judges the results.

use super::plan::{Fault, Operation, Point};
use super::run::{Mutant, Report, run, unchanged};
use super::scenario::Scenario;
use super::site::Site;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Maximum of violations that a failing test prints, and of characters of each.
const SHOWN: usize = 8;
const LONGEST: usize = 400;
/// Number of concurrent runs.
const AT_ONCE: usize = 16;
/// Attempts for a run to reach all its points. Concurrent tasks may take another order in one attempt.
const TRIES: usize = 3;
/// Rounds in which a mutant has to be found. Whether a stale worker writes before or after its successor is a race.
const ROUNDS: usize = 10;
/// Time limit for a run until no work is left.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit if a mutant may lose a message for good.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// Tries every kind of fault at every operation.
pub async fn survives(scenario: Scenario, faults: &[Fault]) {
    let begun = Instant::now();
    let (scenario, undisturbed) = undisturbed(scenario, unchanged).await;
    let operations = &undisturbed.operations[0];
    let points: Vec<_> = points(&scenario, operations, faults).into_iter().map(|point| vec![point]).collect();
    let reports = all(&scenario, points, unchanged, PATIENCE).await;
    judge(&scenario, &undisturbed, &reports, begun);
}

/// The calls of a scenario to queue and store without a fault.
pub async fn operations(scenario: Scenario) -> Vec<Operation> {
    undisturbed(scenario, unchanged).await.1.operations.concat()
}

/// Crashes at every operation, and again at every operation of the recovery.
pub async fn survives_twice(scenario: Scenario) {
    let begun = Instant::now();
    let (scenario, undisturbed) = undisturbed(scenario, unchanged).await;
    let firsts = points(&scenario, &undisturbed.operations[0], &[Fault::CrashAfter]);
    let once = all(&scenario, firsts.into_iter().map(|point| vec![point]).collect(), unchanged, PATIENCE).await;
    let mut pairs = Vec::new();
    for (first, report) in once {
        let recovery = report.operations.get(1).cloned().unwrap_or_default();
        pairs.extend(
            points(&scenario, &recovery, &Fault::CRASHES).into_iter().map(|second| vec![first[0].clone(), second]),
        );
    }
    let reports = all(&scenario, pairs, unchanged, PATIENCE).await;
    judge(&scenario, &undisturbed, &reports, begun);
}

/// Asserts that a mutant causes a violation that contains `what`, and that it causes none without a fault.
pub async fn finds(what: &str, scenario: Scenario, mutant: Mutant, faults: &[Fault]) {
    let (scenario, undisturbed) = undisturbed(scenario, mutant).await;
    let points = points(&scenario, &undisturbed.operations[0], faults).into_iter().map(|point| vec![point]);
    let points: Vec<_> = points.collect();
    let mut violations: Vec<String> = Vec::new();
    for round in 1..=ROUNDS {
        let reports = all(&scenario, points.clone(), mutant, IMPATIENCE).await;
        violations = reports.iter().flat_map(|(points, report)| described(&scenario, points, report)).collect();
        let found: Vec<_> = violations.iter().filter(|violation| violation.contains(what)).collect();
        println!(
            "round {round}: {} of {} violations contain “{what}”, such as: {:?}",
            found.len(),
            violations.len(),
            found.first()
        );
        if !found.is_empty() {
            return;
        }
    }
    panic!("the violation was not found; in the last round {}", in_short(scenario.name, &violations));
}

/// Runs the scenario without a fault. Concurrent tasks may share calls, so the run with fewer calls of two counts.
async fn undisturbed(scenario: Scenario, mutant: Mutant) -> (Arc<Scenario>, Report) {
    let site = Site::new().await;
    let mut shortest: Option<Report> = None;
    for _ in 0..2 {
        let report = run(&site, &scenario, &[], mutant, PATIENCE).await;
        assert!(report.violations.is_empty(), "undisturbed: {}", in_short(scenario.name, &report.violations));
        if shortest.as_ref().is_none_or(|known| report.operations[0].len() < known.operations[0].len()) {
            shortest = Some(report);
        }
    }
    (Arc::new(scenario), shortest.expect("one of two"))
}

fn points(scenario: &Scenario, operations: &[Operation], faults: &[Fault]) -> Vec<Point> {
    let at = |(number, operation): (usize, &Operation)| {
        let too_late = |fault: &Fault| fault.pauses() && !fault.after() && operation.name == "emit";
        let point = |fault: &Fault| Point { number: number + 1, operation: operation.clone(), fault: *fault };
        let faults = faults.iter().filter(|fault| !(scenario.learns && too_late(fault)));
        faults.map(point).collect::<Vec<_>>()
    };
    operations.iter().enumerate().flat_map(at).collect()
}

/// Runs each list of points, several runs concurrently.
async fn all(
    scenario: &Arc<Scenario>,
    lists: Vec<Vec<Point>>,
    mutant: Mutant,
    patience: Duration,
) -> Vec<(Vec<Point>, Report)> {
    let (turns, sites) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Mutex::new(Vec::new())));
    let mut runs = JoinSet::new();
    for points in lists {
        let (scenario, turns, sites) = (Arc::clone(scenario), Arc::clone(&turns), Arc::clone(&sites));
        runs.spawn(async move {
            let _turn = turns.acquire().await;
            let site = sites.lock().unwrap().pop();
            let site = match site {
                Some(site) => site,
                None => Site::new().await,
            };
            let mut report = run(&site, &scenario, &points, mutant, patience).await;
            for _ in 1..TRIES {
                if report.struck == points.len() || !report.violations.is_empty() {
                    break;
                }
                report = run(&site, &scenario, &points, mutant, patience).await;
            }
            sites.lock().unwrap().push(site);
            (points, report)
        });
    }
    runs.join_all().await
}

/// Writes a summary. Fails with the violations, or if a point was not reached.
fn judge(scenario: &Scenario, undisturbed: &Report, reports: &[(Vec<Point>, Report)], begun: Instant) {
    let mut failures: Vec<String> = Vec::new();
    let (mut missed, mut lost) = (0, 0);
    for (points, report) in reports {
        failures.extend(described(scenario, points, report));
        if scenario.same && report.said != undisturbed.said {
            failures.push(format!("{}, {}: the conversation is {:?}", scenario.name, named(points), report.said));
        }
        if report.struck < points.len() {
            missed += 1;
            failures.push(format!("{}, {}: not reached", scenario.name, named(points)));
        }
        if let Some(how) = report.lost {
            lost += 1;
            failures.push(format!(
                "{}, {}: a worker that was not paused lost its lease: {how}",
                scenario.name,
                named(points)
            ));
        }
    }
    summarize(&format!(
        "{}: {} operations, {} points, {missed} not reached, {lost} with a lease lost by a worker that was not paused, {:.1} s",
        scenario.name,
        undisturbed.operations[0].len(),
        reports.len(),
        begun.elapsed().as_secs_f64(),
    ));
    failures.sort();
    assert!(failures.is_empty(), "{}", in_short(scenario.name, &failures));
}

/// Prints the line, and appends it to the file of all scenarios.
fn summarize(line: &str) {
    println!("{line}");
    let file = format!("{}/crash-points.txt", env!("CARGO_TARGET_TMPDIR"));
    let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The first violations, and the file with all of them.
fn in_short(name: &str, violations: &[String]) -> String {
    let file = format!("{}/crash-{}.txt", env!("CARGO_TARGET_TMPDIR"), name.replace(' ', "-"));
    let written = std::fs::write(&file, violations.join("\n"));
    let shown = violations.iter().take(SHOWN).map(|violation| violation.chars().take(LONGEST).collect::<String>());
    let shown = shown.collect::<Vec<_>>().join("\n");
    format!("{} violations, all of them in {file} ({written:?}); the first:\n{shown}", violations.len())
}

fn described(scenario: &Scenario, points: &[Point], report: &Report) -> Vec<String> {
    let place = format!("{}, {}", scenario.name, named(points));
    report.violations.iter().map(|violation| format!("{place}: {violation}")).collect()
}

fn named(points: &[Point]) -> String {
    points.iter().map(Point::to_string).collect::<Vec<_>>().join(", then ")
}
