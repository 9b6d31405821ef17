//! Cases of authoring dialogues and their states.

use super::catalog::agent;
use super::kit::*;
use super::runs::workflow;
use serde_json::json;
use std::sync::Arc;
use storage::store::*;
use types::authoring::{
    AlternativeOption, Artifact, ClarificationQuestion, Draft, GapRounds, Loaded, Origin, Published, Speaker, Stage,
    StoredState, TurnState, WorkflowContext,
};
use types::session::Kind;
use types::timestamp::Timestamp;

type Sessions = Arc<dyn Store>;

/// A dialogue that began at this millisecond.
pub fn dialogue(session_id: &str, user_id: &str, at: i64) -> StoredState {
    let context = WorkflowContext { origin: Origin::Edit, source_workflow_id: "w1".into(), ..Default::default() };
    StoredState::new(format!("id-{session_id}"), session_id, user_id, context, Timestamp::from_millis(at))
}

pub async fn create(store: &Sessions, state: StoredState) -> bool {
    let new = NewAuthoring { agent_id: "authoring".into(), channel: "api".into(), state };
    store.create_authoring(new).await.unwrap()
}

async fn state(store: &Sessions, session_id: &str) -> StoredState {
    let Loaded { state, problems } = store.authoring(session_id).await.unwrap().unwrap();
    assert_eq!(problems, Vec::<String>::new());
    state
}

async fn save(store: &Sessions, state: &StoredState, epoch: Option<u64>) -> Saved {
    store.save_authoring(SaveAuthoring { state: state.clone(), epoch }).await.unwrap()
}

pub async fn a_dialogue_is_created_once_with_its_session(store: Sessions) {
    assert!(store.authoring("会话").await.unwrap().is_none());
    assert!(create(&store, dialogue("会话", "alice", 1)).await);
    assert!(!create(&store, dialogue("会话", "bob", 2)).await, "the id is taken");
    let session = store.session("会话").await.unwrap().unwrap();
    assert_eq!(
        (session.kind, session.user_id.as_str(), session.agent_id.as_str()),
        (Kind::Authoring, "alice", "authoring")
    );
    let found = state(&store, "会话").await;
    assert_eq!(found, StoredState { version: 1, ..dialogue("会话", "alice", 1) });
    run_turn(&store, "chat", 1, |_| ()).await;
    assert!(!create(&store, dialogue("chat", "alice", 1)).await, "a chat session has the id");
    assert!(store.authoring("chat").await.unwrap().is_none());
    let grant = grant(&store, "会话", 1).await;
    assert_eq!((grant.session.kind, grant.session.user_id.as_str()), (Kind::Authoring, "alice"));
}

pub async fn a_state_is_read_as_it_was_saved(store: Sessions) {
    create(&store, dialogue("s", "alice", 1)).await;
    let grant = grant(&store, "s", 1).await;
    let now = Timestamp::from_millis(1_703_001_234_567);
    let mut full = state(&store, "s").await;
    full.state.stage = Stage::AlternativeGeneration;
    full.state.say(Speaker::User, "每当Gmail收到邮件就转发到Slack 😀", [("a".into(), "$b".into())].into(), now);
    full.state.collect("alternative:a.b $c", "发邮件");
    full.config.preferences = [("$x.y".into(), "z".into())].into();
    full.state.gaps = vec!["a.b $c".into()];
    full.state.alternatives = vec![AlternativeOption { id: "1".into(), title: "一".into(), ..Default::default() }];
    full.questions = vec![ClarificationQuestion { id: "q".into(), question: "?".into(), ..Default::default() }];
    full.draft = Some(Draft { hash: "h".into(), ok: Some(false), problems: vec!["p".into()], ..Draft::default() });
    full.published = Some(Published { hash: "h".into(), at: now, by: "alice".into(), forced: true });
    full.gap_rounds = vec![GapRounds { gap: "a.b".into(), rounds: 2 }];
    full.turn = Some(TurnState { turn_id: "m-1".into(), seq: 3, ..TurnState::default() });
    (full.resume_stage, full.repaired_at, full.turns) = (Some(Stage::Debug), Some(now), 7);
    assert_eq!(save(&store, &full, Some(grant.session.epoch)).await, Saved::Saved(2));
    assert_eq!(state(&store, "s").await, StoredState { version: 2, ..full });
    // The turn's commit leaves the state alone.
    let done = commit(&grant, 1, Some(change(&grant.session, "m-1")));
    assert_eq!(store.commit(done).await.unwrap(), Committed::Released);
    assert_eq!(state(&store, "s").await.version, 2);
}

