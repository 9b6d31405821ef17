//! Every example is valid with its fixture.

use super::*;

#[test]
fn every_example_is_valid() {
    assert_eq!(ALL.len(), 11);
    for example in ALL {
        let payload = map(serde_json::from_str(example.text).unwrap());
        assert_eq!(payload["action_type"], example.decision_type.as_str());
        match judged(&world(), example.decision_type, payload.clone()) {
            Judged::Valid { fields, corrections, payload: read, .. } => {
                assert_eq!((fields, corrections), (payload, vec![]), "{}", example.title);
                assert_eq!(serde_json::to_value(read).unwrap()["action_type"], example.decision_type.as_str());
            }
            Judged::Rejected { errors } => panic!("{}: {errors:?}", example.title),
        }
    }
    for kind in DecisionType::ALL {
        assert!(ALL.iter().any(|example| example.decision_type == kind), "{kind} has no example");
    }
}

#[test]
fn probable_mistakes_in_examples_are_warnings() {
    let mut world = world();
    world.policy.models = Some(["default".to_owned()].into());
    world.policy.registered_connectors = Some([].into());
    let warnings = |title: &str| {
        let example = ALL.iter().find(|example| example.title.contains(title)).unwrap();
        let payload = serde_json::from_str(example.text).unwrap();
        verdicts_in(&world, example.decision_type, payload).given.warnings.join("\n")
    };
    assert!(warnings("weather").contains("`${WEATHER_API_KEY}`"));
    assert!(warnings("about data").contains("`${input_data}`") && warnings("about data").contains("`gpt-4`"));
    assert!(warnings("Query").contains("`sales_db`"));
    let replan = warnings("Replace");
    assert!(
        replan.contains("becomes `node_0`") && replan.contains("references to `node_1` in `node_2` to `node_0`"),
        "{replan}"
    );
}

/// The order of the fields and their kinds come from the tables: an empty payload names each required field.
#[test]
fn an_empty_payload_names_every_required_field() {
    for kind in DecisionType::ALL {
        let verdict = verdicts_in(&world(), kind, json!({})).given;
        assert!(verdict.errors[0].starts_with("`action_type` is missing"), "{kind}");
        let required = crate::table::payloads::payload(kind).fields.iter().filter(|field| field.required);
        for (field, error) in required.zip(&verdict.errors[1..]) {
            assert!(error.starts_with(&format!("`{}` is missing; give ", field.name)), "{kind}: {error}");
        }
    }
}
