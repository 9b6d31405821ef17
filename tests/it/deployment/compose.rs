//! `deploy/compose.yaml`.

use super::{documents, file, read, schemas};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The file, with merge keys applied.
fn compose() -> Value {
    documents(&read("compose.yaml")).remove(0)
}

fn services(compose: &Value) -> impl Iterator<Item = (&String, &Value)> {
    compose["services"].as_object().unwrap().iter()
}

fn texts(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_file_has_the_form_that_compose_reads() {
    let (schema, compose) = (schemas::compose(), compose());
    let problems: Vec<_> =
        schema.iter_errors(&compose).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(problems, [""; 0]);
    let mut wrong = compose;
    wrong["services"]["worker"]["read_onyl"] = json!(true);
    assert!(!schema.is_valid(&wrong));
}

#[test]
fn no_service_has_privileges_or_a_writable_root() {
    let compose = compose();
    for (name, service) in services(&compose) {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], json!(["ALL"]), "{name}");
        assert_eq!(texts(&service["security_opt"]), BTreeSet::from(["no-new-privileges:true"]), "{name}");
        assert_eq!(service.get("cap_add").is_some(), name == "certificates", "{name}");
        assert!(service["privileged"].is_null(), "{name}");
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port}");
        }
    }
}

#[test]
fn each_password_and_key_is_only_where_it_is_needed() {
    let compose = compose();
    let holders = |variable: &str| -> BTreeSet<String> {
        let holds = |service: &Value| service.to_string().contains(&format!("${{{variable}"));
        services(&compose).filter(|(_, service)| holds(service)).map(|(name, _)| name.clone()).collect()
    };
    let sets = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    for (variable, expected) in [
        ("TURNWHEEL_GATEWAY__TOKENS", &["gateway", "agents"][..]),
        ("TW_NATS_WORKER", &["worker", "nats"]),
        ("TW_NATS_SCHEDULER", &["scheduler", "nats"]),
        ("TW_NATS_GATEWAY", &["gateway", "agents", "nats"]),
        ("TW_MONGODB_WORKER", &["worker", "mongodb-setup"]),
        ("TW_MONGODB_SCHEDULER", &["scheduler", "mongodb-setup"]),
        ("TW_MONGODB_GATEWAY", &["gateway", "agents", "mongodb-setup"]),
        ("TW_MONGODB_ADMIN", &["mongodb-setup"]),
    ] {
        assert_eq!(holders(variable), sets(expected), "{variable}");
    }
    let with_keys: Vec<_> =
        services(&compose).filter(|(_, service)| !service["env_file"].is_null()).map(|(name, _)| name).collect();
    assert_eq!(with_keys, ["worker"], "keys of models");
    let volume = |volume: &str| -> Vec<&String> {
        let mounts = |service: &Value| texts(&service["volumes"]).iter().any(|mount| mount.starts_with(volume));
        services(&compose).filter(|(_, service)| mounts(service)).map(|(name, _)| name).collect()
    };
    assert_eq!(volume("authority:"), ["certificates"]);
    assert_eq!(volume("mongodb-certificate:"), ["certificates", "mongodb"]);
    assert_eq!(volume("nats-certificate:"), ["certificates", "nats"]);
}

#[test]
fn servers_have_no_way_out_and_only_the_roles_reach_them() {
    let compose = compose();
    let inside = |network: &str| -> BTreeSet<&str> {
        let joins = |service: &Value| texts(&service["networks"]).contains(network);
        services(&compose).filter(|(_, service)| joins(service)).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(inside("store"), BTreeSet::from(["worker", "scheduler", "gateway", "agents", "mongodb"]));
    assert_eq!(inside("queue"), BTreeSet::from(["worker", "scheduler", "gateway", "agents", "nats"]));
    assert_eq!(inside("calls"), BTreeSet::from(["worker", "demo"]));
    for network in ["queue", "store"] {
        assert_eq!(compose["networks"][network]["internal"], true, "{network}");
    }
    for (name, service) in services(&compose) {
        let isolated = service["network_mode"].is_string();
        assert!(isolated || !texts(&service["networks"]).is_empty(), "{name} would join the default network");
    }
}

#[test]
fn every_variable_without_a_default_is_in_the_example() {
    let (compose, example) = (read("compose.yaml"), read(".env.example"));
    let needed = regex::Regex::new(r"\$\{([A-Z_]+):\?").unwrap();
    let needed: BTreeSet<&str> = needed.captures_iter(&compose).map(|found| found.extract::<1>().1[0]).collect();
    let given: BTreeSet<&str> =
        example.lines().filter_map(|line| line.strip_suffix('=')).filter(|name| !name.starts_with('#')).collect();
    assert_eq!(given, needed, "and each is empty, so that Compose does not start with it");
    for path in ["certificates", "nats-secure.conf", "nats-permissions.conf", "mongodb/setup.js", "mongodb/roles.json"]
    {
        assert!(file(path).is_file(), "{path}");
    }
}