pub async fn a_save_over_another_version_changes_nothing(store: Sessions) {
    create(&store, dialogue("s", "alice", 1)).await;
    let epoch = Some(grant(&store, "s", 1).await.session.epoch);
    let mut first = state(&store, "s").await;
    let mut second = first.clone();
    (first.turns, second.turns) = (1, 2);
    assert_eq!(save(&store, &first, epoch).await, Saved::Saved(2));
    assert_eq!(save(&store, &second, epoch).await, Saved::Conflict);
    assert_eq!(save(&store, &StoredState { version: 0, ..second }, epoch).await, Saved::Conflict, "there is a state");
    assert_eq!(state(&store, "s").await.turns, 1);
}

pub async fn a_save_of_a_lane_that_is_lost_changes_nothing(store: Sessions) {
    create(&store, dialogue("s", "alice", 1)).await;
    let taken = grant(&store, "s", 1).await;
    let stored = state(&store, "s").await;
    assert!(store.release("s", taken.session.epoch, true).await.unwrap());
    assert_eq!(save(&store, &stored, Some(taken.session.epoch)).await, Saved::Fenced, "released");
    let next = grant(&store, "s", 1).await;
    assert_eq!(save(&store, &stored, Some(taken.session.epoch)).await, Saved::Fenced, "taken over");
    assert_eq!(save(&store, &stored, Some(next.session.epoch)).await, Saved::Saved(2));
    let nobody = dialogue("nobody", "alice", 1);
    assert_eq!(save(&store, &nobody, Some(1)).await, Saved::Fenced, "no session");
    let chat = grant(&store, "chat", 1).await.session.epoch;
    assert_eq!(save(&store, &dialogue("chat", "alice", 1), Some(chat)).await, Saved::Fenced, "no dialogue");
}

pub async fn a_save_without_a_lease_waits_for_the_turn_s_end(store: Sessions) {
    create(&store, dialogue("s", "alice", 1)).await;
    let taken = grant(&store, "s", 1).await;
    let mut stored = state(&store, "s").await;
    stored.state.stage = Stage::Negotiation;
    assert_eq!(save(&store, &stored, None).await, Saved::Fenced);
    let done = commit(&taken, 1, Some(change(&taken.session, "m-1")));
    assert_eq!(store.commit(done).await.unwrap(), Committed::Released);
    assert_eq!(save(&store, &stored, None).await, Saved::Saved(2));
    assert_eq!(state(&store, "s").await.state.stage, Stage::Negotiation);
    // The next turn is not disturbed by it.
    let next = grant(&store, "s", 2).await;
    assert_eq!(store.commit(commit(&next, 2, Some(change(&next.session, "m-2")))).await.unwrap(), Committed::Released);
}

pub async fn a_repeated_save_is_the_same_save(store: Sessions) {
    create(&store, dialogue("s", "alice", 1)).await;
    let epoch = Some(grant(&store, "s", 1).await.session.epoch);
    let mut stored = state(&store, "s").await;
    stored.turn = Some(TurnState { turn_id: "m-1".into(), seq: 1, ..TurnState::default() });
    assert_eq!(save(&store, &stored, epoch).await, Saved::Saved(2));
    assert_eq!(save(&store, &stored, epoch).await, Saved::Saved(2), "the first answer may have been lost");
    stored.turn = Some(TurnState { turn_id: "m-1".into(), seq: 2, ..TurnState::default() });
    assert_eq!(save(&store, &stored, epoch).await, Saved::Conflict, "this is another save");
}

