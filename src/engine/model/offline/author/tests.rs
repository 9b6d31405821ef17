//! Whole dialogues with the offline author: golden transcripts in `snapshots`, and random messages.

use super::*;
use crate::model::dialogue::Dialogue;
use crate::model::dialogue::{Catalogue, Item};
use crate::rehearsal::{Draft as RehearsedDraft, DraftKnowledge, tests as read_tests};
use decisions::authoring::answer::{Alternatives, Clarification, Generation, Negotiation, read};
use decisions::authoring::{Checked, Input, NewDraft, Next, Publication, advance, begin, next};
use definitions::agent::AgentRecord;
use definitions::agent::validate::KnownNames;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::runnable_registry::RunnableRegistry;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use types::authoring::message::Debugging;
use types::authoring::{Body, ConversationConfig, Published, Stage, WorkflowContext};
use types::canonical;
use types::timestamp::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_703_001_234_567);
/// The largest number of steps of a turn.
const MOST_STEPS: usize = 40;

/// The catalogue of an installation without agents.
const BASICS: [(&str, &str); 7] = [
    ("trigger.message", "Begins with a user's message"),
    ("trigger.api", "Begins with a call of the HTTP API, which another system can make"),
    ("trigger.timer", "Agents: acts some time after the last message"),
    ("node.LLM", "Asks a model, which answers with a text or with JSON"),
    ("node.HTTP", "Calls an HTTP API"),
    ("node.RUNNABLE", "Runs a task agent, a workflow or a flow"),
    ("node.END", "Makes the output"),
];

/// Everything that a test of a dialogue needs.
struct Talk {
    stored: StoredState,
    facts: Facts,
    document: Option<Value>,
    turns: u32,
    log: String,
}

impl Talk {
    fn new(artifact: Artifact, language: Language, parts: &[(&str, Value)]) -> Self {
        Self::with(artifact, language, parts, Origin::Create, None)
    }

    fn with(
        artifact: Artifact,
        language: Language,
        parts: &[(&str, Value)],
        origin: Origin,
        source: Option<Value>,
    ) -> Self {
        let source_workflow_id =
            source.as_ref().map_or("", |source| source["id"].as_str().unwrap_or_default()).to_owned();
        let context = WorkflowContext { origin, source_workflow_id, modification_intent: String::new() };
        let config = ConversationConfig { language, ..ConversationConfig::default() };
        let stored = StoredState::new("7d0e".into(), "s", "alice", context, NOW).configured(config, Some(artifact));
        let item = |id: &str, line: &str| Item {
            id: id.to_owned(),
            kind: id.split('.').next().unwrap_or_default().to_owned(),
            line: line.to_owned(),
        };
        let basics = BASICS.iter().map(|(id, line)| item(id, line));
        let named = parts.iter().map(|(id, part)| item(id, part["description"].as_str().unwrap_or_default()));
        let catalogue = Catalogue { items: basics.chain(named).collect() };
        let parts = parts.iter().map(|(id, part)| ((*id).to_owned(), part.clone())).collect();
        let facts = Facts { catalogue, parts, source, ..Facts::default() };
        Self { stored, facts, document: None, turns: 0, log: String::new() }
    }

    /// Sends a message, and continues until the dialogue waits.
    fn say(&mut self, message: &str) -> &mut Self {
        self.turns += 1;
        writeln!(self.log, "> {message}").unwrap();
        begin(&mut self.stored, &format!("m-{}", self.turns), message, NOW);
        self.note();
        for _ in 0..MOST_STEPS {
            let input = match next(&self.stored) {
                Next::Wait => return self,
                Next::Ask(question) => self.ask(question),
                Next::Check => self.check(),
                Next::Publish => {
                    let hash = self.stored.draft.as_ref().unwrap().hash.clone();
                    Input::Published(Publication::Done(Published { hash, at: NOW, by: "alice".into(), forced: false }))
                }
            };
            advance(&mut self.stored, input, BTreeMap::new(), NOW).unwrap();
            self.note();
            if self.stored.published.is_some() && self.stored.state.stage == Stage::Completed {
                self.facts.source.clone_from(&self.document);
            }
        }
        panic!("the turn does not end:\n{}", self.log);
    }

