//! The Helm chart, as `helm template` renders it.

use super::manifests::{ROLES, check_form, check_pods, check_policies, of_kind};
use super::{documents, file, printed, tool};
use serde_json::{Value, json};
use std::process::Command;

fn helm(arguments: &[&str]) -> Command {
    let mut helm = Command::new(tool("HELM_BIN", "helm-", "helm"));
    helm.args(&arguments[..1]).args(&arguments[1..]);
    helm
}

fn template(values: &[&str]) -> Command {
    let mut template = helm(&["template", "turnwheel"]);
    template.arg(file("helm/turnwheel"));
    for value in values {
        template.args(["--set", value]);
    }
    template
}

fn rendered(values: &[&str]) -> Vec<Value> {
    documents(&printed(&mut template(values)))
}

/// The message of helm for values that it refuses.
fn refusal(values: &[&str]) -> String {
    let ended = template(values).output().unwrap();
    assert!(!ended.status.success(), "{values:?} are accepted");
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn the_chart_renders_what_kubernetes_reads() {
    printed(helm(&["lint", "--strict"]).arg(file("helm/turnwheel")));
    let manifests = rendered(&[]);
    check_form(&manifests);
    check_pods(&manifests);
    check_policies(&manifests);
    for kind in ["Ingress", "ScaledObject", "Secret"] {
        assert!(of_kind(&manifests, kind).is_empty(), "{kind} is not asked for");
    }
    assert_eq!(of_kind(&manifests, "PodDisruptionBudget").len(), ROLES.len());
}

#[test]
fn options_of_the_chart_render_what_kubernetes_reads() {
    let digest = format!("image.digest=sha256:{}", "a".repeat(64));
    let manifests = rendered(&[
        "keda.enabled=true",
        "ingress.enabled=true",
        "ingress.host=chat.example.com",
        "ingress.tlsSecret=chat-tls",
        "caConfigMap=",
        "image.pullSecrets={registry}",
        "worker.nodeSelector.pool=agents",
        "networkPolicies.egress[0].to[0].podSelector.matchLabels.app=collector",
        "networkPolicies.egress[0].ports[0].port=4317",
        "networkPolicies.workerEgress[0].to[0].podSelector.matchLabels.app=orders",
        "networkPolicies.workerEgress[0].ports[0].port=8000",
        &digest,
    ]);
    check_form(&manifests);
    check_policies(&manifests);
    for (policy, port) in [("turnwheel", 4317), ("turnwheel-worker", 8000)] {
        let found = of_kind(&manifests, "NetworkPolicy").into_iter().find(|found| found["metadata"]["name"] == policy);
        let rules = found.unwrap()["spec"]["egress"].as_array().unwrap();
        assert!(rules.iter().any(|rule| rule["ports"][0]["port"] == port), "{policy}: {rules:?}");
    }
    check_pods(&manifests);
    let worker = of_kind(&manifests, "Deployment")
        .into_iter()
        .find(|found| found["metadata"]["name"] == "turnwheel-worker")
        .unwrap();
    assert!(worker["spec"]["replicas"].is_null(), "KEDA sets the number of workers");
    let image = worker["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    assert!(image.ends_with(&format!("@sha256:{}", "a".repeat(64))), "{image}");
    assert_eq!(of_kind(&manifests, "Ingress")[0]["spec"]["tls"][0]["secretName"], "chat-tls");
    let trigger = &of_kind(&manifests, "ScaledObject")[0]["spec"]["triggers"][0]["metadata"];
    assert_eq!((&trigger["stream"], &trigger["lagThreshold"]), (&json!("TW_JOBS"), &json!("100")));
    assert!(of_kind(&rendered(&["networkPolicies.enabled=false"]), "NetworkPolicy").is_empty());
}

#[test]
fn two_releases_of_the_chart_do_not_share_names() {
    let names = |release: &str| {
        let mut helm = helm(&["template", release]);
        let manifests = documents(&printed(helm.arg(file("helm/turnwheel"))));
        manifests.iter().map(|found| format!("{} {}", found["kind"], found["metadata"]["name"])).collect::<Vec<_>>()
    };
    let (first, second) = (names("turnwheel"), names("staging"));
    assert!(first.iter().all(|name| !second.contains(name)), "{first:?} {second:?}");
}

#[test]
fn values_that_cannot_work_or_are_not_safe_are_refused() {
    for (values, part) in [
        (&["ingress.enabled=true", "ingress.host=chat.example.com"][..], "/ingress/tlsSecret"),
        (&["image.tag=latest"], "/image/tag"),
        (&["image.digest=sha256:abc"], "/image/digest"),
        (&["existingSecrets.worker="], "/existingSecrets/worker"),
        (&["nats.url=nats://worker:secret@nats:4222"], "/nats/url"),
        (&["worker.replicas=two"], "/worker/replicas"),
        (&["keda.minReplicas=0"], "/keda/minReplicas"),
        (&["wrokers=2"], "wrokers"),
    ] {
        let refusal = refusal(values);
        assert!(refusal.contains(part), "{values:?}: {refusal}");
    }
}

#[test]
fn the_settings_of_the_chart_are_settings() {
    for values in [&[][..], &["caConfigMap="]] {
        let manifests = rendered(values);
        let text = of_kind(&manifests, "ConfigMap")[0]["data"]["turnwheel.toml"].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turnwheel.toml");
        std::fs::write(&path, &text).unwrap();
        let mut config = Command::new(env!("CARGO_BIN_EXE_turnwheel"));
        config.arg("--config").arg(&path).arg("config").current_dir(folder.path());
        let shown =
            printed(config.env("TURNWHEEL_NATS__USER", "worker").env("NATS_PASSWORD", "p").env_remove("RUST_LOG"));
        assert!(shown.contains("tls://nats:4222"), "{shown}");
        assert_eq!(shown.contains("/etc/turnwheel-ca/ca.pem"), values.is_empty(), "{shown}");
    }
}
