//! Properties of templates, conditions and loops of workflows.

use super::text;
use definitions::workflow::builder::{Loop, Stage};
use definitions::workflow::condition::Condition;
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::scope::Scope;
use definitions::workflow::template::InputMapping;
use proptest::prelude::*;
use proptest::string::string_regex;

/// Id of a stage.
fn stage_id() -> impl Strategy<Value = String> {
    string_regex("[A-Za-z0-9_一-龥-]{1,8}")
        .unwrap()
        .prop_filter("reserved", |id| !["query", "loop"].contains(&id.as_str()))
}

proptest! {
    #[test]
    fn a_template_puts_outputs_in_once_and_leaves_the_rest(
        outputs in prop::collection::btree_map(stage_id(), text(), 0..4),
        plain in prop::collection::vec("[^{}]{0,8}", 5),
    ) {
        let mut store = OutputStore::new("问");
        outputs.iter().for_each(|(id, output)| store.set(id.as_str(), output.as_str()));
        let (mut template, mut expected) = (String::new(), String::new());
        for ((id, output), plain) in outputs.iter().zip(&plain) {
            template.push_str(&format!("{plain}{{{id}}}{{{{{id}}}}}{{ {{{id}}} }}"));
            expected.push_str(&format!("{plain}{output}{{{id}}}{{ {output} }}"));
        }
        let mapping = InputMapping::parse(&template);
        prop_assert_eq!(mapping.build(store.scope()), expected);
        let mut names = mapping.get_dependencies();
        names.sort();
        prop_assert_eq!(names, outputs.keys().cloned().collect::<Vec<_>>());
    }

    #[test]
    fn no_output_changes_what_a_condition_asks(output in text(), value in "[a-z 一-龥]{0,6}") {
        let mut store = OutputStore::new("问");
        store.set("a", output.as_str());
        let holds = |condition: &str| Condition::parse(condition).unwrap().holds(store.scope());
        let bare = output.trim();
        let truth = !bare.is_empty() && !bare.eq_ignore_ascii_case("false");
        prop_assert_eq!(holds("{a}"), truth);
        prop_assert_eq!(holds("not {a}"), !truth);
        let contains = bare.to_lowercase().contains(&value.to_lowercase());
        prop_assert_eq!(holds(&format!("{{a}} contains '{value}'")), contains);
        let equals = bare.trim_matches(['\'', '"']).trim() == value.trim();
        prop_assert_eq!(holds(&format!("{{a}} == '{value}'")), equals);
        prop_assert_eq!(holds(&format!("not {{a}} == '{value}'")), !equals);
        prop_assert_eq!(holds("{a} > 1"), bare.trim_matches(['\'', '"']).trim().parse::<f64>().is_ok_and(|number| number > 1.0));
    }

    #[test]
    fn a_loop_looks_back_at_what_its_last_iteration_left(rounds in prop::collection::vec(prop::option::of(text()), 0..6)) {
        let shape = Loop::new("l")
            .stage(Stage::new("a", "x"))
            .build()
            .unwrap();
        let scope = Scope::root("问", None);
        let mut store = OutputStore::begin(&shape.workflow.shape, scope, &|_| None);
        let mut before = String::new();
        for (at, round) in rounds.iter().enumerate() {
            store.start_iteration();
            let seen = InputMapping::parse("{loop.iteration}|{loop.last.a}|{a}").build(store.scope());
            prop_assert_eq!(seen, format!("{}|{before}|", at + 1));
            round.iter().for_each(|output| store.set("a", output.as_str()));
            before = round.clone().unwrap_or_default();
        }
        prop_assert_eq!(store.get_iteration_history(100).len(), rounds.len().saturating_sub(1));
    }
}