    fn ask(&mut self, question: Question) -> Input {
        let dialogue = Dialogue { stored: self.stored.clone(), facts: self.facts.clone() };
        let answer = answer(question, &dialogue);
        assert_eq!(answer, super::answer(question, &dialogue), "the same dialogue has the same answer");
        let schema = decisions::authoring::schema::schema(question, self.stored.artifact);
        jsonschema::validate(&schema, &answer).unwrap();
        match question {
            Question::Clarification => Input::Clarified(read::<Clarification>(answer).unwrap()),
            Question::Negotiation => Input::Negotiated(read::<Negotiation>(answer).unwrap()),
            Question::GapAnalysis => Input::Analysed(read::<GapAnalysis>(answer).unwrap(), self.facts.catalogue.ids()),
            Question::AlternativeGeneration => Input::Offered(read::<Alternatives>(answer).unwrap()),
            Question::WorkflowGeneration => self.draft(read::<Generation>(answer).unwrap()),
            Question::Debug => Input::Diagnosed(read::<Diagnosis>(answer).unwrap()),
        }
    }

    fn draft(&mut self, answer: Generation) -> Input {
        let document = answer.document(self.stored.artifact).unwrap().clone();
        writeln!(self.log, "document {}", serde_json::to_string_pretty(&document).unwrap()).unwrap();
        for test in &answer.tests {
            writeln!(self.log, "test {test}").unwrap();
        }
        let draft = NewDraft { hash: canonical::hash(&document), tests: 1, ..NewDraft::default() };
        let read = self.validated(&document);
        if let (Ok(read), false) = (&read, answer.tests.is_empty()) {
            read.check(&read_tests(&json!(answer.tests)).unwrap()).unwrap();
        }
        self.document = Some(document);
        Input::Drafted { reply: answer.reply, draft }
    }

    /// The checks of `agents apply` and `PUT /workflows`.
    fn validated(&self, document: &Value) -> Result<RehearsedDraft, String> {
        match self.stored.artifact {
            Artifact::Workflow => {
                let record = WorkflowRecord::from_document(document.clone(), NOW).map_err(|error| error.to_string())?;
                let known = RunnableRegistry::default().with_builtin();
                known
                    .check(record)
                    .map(|(record, _)| RehearsedDraft::Workflow(record))
                    .map_err(|error| error.to_string())
            }
            Artifact::Agent => {
                let record = AgentRecord::from_document(document.clone(), NOW).map_err(|error| error.to_string())?;
                let (record, _) = KnownNames::default().check(record).map_err(|error| error.to_string())?;
                Ok(RehearsedDraft::Agent(record, DraftKnowledge::default()))
            }
        }
    }

    fn check(&mut self) -> Input {
        let problems: Vec<String> = self.validated(&self.document.clone().unwrap()).err().into_iter().collect();
        let errors = problems.iter().map(|problem| json!(problem)).collect();
        Input::Checked(Checked { report: Debugging { errors, ..Debugging::default() }, problems })
    }

    /// Logs the events of the last step.
    fn note(&mut self) {
        let events = self.stored.turn.iter().flat_map(|turn| turn.events.clone()).collect::<Vec<_>>();
        for event in events {
            match event.body {
                Body::Status { content } => writeln!(self.log, "[{}]", content.new_stage).unwrap(),
                Body::Message { content: Some(content), .. } => {
                    writeln!(self.log, "{}", content.text).unwrap();
                    for one in content.questions {
                        writeln!(self.log, "? {}: {} {:?}", one.category, one.question, one.options).unwrap();
                    }
                    for (number, one) in (1..).zip(content.alternatives) {
                        let (title, line, approach) = (one.title, one.description, one.approach);
                        writeln!(self.log, "{number}. {title} | {line} | {approach}").unwrap();
                    }
                }
                Body::Error { content } => {
                    writeln!(self.log, "error {}: {}", content.error_code.as_str(), content.details).unwrap()
                }
                _ => {}
            }
        }
    }

