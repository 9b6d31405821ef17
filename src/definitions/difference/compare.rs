//! Finds the changes between two values. Elements of lists are compared by their id where they have one, so that an
//! inserted element is one change.

use super::{Change, Concern, Op};
use serde_json::{Map, Value};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::{BTreeMap, BTreeSet};
use types::canonical;

/// The fields that identify an element of a list, in order of preference.
const IDS: [&str; 3] = ["id", "node_id", "name"];
/// Fields that only the store sets.
const BOOKKEEPING: &str = "updated_at";

/// Returns the changes from one document to another, in the order of their paths.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<Change>) {
    match (before, after) {
        _ if same(before, after) => {}
        (Value::Object(before), Value::Object(after)) => objects(path, before, after, found),
        (Value::Array(before), Value::Array(after)) => match (keys(before), keys(after)) {
            (Some(old), Some(new)) => by_key(path, &old, &new, found),
            _ => by_place(path, before, after, found),
        },
        _ => found.push(change(Op::Replace, path, Some(before), Some(after))),
    }
}

fn change(op: Op, path: &str, before: Option<&Value>, after: Option<&Value>) -> Change {
    let (before, after) = (before.cloned(), after.cloned());
    Change { op, path: path.to_owned(), concern: Concern::Setting, before, after }
}

fn same(before: &Value, after: &Value) -> bool {
    before == after || canonical::to_string(before) == canonical::to_string(after)
}

fn objects(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, found: &mut Vec<Change>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names.into_iter().filter(|name| !path.is_empty() || *name != BOOKKEEPING) {
        let path = field(path, name);
        either(&path, before.get(name), after.get(name), found);
    }
}

fn either(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    match (before, after) {
        (Some(before), Some(after)) => compare(path, before, after, found),
        (Some(_), None) => found.push(change(Op::Remove, path, before, None)),
        (None, Some(_)) => found.push(change(Op::Add, path, None, after)),
        (None, None) => {}
    }
}

/// Returns the path of a field. A name that is not an identifier is quoted.
pub(super) fn field(path: &str, name: &str) -> String {
    let plain = !name.is_empty() && !name.contains(['.', '[', ']', '"']) && !name.contains(char::is_whitespace);
    match (path.is_empty(), plain) {
        (true, true) => name.to_owned(),
        (false, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{}]", Value::from(name)),
    }
}

/// The path of an element of a list.
pub(super) fn element(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// Returns the elements with their keys, in order; `None` unless each element has a unique key.
pub(super) fn keys(list: &[Value]) -> Option<Vec<(String, &Value)>> {
    let keyed: Vec<(String, &Value)> = list.iter().map(|value| Some((key(value)?, value))).collect::<Option<_>>()?;
    let unique: BTreeSet<&str> = keyed.iter().map(|(key, _)| key.as_str()).collect();
    (unique.len() == keyed.len()).then_some(keyed)
}

fn key(value: &Value) -> Option<String> {
    let text = |name: &str| value.get(name)?.as_str().filter(|text| !text.is_empty());
    if let Some(id) = IDS.iter().find_map(|name| text(name)) {
        return Some(id.to_owned());
    }
    let edge = |from: &str, to: &str| Some(format!("{}->{}", text(from)?, text(to)?));
    edge("source", "target").or_else(|| edge("from", "to"))
}

fn by_key(path: &str, before: &[(String, &Value)], after: &[(String, &Value)], found: &mut Vec<Change>) {
    let (old, new): (BTreeMap<&str, &Value>, BTreeMap<&str, &Value>) = (by_id(before), by_id(after));
    for (key, value) in before {
        either(&element(path, key), Some(value), new.get(key.as_str()).copied(), found);
    }
    for (key, value) in after.iter().filter(|(key, _)| !old.contains_key(key.as_str())) {
        found.push(change(Op::Add, &element(path, key), None, Some(value)));
    }
    let order = |list: &[(String, &Value)]| -> Vec<Value> {
        let stays = |key: &str| old.contains_key(key) && new.contains_key(key);
        list.iter().filter(|(key, _)| stays(key)).map(|(key, _)| Value::from(key.as_str())).collect()
    };
    let (was, is) = (order(before), order(after));
    if was != is {
        found.push(change(Op::Replace, &format!("{path}[]"), Some(&Value::from(was)), Some(&Value::from(is))));
    }
}

fn by_id<'v>(list: &'v [(String, &'v Value)]) -> BTreeMap<&'v str, &'v Value> {
    list.iter().map(|(key, value)| (key.as_str(), *value)).collect()
}

/// Compares lists whose elements have no ids, by the shortest edit. Paths contain the index in the list that has the
/// element.
fn by_place(path: &str, before: &[Value], after: &[Value], found: &mut Vec<Change>) {
    let text = |list: &[Value]| -> Vec<String> { list.iter().map(canonical::to_string).collect() };
    let at = |place: usize| element(path, &place.to_string());
    for step in capture_diff_slices(Algorithm::Myers, &text(before), &text(after)) {
        let (_, old, new) = step.as_tag_tuple();
        if matches!(step, DiffOp::Equal { .. }) {
            continue;
        }
        let pairs = old.len().min(new.len());
        for nth in 0..pairs {
            let place = new.start + nth;
            compare(&at(place), &before[old.start + nth], &after[place], found);
        }
        for (place, value) in before.iter().enumerate().take(old.end).skip(old.start + pairs) {
            found.push(change(Op::Remove, &at(place), Some(value), None));
        }
        for (place, value) in after.iter().enumerate().take(new.end).skip(new.start + pairs) {
            found.push(change(Op::Add, &at(place), None, Some(value)));
        }
    }
}
