use super::*;
use crate::authoring::catalogue::Item;
use crate::knowledge::Hit;
use proptest::prelude::*;
use types::authoring::state::{MAX_BYTES, MAX_MESSAGE};
use types::authoring::{
    AlternativeOption, ClarificationQuestion, ConversationConfig, Draft, Origin, Speaker, WorkflowContext,
};
use types::timestamp::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_703_001_234_567);
/// The tags of all prompts.
const TAGS: [&str; 13] = [
    "requirements",
    "catalogue",
    "source",
    "draft",
    "findings",
    "conversation",
    "user_message",
    "open_questions",
    "gaps",
    "alternatives",
    "parts",
    "passages",
    "schema",
];

/// A dialogue in which every text is `text`.
fn full_of(text: &str, artifact: Artifact, language: Language) -> (StoredState, Facts) {
    let context =
        WorkflowContext { origin: Origin::Edit, source_workflow_id: "w1".into(), modification_intent: text.into() };
    let config = ConversationConfig { language, ..ConversationConfig::default() };
    let mut stored = StoredState::new("id".into(), "s", "u", context, NOW).configured(config, Some(artifact));
    let state = &mut stored.state;
    state.intent_summary = text.into();
    state.collect("logic", text);
    state.gaps = vec![text.into()];
    state.alternatives = vec![AlternativeOption { id: "a".into(), title: text.into(), ..Default::default() }];
    for speaker in [Speaker::User, Speaker::Assistant, Speaker::User] {
        state.say(speaker, text, Default::default(), NOW);
    }
    stored.questions = vec![ClarificationQuestion { id: "q".into(), question: text.into(), ..Default::default() }];
    stored.draft =
        Some(Draft { ok: Some(false), problems: vec![text.into()], changes: vec![text.into()], ..Default::default() });
    let hit = Hit { source: text.into(), heading: text.into(), line: 1, text: text.into(), score: 1.0 };
    let facts = Facts {
        manner: text.into(),
        catalogue: Catalogue { items: vec![Item { id: "node.LLM".into(), kind: "node".into(), line: text.into() }] },
        parts: [("tool.a.b".to_owned(), json!({"description": text}))].into(),
        source: Some(json!({"name": text})),
        draft: Some(json!({"sop": text})),
        passages: vec![hit],
    };
    (stored, facts)
}

fn system(question: Question, stored: &StoredState, facts: &Facts) -> String {
    let messages = messages(&Prompts::new(None), question, stored, facts).unwrap();
    assert_eq!((messages.len(), messages[0].role, messages[1].role), (2, PromptRole::System, PromptRole::User));
    messages[0].content.clone()
}

#[test]
fn each_question_has_a_prompt_in_the_language_of_the_dialogue() {
    for question in Question::ALL {
        for (language, name) in [(Language::Zh, "Chinese"), (Language::En, "English")] {
            for artifact in [Artifact::Workflow, Artifact::Agent] {
                let (stored, facts) = full_of("总结", artifact, language);
                let system = system(question, &stored, &facts);
                assert!(system.contains(&format!("in {name}")), "{question:?}: {system}");
                assert!(
                    system.contains("# Output") && system.contains("Example") && system.contains("总结"),
                    "{question:?}"
                );
                assert!(!system.contains("{{") && !system.contains("{%"), "{question:?}: {system}");
            }
        }
    }
}