pub async fn dialogues_are_listed_last_changed_first_and_filtered(store: Sessions) {
    for (session_id, user_id, at) in [("a", "alice", 1), ("b", "bob", 3), ("c", "alice", 2), ("d", "alice", 2)] {
        let mut state = dialogue(session_id, user_id, at);
        if session_id == "d" {
            state.state.stage = Stage::Completed;
        }
        create(&store, state).await;
    }
    run_turn(&store, "chat", 1, |_| ()).await;
    let list = async |query: AuthoringQuery| {
        let found = store.authorings(query).await.unwrap();
        found.into_iter().map(|one| one.session_id).collect::<Vec<_>>()
    };
    let all = || AuthoringQuery { limit: 10, ..AuthoringQuery::default() };
    assert_eq!(list(all()).await, ["b", "d", "c", "a"]);
    let after = Some((Timestamp::from_millis(2), "d".to_owned()));
    assert_eq!(list(AuthoringQuery { after, ..all() }).await, ["c", "a"]);
    assert_eq!(list(AuthoringQuery { user_id: Some("alice".into()), limit: 2, ..all() }).await, ["d", "c"]);
    assert_eq!(list(AuthoringQuery { stage: Some(Stage::Completed), ..all() }).await, ["d"]);
    assert_eq!(list(AuthoringQuery { before: Some(Timestamp::from_millis(2)), ..all() }).await, ["a"]);
    assert!(list(AuthoringQuery { limit: 0, ..all() }).await.is_empty());
}

pub async fn a_deleted_session_takes_its_state_along(store: Sessions) {
    for session_id in ["s", "s1"] {
        create(&store, dialogue(session_id, "alice", 1)).await;
    }
    let seized = store.seize("s", "deletion", LONG).await.unwrap();
    store.erase_records("s").await.unwrap();
    assert!(store.erase_lane("s", seized.epoch).await.unwrap());
    assert!(store.authoring("s").await.unwrap().is_none());
    assert!(store.authoring("s1").await.unwrap().is_some());
    assert!(create(&store, dialogue("s", "bob", 1)).await, "the id is free");
}

pub async fn a_deleted_artefact_is_named_by_no_state(store: Sessions) {
    store.put_workflow(workflow("w1", "一")).await.unwrap();
    store.put_agent(agent("sales", "h1", json!({"a": 1}))).await.unwrap();
    for (session_id, made) in [("s", "w1"), ("t", "sales"), ("u", "w2")] {
        let mut state = dialogue(session_id, "alice", 1);
        state.artifact = if session_id == "t" { Artifact::Agent } else { Artifact::Workflow };
        state.state.workflow_context.source_workflow_id = if session_id == "t" { "sales" } else { "w1" }.into();
        state.state.workflow_id = Some(made.into());
        state.draft = Some(Draft { hash: "h".into(), ..Draft::default() });
        state.published = Some(Published { hash: "h".into(), ..Published::default() });
        create(&store, state).await;
    }
    store.erase_workflow("w1").await.unwrap();
    store.erase_agent("sales").await.unwrap();
    for (session_id, made) in [("s", None), ("t", None), ("u", Some("w2"))] {
        let found = state(&store, session_id).await;
        assert_eq!(found.state.workflow_id.as_deref(), made, "{session_id}");
        assert_eq!(found.state.workflow_context.source_workflow_id, "", "{session_id}");
        assert!(found.version > 1 || made.is_some(), "a turn that has read the state notices");
        // Otherwise the dialogue would change what another user publishes under the id.
        assert_eq!(
            (found.draft.is_some(), found.published.is_some()),
            (made.is_some(), made.is_some()),
            "{session_id}"
        );
    }
}

pub async fn a_deletion_that_finds_nothing_leaves_the_dialogues_alone(store: Sessions) {
    store.put_agent(agent("a", "h1", json!({"a": 1}))).await.unwrap();
    for kind in [Artifact::Agent, Artifact::Workflow] {
        let mut state = dialogue(kind.as_str(), "alice", 1);
        (state.artifact, state.state.workflow_id) = (kind, Some("a".into()));
        state.state.workflow_context.source_workflow_id = "a".into();
        state.draft = Some(Draft { hash: "h".into(), ..Draft::default() });
        create(&store, state).await;
    }
    let (edited, other) = (state(&store, "agent").await, state(&store, "workflow").await);
    assert_eq!(store.erase_workflow("a").await.unwrap(), ErasedDefinition::default(), "`a` is an agent");
    assert_eq!(state(&store, "agent").await, edited);
    assert_eq!(state(&store, "workflow").await, other, "it may have been made meanwhile");
    assert!(store.erase_agent("a").await.unwrap().existed);
    assert_eq!(state(&store, "agent").await.draft, None);
    assert_eq!(state(&store, "workflow").await, other, "an agent is deleted, not a workflow");
}
