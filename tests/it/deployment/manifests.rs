//! The manifests of `deploy/kubernetes`, as `kubectl kustomize` renders them, and rules that those of the chart obey, too.

use super::schemas::{Kubernetes, check_keda};
use super::{documents, file, printed, read, tool};
use serde_json::{Value, json};
use std::process::Command;

pub(super) const ROLES: [&str; 3] = ["worker", "scheduler", "gateway"];

fn rendered(folder: &std::path::Path) -> Vec<Value> {
    let kubectl = tool("KUBECTL_BIN", "helm-", "kubectl");
    documents(&printed(Command::new(kubectl).arg("kustomize").arg(folder)))
}

/// Checks every document by the schema of its kind, those of KEDA by KEDA's.
pub(super) fn check_form(manifests: &[Value]) {
    let mut kubernetes = Kubernetes::new();
    let (keda, own): (Vec<&Value>, Vec<&Value>) = manifests
        .iter()
        .partition(|manifest| manifest["apiVersion"].as_str().is_some_and(|of| of.starts_with("keda.sh/")));
    for manifest in own {
        let problems = kubernetes.problems(manifest);
        assert_eq!(problems, [""; 0], "{} {}", manifest["kind"], manifest["metadata"]["name"]);
    }
    check_keda(&keda.into_iter().cloned().collect::<Vec<_>>());
}

pub(super) fn of_kind<'m>(manifests: &'m [Value], kind: &str) -> Vec<&'m Value> {
    manifests.iter().filter(|manifest| manifest["kind"] == kind).collect()
}

fn component(manifest: &Value) -> &str {
    manifest["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap()
}

/// Checks what every pod has to have: no privileges, its own secret alone, and its own users.
pub(super) fn check_pods(manifests: &[Value]) {
    let deployments = of_kind(manifests, "Deployment");
    assert_eq!(deployments.len(), ROLES.len());
    for deployment in deployments {
        let (role, pod) = (component(deployment), &deployment["spec"]["template"]["spec"]);
        let security = &pod["securityContext"];
        assert_eq!((&security["runAsNonRoot"], &security["runAsUser"]), (&json!(true), &json!(10_001)), "{role}");
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{role}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{role}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= 45, "{role}");
        let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{role}: one container") };
        let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(container["securityContext"], expected, "{role}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{role}");
        assert_eq!(container["envFrom"], json!([{"secretRef": {"name": format!("turnwheel-{role}")}}]), "{role}");
        for probe in ["startupProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "metrics", "{role}: {probe} has no connection to wait for");
        }
        let variable = |name: &str| {
            let all = container["env"].as_array().unwrap();
            all.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone()).unwrap()
        };
        assert_eq!(variable("TURNWHEEL_NATS__USER"), role);
        assert_eq!(variable("TURNWHEEL_NATS__INBOX_PREFIX"), format!("_INBOX_{role}"));
    }
}

/// Checks that a policy denies every connection that no rule allows, and that metrics and gateway have callers to name.
pub(super) fn check_policies(manifests: &[Value]) {
    let policies = of_kind(manifests, "NetworkPolicy");
    let closed = policies.iter().find(|policy| policy["spec"]["policyTypes"] == json!(["Ingress", "Egress"])).unwrap();
    assert!(
        closed["spec"]["ingress"].is_null()
            && closed["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"].is_null()
    );
    for policy in &policies {
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for rule in policy["spec"][rules].as_array().into_iter().flatten() {
                let named = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
                assert!(named(&rule[peers]) && named(&rule["ports"]), "{}: {rule}", policy["metadata"]["name"]);
            }
        }
    }
    let ports: Vec<&Value> =
        policies.iter().flat_map(|policy| policy["spec"]["ingress"].as_array()).flatten().collect();
    let opens = |port: &Value| ports.iter().filter(|rule| rule["ports"][0]["port"] == *port).count();
    assert_eq!((opens(&json!("metrics")), opens(&json!("http"))), (1, 1));
    let outside = policies.iter().filter(|policy| policy.to_string().contains("0.0.0.0/0"));
    let names: Vec<_> = outside
        .map(|policy| policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"].as_str())
        .collect();
    assert_eq!(names, [Some("worker")], "only workers reach the outside");
}

#[test]
fn the_manifests_have_the_form_that_kubernetes_reads() {
    let manifests = rendered(&file("kubernetes"));
    check_form(&manifests);
    check_form(&documents(&read("kubernetes/secret.example.yaml")));
    check_pods(&manifests);
    check_policies(&manifests);
    assert_eq!(of_kind(&manifests, "PodDisruptionBudget").len(), ROLES.len());
}

#[test]
fn with_keda_the_number_of_workers_is_its_own() {
    // A kustomization cannot name a component by an absolute path.
    let folder = tempfile::tempdir().unwrap();
    printed(Command::new("cp").arg("-r").arg(file("kubernetes")).arg(folder.path()));
    let path = folder.path().join("kubernetes/kustomization.yaml");
    let text = read("kubernetes/kustomization.yaml").replace("#components:\n#  - keda", "components:\n  - keda");
    std::fs::write(&path, text).unwrap();
    let manifests = rendered(path.parent().unwrap());
    check_form(&manifests);
    let scaled = of_kind(&manifests, "ScaledObject");
    assert_eq!(scaled.len(), 1, "{manifests:?}");
    let workers = manifests.iter().find(|manifest| manifest["kind"] == "Deployment" && component(manifest) == "worker");
    assert!(workers.unwrap()["spec"]["replicas"].is_null());
}

#[test]
fn a_mistake_in_a_manifest_is_found() {
    let mut manifests = documents(&read("kubernetes/worker.yaml"));
    manifests[0]["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] =
        json!(true);
    manifests[0]["spec"]["replicas"] = json!("2");
    let problems = Kubernetes::new().problems(&manifests[0]).join("\n");
    assert!(problems.contains("readOnlyRootFileSystem") && problems.contains("/spec/replicas"), "{problems}");
    let mut scaled = documents(&read("kubernetes/keda/scaledobject.yaml"));
    scaled[0]["spec"]["minReplicaCount"] = json!("2");
    assert!(std::panic::catch_unwind(|| check_keda(&scaled)).is_err(), "a text for a number");
}

#[test]
fn secrets_of_the_example_start_no_role() {
    for secret in documents(&read("kubernetes/secret.example.yaml")) {
        let values = secret["stringData"].as_object().unwrap();
        assert!(values.values().all(|value| value.as_str().unwrap().contains("change-me")), "{secret}");
        let names: Vec<_> = values.keys().map(String::as_str).collect();
        let has_tokens = secret["metadata"]["name"] == "turnwheel-gateway";
        assert_eq!(names.contains(&"TURNWHEEL_GATEWAY__TOKENS"), has_tokens, "{secret}");
    }
}