    fn stage(&self) -> Stage {
        self.stored.state.stage
    }
}

/// The tools and skills of an office: a mailbox, and a channel.
fn office() -> Vec<(&'static str, Value)> {
    vec![
        (
            "tool.office.gmail",
            json!({"id": "gmail", "description": "Reads new mail from Gmail", "params": {"type": "object", "properties": {}},
                "http": {"method": "GET", "url": "https://mail.example.com/gmail/new"}}),
        ),
        (
            "skill.office.slack",
            json!({"id": "slack", "description": "Posts a message to Slack", "condition": "The user wants it in Slack",
                "params": {"type": "object", "required": ["channel", "text"], "properties":
                    {"channel": {"type": "string"}, "text": {"type": "string"}, "thread": {"type": "string"}}},
                "http": {"method": "POST", "url": "https://chat.example.com/{channel}/messages",
                    "headers": {"Authorization": "Bearer ${SLACK_TOKEN}"}, "body": {"text": "{text}", "thread": "{thread}"}}}),
        ),
    ]
}

macro_rules! golden {
    ($name:literal, $talk:expr) => {
        insta::with_settings!({snapshot_path => "transcripts", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!($name, $talk.log);
        });
    };
}

#[test]
fn every_pattern_is_one() {
    for (name, compiles) in words::all_patterns() {
        assert!(compiles, "{name}");
    }
}

#[test]
fn a_simple_wish_becomes_a_workflow() {
    let mut zh = Talk::new(Artifact::Workflow, Language::Zh, &[]);
    zh.say("做一个把用户的话总结成三点的工作流").say("好");
    assert_eq!(zh.stage(), Stage::Completed, "{}", zh.log);
    golden!("workflow_zh", zh);
    let mut en = Talk::new(Artifact::Workflow, Language::En, &[]);
    en.say("a workflow that summarises a text in three points").say("Yes, please.");
    assert_eq!(en.stage(), Stage::Completed, "{}", en.log);
    golden!("workflow_en", en);
}

#[test]
fn facts_become_an_agent() {
    let mut zh = Talk::new(Artifact::Agent, Language::Zh, &[]);
    zh.say("你好")
        .say("做一个回答营业时间问题的智能体")
        .say("周一到周五 9:00 到 17:00，周末休息")
        .say("问候语：您好，这里是书店")
        .say("好的");
    assert!(zh.stored.draft.as_ref().unwrap().ok.unwrap(), "{}", zh.log);
    golden!("agent_zh", zh);
    let mut en = Talk::new(Artifact::Agent, Language::En, &[]);
    en.say("An agent that answers questions about opening hours: Monday to Friday, 9:00 to 17:00.").say("ok");
    assert!(en.stored.draft.as_ref().unwrap().ok.unwrap(), "{}", en.log);
    golden!("agent_en", en);
}

#[test]
fn what_the_catalogue_names_is_used() {
    let mut zh = Talk::new(Artifact::Workflow, Language::Zh, &office());
    zh.say("每当Gmail收到邮件就转发到Slack").say("确认");
    assert_eq!(zh.stage(), Stage::Completed, "{}", zh.log);
    golden!("covered_zh", zh);
    let mut en = Talk::new(Artifact::Workflow, Language::En, &office());
    en.say("When an email arrives in Gmail, summarise the mail and post it to Slack").say("yes");
    assert_eq!(en.stage(), Stage::Completed, "{}", en.log);
    golden!("covered_en", en);
}

#[test]
fn what_it_does_not_name_is_a_gap() {
    let mut zh = Talk::new(Artifact::Workflow, Language::Zh, &[]);
    zh.say("把文章改写成短文，然后发布到微信朋友圈")
        .say("好")
        .say("随便")
        .say("1")
        .say("还在开发")
        .say("https://example.com/moments")
        .say("好");
    assert_eq!(zh.stage(), Stage::Completed, "{}", zh.log);
    golden!("gap_zh", zh);
    let mut en = Talk::new(Artifact::Workflow, Language::En, &[]);
    en.say("When an email arrives in Gmail, forward it to Slack").say("yes").say("1").say("2");
    assert_eq!(en.stage(), Stage::Completed, "{}", en.log);
    golden!("gap_en", en);
}

