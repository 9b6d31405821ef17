//! `docs/decisions.md` has the fields, rules and examples of the tables.

use super::*;
use crate::limits::{
    MAX_CODE_BYTES, MAX_CONDITION_BYTES, MAX_DECISIONS, MAX_EDGES, MAX_NODES, MAX_PAYLOAD_BYTES, MAX_SECONDS,
};
use crate::node_type::NodeType;
use crate::table::configs::{config, output};
use crate::table::graph::{ADDED_NODE, BODY, CHANGES, EDGE, GLOBAL_CONFIG, INPUT, NODE, RECOVERY_PLAN, RETRY_CONFIG};
use crate::table::payloads::payload;
use crate::table::{Field, Kind, Shape};
use std::fmt::Write;

const BEGIN: &str = "<!-- from the tables: begin -->\n";
const END: &str = "<!-- from the tables: end -->\n";

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/decisions.md")).unwrap()
}

fn table(text: &mut String, shape: &Shape) {
    if !shape.fields.is_empty() {
        text.push_str("| field | value | required | meaning |\n|---|---|---|---|\n");
    }
    for Field { name, kind, required, default, text: meaning, .. } in shape.fields {
        let required = match default {
            Some(default) if *required => format!("yes; correction gives `{default}`"),
            Some(default) => format!("no; correction gives `{default}`"),
            None => if *required { "yes" } else { "no" }.to_owned(),
        };
        let value = match kind {
            Kind::Shape(shape) => format!("a [{0}](#{1})", shape.name, anchor(shape.name)),
            Kind::List(Kind::Shape(shape)) | Kind::FilledList(Kind::Shape(shape)) => {
                format!("a list of [{0}](#{1})", shape.name, anchor(shape.name))
            }
            Kind::Config => "an object: [by type of node](#nodes)".to_owned(),
            kind => kind.expected(),
        };
        writeln!(text, "| `{name}` | {value} | {required} | {meaning} |").unwrap();
    }
    text.push('\n');
    for rule in shape.rules {
        writeln!(text, "- {rule}").unwrap();
    }
    if !shape.rules.is_empty() {
        text.push('\n');
    }
}

fn anchor(name: &str) -> String {
    name.to_lowercase().replace(' ', "-")
}

/// The part of the document that is made from the tables.
fn reference() -> String {
    let mut text = String::from("\n## Types\n\n");
    for kind in DecisionType::ALL {
        writeln!(text, "### {kind}\n\nPriority {}.\n", kind.priority()).unwrap();
        table(&mut text, payload(kind));
        for example in ALL.iter().filter(|example| example.decision_type == kind) {
            writeln!(text, "{}:\n\n```json\n{}```\n", example.title, example.text).unwrap();
            if !example.needs.is_empty() {
                writeln!(text, "{}\n", example.needs).unwrap();
            }
        }
    }
    text.push_str("## Parts of plans\n\n");
    for shape in [&NODE, &EDGE, &GLOBAL_CONFIG, &INPUT, &RETRY_CONFIG, &RECOVERY_PLAN, &BODY, &CHANGES, &ADDED_NODE] {
        writeln!(text, "### {}\n", shape.name).unwrap();
        table(&mut text, shape);
    }
    text.push_str("## Nodes\n\n");
    for kind in NodeType::ALL {
        let whose = match kind {
            kind if kind.is_of_files() => "Only in workflow files. ",
            kind if kind.is_structural() => "Only in plans. ",
            _ => "",
        };
        writeln!(text, "### {kind}\n\n{whose}Output: {}.\n", output(kind)).unwrap();
        table(&mut text, config(kind));
    }
    text
}

#[test]
fn the_document_has_the_tables() {
    let document = document();
    let (_, rest) = document.split_once(BEGIN).unwrap();
    let (written, _) = rest.split_once(END).unwrap();
    if written != reference() {
        let place = std::env::temp_dir().join("decisions-tables.md");
        std::fs::write(&place, reference()).unwrap();
        panic!("docs/decisions.md differs from the tables; put {} between its marks", place.display());
    }
}

#[test]
fn the_document_has_the_limits() {
    let numbers =
        [MAX_PAYLOAD_BYTES, MAX_NODES, MAX_EDGES, MAX_CODE_BYTES, MAX_CONDITION_BYTES, MAX_DECISIONS].map(grouped);
    for number in numbers.iter().chain([&format!("{MAX_SECONDS}")]) {
        assert!(document().contains(&format!("| {number} ")), "{number}");
    }
}

/// A number with a comma before each group of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
    parts.join(",")
}

/// Every field of a payload that can be read is in its table, and the other way round.
#[test]
fn the_types_have_the_fields_of_the_tables() {
    for example in ALL {
        let fields = map(serde_json::from_str(example.text).unwrap());
        let read = crate::payload::Payload::read(example.decision_type, &fields).unwrap();
        let mut read: Vec<String> = map(serde_json::to_value(read).unwrap()).keys().cloned().collect();
        let mut known: Vec<String> =
            payload(example.decision_type).fields.iter().map(|field| field.name.to_owned()).collect();
        known.push("action_type".to_owned());
        read.sort();
        known.sort();
        assert_eq!(read, known, "{}", example.decision_type);
    }
}
