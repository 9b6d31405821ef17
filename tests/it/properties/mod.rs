//! Properties that hold for every input, each tried with a few hundred. This file has the generators of inputs.

mod documents;
mod jobs;
mod prompts;
mod sessions;
mod timers;
mod workflows;

use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Map, Value};

fn text() -> impl Strategy<Value = String> {
    string_regex("(?s)([ -~]|[\\n\\r\\t\u{0}\u{2028}]|[一-龥]|[\u{1F600}-\u{1F64F}]|</|\\$\\{|\\{\\{){0,24}").unwrap()
}

fn id() -> impl Strategy<Value = String> {
    string_regex("[A-Za-z0-9_:一-龥-]{1,20}").unwrap()
}

/// Message ids as messaging platforms produce them.
fn job_id() -> impl Strategy<Value = String> {
    string_regex("\\.{0,2}[A-Za-z0-9_:@=一-龥-][A-Za-z0-9_:@=.一-龥-]{0,20}").unwrap()
}

/// A finite number whose text has exactly its value.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number(), text().prop_map(Value::from)];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(text(), value(), 0..4).prop_map(|map| map.into_iter().collect())
}