#[test]
fn a_user_without_an_address_can_leave_the_part_out() {
    let mut talk = Talk::new(Artifact::Workflow, Language::Zh, &[]);
    talk.say("把文章改写成短文，然后发布到微信朋友圈").say("好").say("1").say("没有。").say("好");
    assert_eq!(talk.stage(), Stage::Completed, "{}", talk.log);
    assert_eq!(talk.document.unwrap()["nodes"].as_array().unwrap().len(), 1, "{}", talk.log);
}

#[test]
fn an_edit_and_a_copy_change_only_what_is_named() {
    let source = json!({"type": "graph", "id": "w1", "name": "摘要", "nodes": [{"node_id": "s", "type": "LLM", "name": "总结",
        "config": {"prompt": "总结成三点：${query}"}}], "edges": [], "global_config": {"output": "${s.output.text}"}});
    let mut zh = Talk::with(Artifact::Workflow, Language::Zh, &[], Origin::Edit, Some(source.clone()));
    zh.say("改好一点").say("把“三点”改成“五点”").say("好").say("名称：要点").say("好");
    assert_eq!(zh.stage(), Stage::Completed, "{}", zh.log);
    let document = zh.document.as_ref().unwrap();
    assert_eq!(
        (&document["nodes"][0]["config"]["prompt"], &document["name"]),
        (&json!("总结成五点：${query}"), &json!("要点"))
    );
    golden!("edit_zh", zh);
    let mut en = Talk::with(Artifact::Workflow, Language::En, &[], Origin::Copy, Some(source.clone()));
    en.say("as is").say("yes");
    assert_eq!((en.stage(), en.document.as_ref()), (Stage::Completed, Some(&source)), "{}", en.log);
    golden!("copy_en", en);
}

#[test]
fn the_user_s_text_is_no_reference() {
    let mut talk = Talk::new(Artifact::Workflow, Language::En, &[]);
    talk.say("a workflow that summarises ${secret} and ${input.x} in {three} points").say("yes");
    assert_eq!(talk.stage(), Stage::Completed, "{}", talk.log);
    let prompt = talk.document.unwrap()["nodes"][0]["config"]["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("$${secret} and $${input.x}"), "{prompt}");
}

/// Pieces of messages that the rules look for, so that random messages reach them.
fn message() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(vec![
            "好", "yes", "1", "2", "3", "每当", "就", "时", "把", "改成", "改", "总结", "转发到", "Slack", "Gmail", "微信朋友圈",
            "每天九点", "a workflow that", "when ", ", ", "then ", " to ", "from ", "send ", "https://example.com/x", "：", ": ",
            "处理", "输出", "greeting", "facts", "\n", "1. ", "${", "}", "{", "\"", "”", "的工作流", "智能体", "原样", "as is", "replace ",
            " with ", "名称", "查询", "看 看",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => any::<String>().prop_map(|text| text.chars().take(40).collect()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_stops_it(messages in prop::collection::vec(message(), 1..7), flags in any::<[bool; 4]>()) {
        let [agent, chinese, equipped, edits] = flags;
        let artifact = if agent { Artifact::Agent } else { Artifact::Workflow };
        let language = if chinese { Language::Zh } else { Language::En };
        let parts = if equipped { office() } else { Vec::new() };
        let source = json!({"id": "x", "name": "看 看", "sop": "总结"});
        let origin = if edits { Origin::Edit } else { Origin::Create };
        let mut talk = Talk::with(artifact, language, &parts, origin, edits.then_some(source));
        for message in messages {
            talk.say(&message);
            prop_assert!(next(&talk.stored) == Next::Wait);
        }
        // A new document passes the checks. That of an edit may have the faults of its source.
        if !edits && let Some(draft) = &talk.stored.draft {
            prop_assert_eq!(draft.ok, Some(true), "{}", talk.log);
        }
    }
}
