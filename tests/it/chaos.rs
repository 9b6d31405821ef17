//! The guarantees under faults: the real command, short and with a fixed seed. `turnwheel chaos --minutes 5` is the long
//! form.

use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn chaos_of_half_a_minute_loses_and_repeats_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_turnwheel"))
        .args(["chaos", "--minutes", "0.5", "--seed", "7", "--rate", "10", "--workers", "2", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    let verdict: Value = serde_json::from_slice(&output.stdout).expect(&told);
    assert_eq!(verdict["violations"], Value::Array(Vec::new()), "{told}");
    for (count, least) in [("turns", 100), ("actions", 50), ("timers_fired", 5), ("bad_jobs", 1)] {
        assert!(verdict["counts"][count].as_u64().unwrap() >= least, "{count}: {told}");
    }
    assert!(verdict["happened"].as_array().unwrap().len() >= 5, "{told}");
}
