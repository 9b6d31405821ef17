//! The units of systemd.

use super::{file, printed, read};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const UNITS: [&str; 3] = ["turnwheel-worker@1.service", "turnwheel-scheduler.service", "turnwheel-gateway.service"];

/// A root folder with the units, the program they start, and the targets they need.
fn installed() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let (units, programs) = (root.path().join("etc/systemd/system"), root.path().join("usr/local/bin"));
    fs::create_dir_all(&programs).unwrap();
    fs::create_dir_all(units.parent().unwrap()).unwrap();
    printed(Command::new("cp").arg("-r").arg(file("systemd")).arg(&units));
    fs::write(programs.join("turnwheel"), "#!/bin/sh\n").unwrap();
    printed(Command::new("chmod").arg("+x").arg(programs.join("turnwheel")));
    for target in ["sysinit", "basic", "shutdown", "network-online", "multi-user"] {
        fs::write(units.join(format!("{target}.target")), "[Unit]\nDefaultDependencies=no\n").unwrap();
    }
    root
}

/// Runs `systemd-analyze` on all units, if the machine has it.
fn analyzed(root: &Path, arguments: &[&str]) -> Option<Output> {
    let mut analyze = Command::new("systemd-analyze");
    let ended = analyze.args(arguments).arg(format!("--root={}", root.display())).args(UNITS).output();
    if ended.is_err() {
        println!("skipped: systemd-analyze is not on the PATH");
    }
    ended.ok()
}

#[test]
fn each_unit_has_the_secrets_of_its_role_alone() {
    for (unit, role) in [
        ("turnwheel-worker@.service", "worker"),
        ("turnwheel-scheduler.service", "scheduler"),
        ("turnwheel-gateway.service", "gateway"),
    ] {
        let text = read(&format!("systemd/{unit}"));
        let files: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("EnvironmentFile=")).collect();
        assert_eq!(files, [format!("/etc/turnwheel/{role}.env")], "{unit}");
        assert!(text.contains(&format!("ExecStart=/usr/local/bin/turnwheel {role}\n")), "{unit}");
    }
    let common = read("systemd/turnwheel-.service.d/common.conf");
    for line in ["DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="] {
        assert!(common.lines().any(|found| found == line), "{line}");
    }
}

/// `verify` succeeds with a warning for a key that systemd does not know.
#[test]
fn the_units_have_the_form_that_systemd_reads() {
    let root = installed();
    let verify = ["verify", "--man=no"];
    let Some(ended) = analyzed(root.path(), &verify) else { return };
    let warnings = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && warnings.is_empty(), "{warnings}");
    let path = root.path().join("etc/systemd/system/turnwheel-.service.d/common.conf");
    let wrong = fs::read_to_string(&path).unwrap().replace("ProtectSystem", "ProtectSytem");
    fs::write(&path, wrong).unwrap();
    let ended = analyzed(root.path(), &verify).unwrap();
    assert!(String::from_utf8_lossy(&ended.stderr).contains("Unknown key 'ProtectSytem'"));
}

/// The threshold is in tenths of the exposure level, of which 10 is the worst.
#[test]
fn the_units_are_confined() {
    let root = installed();
    let security = ["security", "--no-pager", "--offline=true", "--threshold=15"];
    let Some(ended) = analyzed(root.path(), &security) else { return };
    let report = String::from_utf8_lossy(&ended.stdout);
    let levels: Vec<&str> = report.lines().filter(|line| line.contains("exposure level")).collect();
    assert!(ended.status.success() && levels.len() == UNITS.len(), "{levels:?}");
}
