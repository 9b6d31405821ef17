//! Properties of all payloads: no input panics, whatever was corrected validates, and the order is stable.

use super::*;
use crate::answer::Answer;
use crate::order;
use crate::reference::pieces;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Any JSON, with names and texts that mean something.
fn json() -> impl Strategy<Value = Value> {
    let words = [
        "action_type",
        "nodes",
        "edges",
        "node_1",
        "node_2",
        "config",
        "type",
        "LLM",
        "HTTP",
        "LOOP",
        "body",
        "url",
        "https://a.b/${x}",
        "${node_1.output.data}",
        "$${",
        "${",
        "timeout",
        "RETRY",
        "source",
        "target",
        "respond",
        " ",
        "true",
        "workflow_123",
        "researcher",
        "recovery_plan",
        "env",
        "é中`\n",
    ];
    let text = prop_oneof![4 => select(words.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2.0..400.0_f64).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..6).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// All places of a value.
fn places(value: &Value) -> Vec<String> {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.replace('~', "~0").replace('/', "~1"), field)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        _ => Vec::new(),
    };
    let below = below
        .into_iter()
        .flat_map(|(name, value)| places(value).into_iter().map(move |place| format!("/{name}{place}")));
    std::iter::once(String::new()).chain(below).collect()
}

/// An example in which some values are replaced.
fn mutated() -> impl Strategy<Value = (DecisionType, Map<String, Value>)> {
    let edits = prop::collection::vec((any::<Index>(), json()), 0..4);
    (select(ALL.to_vec()), edits).prop_map(|(example, edits)| {
        let mut payload: Value = serde_json::from_str(example.text).unwrap();
        for (at, value) in edits {
            let places = places(&payload);
            let place = &places[at.index(places.len())];
            if !place.is_empty() {
                *payload.pointer_mut(place).unwrap() = value;
            }
        }
        (example.decision_type, map(payload))
    })
}

fn check(kind: DecisionType, payload: &Map<String, Value>) {
    let world = world();
    let verdict = Coordinator::new(&world).verdicts(Decision::new(kind, payload.clone()));
    for finding in verdict.given.errors.iter().chain(&verdict.given.warnings) {
        assert!(finding.starts_with('`') && finding.contains("; ") && finding.len() < 4_000, "{finding}");
    }
    assert_eq!(verdict.given.is_valid, verdict.given.errors.is_empty());
    match judged(&world, kind, payload.clone()) {
        Judged::Valid { fields, .. } => {
            assert!(verdict.valid_after_correction);
            let again = Coordinator::new(&world).verdicts(Decision::new(kind, fields));
            assert!(again.given.is_valid && again.corrections.is_empty());
        }
        // A validated payload can always be read.
        Judged::Rejected { errors } => assert!(!verdict.valid_after_correction, "{errors:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_payload_panics((kind, payload) in (select(DecisionType::ALL.to_vec()), json())) {
        if let Value::Object(payload) = payload {
            check(kind, &payload);
        }
    }

    #[test]
    fn what_was_corrected_validates((kind, payload) in mutated()) {
        check(kind, &payload);
    }

    #[test]
    fn the_order_is_stable(kinds in prop::collection::vec((select(DecisionType::ALL.to_vec()), 0..3_i64), 0..9)) {
        let decisions = kinds.iter().enumerate().map(|(at, (kind, priority))| {
            Decision::new(*kind, map(json!({"at": at, "priority": priority})))
        });
        let mut sorted: Vec<_> = decisions.collect();
        order::sort(&mut sorted);
        let key = |decision: &Decision| {
            let urgency = match decision.decision_type {
                DecisionType::SpawnSubagent => -decision.payload["priority"].as_i64().unwrap(),
                _ => 0,
            };
            (decision.decision_type.priority(), urgency, decision.payload["at"].as_u64())
        };
        prop_assert!(sorted.is_sorted_by_key(key));
    }

    #[test]
    fn no_answer_panics(answer in json()) {
        let answer = answer.as_object().cloned().unwrap_or_default();
        if let Err(errors) = Answer::read(&answer) {
            prop_assert!(!errors.is_empty());
        }
    }

    #[test]
    fn a_text_without_references_stays(text in "[^$]{0,40}") {
        let joined: String = pieces(&text).map(|piece| match piece {
            crate::reference::Piece::Text(text) => text,
            _ => panic!("a reference in {text}"),
        }).collect();
        prop_assert_eq!(joined, text);
    }
}
