//! The guarantees under faults: short runs of `turnwheel chaos` with a fixed seed. `turnwheel chaos --minutes 5` is a
//! long run.

use serde_json::Value;
use std::process::{Command, Stdio};

/// Maximum of violations that a failing test prints, of log lines of a run without a verdict, and of characters of
/// each.
const SHOWN: usize = 8;
const LINES: usize = 20;
const LONGEST: usize = 400;

/// Runs the command and checks that its verdict is clean.
fn clean(seed: &str, args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_turnwheel"))
        .args(["chaos", "--minutes", "0.5", "--seed", seed, "--rate", "10", "--workers", "2", "--json"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let Ok(verdict) = serde_json::from_slice::<Value>(&output.stdout) else {
        panic!("{}, without a verdict; the end of its output:\n{}", output.status, end(&output.stderr));
    };
    assert!(output.status.success() && verdict["clean"] == true, "{}", in_short(&verdict));
    verdict
}

fn end(told: &[u8]) -> String {
    let text = String::from_utf8_lossy(told);
    let lines: Vec<String> = text.lines().map(|line| line.chars().take(LONGEST).collect()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// A summary of a verdict: the first violations, and the folder with all of them.
fn in_short(verdict: &Value) -> String {
    let violations = verdict["violations"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = violations.iter().take(SHOWN).map(|violation| violation.to_string().chars().take(LONGEST).collect());
    let shown: Vec<String> = shown.collect();
    format!(
        "{} violations with seed {}, quiet after {}; faults {}; counts {}\n{}\nall of them (verdict.json), facts.json and the \
         logs are in {}",
        violations.len(),
        verdict["seed"],
        verdict["quiet_after_s"],
        verdict["faults"],
        verdict["counts"],
        shown.join("\n"),
        verdict["folder"],
    )
}

fn has_seen_something(verdict: &Value, faults: usize) {
    for (count, least) in
        [("turns", 100), ("actions", 50), ("timers_fired", 5), ("bad_jobs", 1), ("dialogues", 2), ("workflows", 2)]
    {
        assert!(verdict["counts"][count].as_u64().unwrap() >= least, "{count}: {}", in_short(verdict));
    }
    assert!(verdict["happened"].as_array().unwrap().len() >= faults, "{}", in_short(verdict));
}

#[test]
fn chaos_of_half_a_minute_loses_and_repeats_nothing() {
    has_seen_something(&clean("7", &[]), 5);
}

/// Three servers of each kind. Without rolling restarts, which take too long for half a minute.
#[test]
fn chaos_with_replicas_of_half_a_minute_loses_and_repeats_nothing() {
    let faults = "worker-kill,worker-pause,workers-kill,nats-kill,nats-pause,nats-step-down,nats-follower-kill,nats-cut-off,\
                  mongodb-step-down,mongodb-kill,mongodb-pause,mongodb-secondary-kill,mongodb-cut-off";
    let verdict = clean("7", &["--replicas", "3", "--faults", faults]);
    has_seen_something(&verdict, 5);
    assert_eq!((&verdict["replicas"], &verdict["members"]), (&3.into(), &3.into()));
}

#[test]
fn a_failing_run_is_told_within_a_screen() {
    let violation = serde_json::json!({"promise": "nothing_lost", "session_id": "c1", "what": "x".repeat(40_000)});
    let verdict = serde_json::json!({"violations": vec![violation; 5_000], "seed": 7, "folder": "/kept"});
    let told = in_short(&verdict);
    assert!(told.lines().count() <= 24 && told.len() < 6_000 && told.contains("/kept"), "{told}");
}