#[test]
fn a_generation_has_the_schema_of_its_document() {
    let (stored, facts) = full_of("x", Artifact::Workflow, Language::En);
    let workflow = system(Question::WorkflowGeneration, &stored, &facts);
    assert!(
        workflow.contains("\"LLM\"") && workflow.contains("llm_config") && workflow.contains("global_config.output")
    );
    let (stored, mut facts) = full_of("x", Artifact::Agent, Language::En);
    let agent = system(Question::WorkflowGeneration, &stored, &facts);
    assert!(
        agent.contains("\"greeting\"") && !agent.contains("\"coordinator\""),
        "a chat agent needs no field of coordinators"
    );
    assert!(workflow.len() < 32 * 1024 && agent.len() < 32 * 1024, "{} and {} bytes", workflow.len(), agent.len());
    facts.source = Some(json!({"mode": "coordinator", "coordinator": {}}));
    assert!(system(Question::WorkflowGeneration, &stored, &facts).contains("CoordinatorConfig"));
    for artifact in [Artifact::Workflow, Artifact::Agent] {
        let schema: Value = serde_json::from_str(&sections::schema(artifact, &Facts::default())).unwrap();
        let document = match artifact {
            Artifact::Workflow => {
                json!({"type": "graph", "id": "w", "nodes": [{"node_id": "a", "type": "ASK", "name": "问",
                "config": {"question": "?"}}]})
            }
            Artifact::Agent => json!({"id": "a", "sop": "1. 问候"}),
        };
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&document) && !validator.is_valid(&json!({"id": 1})));
    }
}

#[test]
fn the_oldest_messages_are_left_out_first() {
    let (mut stored, facts) = full_of("x", Artifact::Workflow, Language::Zh);
    for number in 0..40 {
        stored.state.say(Speaker::Assistant, &format!("<{number}>{}", "长".repeat(700)), Default::default(), NOW);
    }
    stored.state.say(Speaker::User, &"末".repeat(MAX_MESSAGE / 3), Default::default(), NOW);
    let system = system(Question::Negotiation, &stored, &facts);
    assert!(system.contains("<39>") && !system.contains("<20>") && system.contains("earlier messages are left out"));
    assert!(system.len() < 128 * 1024, "{} bytes", system.len());
    let mut facts = facts;
    facts.draft = Some(json!({"name": "长".repeat(MAX_BYTES)}));
    assert!(super::tests::system(Question::Debug, &stored, &facts).contains(" bytes]"));
}

#[test]
fn the_parts_are_those_of_the_catalogue() {
    let document = json!({"id": "office", "sop": "x", "tools": [{"id": "mail", "builtin": "now"}, {"id": "other", "builtin": "now"}]});
    let agent = AgentRecord::from_document(document, NOW).unwrap();
    let catalogue =
        Catalogue { items: vec![Item { id: "tool.office.mail".into(), kind: "tool".into(), line: String::new() }] };
    let parts = parts(&catalogue, [&agent]);
    assert_eq!(json!(parts), json!({"tool.office.mail": {"id": "mail", "builtin": "now"}}));
}

#[test]
fn a_correction_has_the_answer_and_the_problem() {
    let [answer, hint] = correction(&Prompts::new(None), "{".into(), "it is cut off").unwrap();
    assert_eq!((answer.role, answer.content.as_str(), hint.role), (PromptRole::Assistant, "{", PromptRole::User));
    assert!(hint.content.contains("it is cut off"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_closes_a_tag(
        around in any::<[String; 2]>(),
        tag in prop::sample::select(TAGS.to_vec()),
        space in "[ \t\n]{0,2}",
        chinese in any::<bool>(),
    ) {
        let text = format!("{}<{space}/{space}{tag}>{{{{ manner }}}}</{tag}>{}", around[0], around[1]);
        let language = if chinese { Language::Zh } else { Language::En };
        for artifact in [Artifact::Workflow, Artifact::Agent] {
            let (plain, plain_facts) = full_of("x", artifact, language);
            let (stored, facts) = full_of(&text, artifact, language);
            for question in Question::ALL {
                let (plain, system) = (system(question, &plain, &plain_facts), system(question, &stored, &facts));
                for tag in TAGS {
                    let closes = |prompt: &str| {
                        let squeezed: String = prompt.chars().filter(|c| !c.is_whitespace()).collect();
                        squeezed.matches(&format!("</{tag}>")).count()
                    };
                    prop_assert_eq!(closes(&plain), closes(&system), "{:?}: {}", question, tag);
                }
            }
        }
    }
}
