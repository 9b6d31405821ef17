//! Properties of values that are inserted into prompts.

use engine::prompt::Prompts;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// A text made of parts of closing tags.
fn hostile() -> impl Strategy<Value = String> {
    let parts = [
        "<",
        "/",
        "</",
        "< /",
        "<\n/",
        "\\",
        "user_message>",
        "config>",
        "</user_message>",
        " ",
        "\u{3000}",
        "{{ message }}",
        "{% if x %}",
        "中",
        "<<",
        ">",
    ];
    prop::collection::vec(select(parts.to_vec()), 0..8).prop_map(|parts| parts.concat())
}

/// Number of closing tags, including those with blanks.
fn closings(text: &str) -> usize {
    text.match_indices('<').filter(|(at, _)| text[at + 1..].trim_start().starts_with('/')).count()
}

proptest! {
    #[test]
    fn no_inserted_value_closes_a_tag_or_is_interpreted(values in prop::collection::vec(hostile(), 12)) {
        let prompts = Prompts::new(None);
        for (name, keys) in [
            ("phase1", &["config_json", "tools_json", "skills_json", "flows_json", "history", "message"][..]),
            ("phase2", &["name", "tone", "sop", "tools_json", "skills_json", "flows_json", "constraints", "history", "results",
                "message", "note"]),
            ("correction", &["error"]),
        ] {
            let filled = |values: &[String]| {
                let mut context: Map<String, Value> =
                    keys.iter().zip(values).map(|(key, value)| ((*key).to_owned(), json!(format!("x{value}")))).collect();
                context.extend([("greeting_just_sent".to_owned(), json!(true)), ("is_timer".to_owned(), json!(true))]);
                prompts.render(name, &context).unwrap()
            };
            let (hostile, harmless) = (filled(&values), filled(&vec![String::new(); values.len()]));
            prop_assert_eq!(closings(&hostile), closings(&harmless), "{}", hostile);
            let expressions: usize = values.iter().take(keys.len()).map(|value| value.matches("{{ message }}").count()).sum();
            prop_assert_eq!(hostile.matches("{{ message }}").count(), expressions, "inserted text stays text");
        }
    }
}
