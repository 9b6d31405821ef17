//! `deploy/Dockerfile`. The test `container` checks its build context.

use super::{file, printed, read, tool};
use std::process::Command;

fn hadolint() -> Command {
    Command::new(tool("HADOLINT_BIN", "hadolint-", ""))
}

#[test]
fn the_image_has_the_form_that_docker_reads_and_an_unprivileged_user() {
    printed(hadolint().arg(file("Dockerfile")));
    let text = read("Dockerfile");
    let image = text.rsplit("\nFROM ").next().unwrap();
    assert!(image.lines().any(|line| line == "USER 10001:10001"), "{image}");
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("Dockerfile");
    std::fs::write(&wrong, text.replace("USER 10001", "USR 10001")).unwrap();
    assert!(!hadolint().arg(&wrong).output().unwrap().status.success());
}
