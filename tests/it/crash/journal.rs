//! Behaviour of a turn's attempt after a failed write.

use super::faulty::FaultyStore;
use super::plan::{Fault, Operation, Plan, Point};
use super::wire::Wire;
use crate::conformance::kit::grant;
use crate::support::backend::embedded;
use base::clock::Clock;
use engine::journal::{Done, Durability, Guard, Journal, JournalError, Label, LeasedTurn, StepError};
use std::convert::Infallible;
use std::sync::Arc;
use storage::store::Store;

/// A journal whose first write reaches the store but returns an error.
async fn journal(inner: &Arc<dyn Store>) -> Journal {
    let epoch = grant(inner, "s", 1).await.session.epoch;
    let operation = Operation { name: "record", lane: "s".into(), item: "m-1/a".into(), nth: 1 };
    let plan = Arc::new(Plan::new(&[Point { number: 0, operation, fault: Fault::ErrorAfter }]));
    plan.arm();
    let wire = Arc::new(Wire::new(0, plan, false));
    let store: Arc<dyn Store> = Arc::new(FaultyStore { inner: Arc::clone(inner), wire });
    let (clock, guard) = (Clock::system(), Guard::always());
    let turn = LeasedTurn { store, clock, session_id: "s", turn_id: "m-1", epoch, guard, prompt_mask: None };
    Journal::open(turn, false).await.unwrap()
}

#[tokio::test]
async fn after_a_step_whose_record_failed_none_of_the_attempt_begins() {
    let inner = embedded().await.store;
    let journal = journal(&inner).await;
    let label = Label { kind: "tool", target: "t" };
    let answer = async |_| Ok::<_, Infallible>(Done::ok("好".to_owned()));
    let failed = journal.step("a", label, Durability::OnReturn, "a", answer).await;
    assert!(matches!(failed, Err(StepError::Journal(JournalError::Store(_)))));
    let begun = journal.step("b", label, Durability::OnReturn, "b", answer).await;
    assert!(matches!(begun, Err(StepError::Journal(JournalError::Halted))), "no further step begins");
    assert_eq!(inner.steps("s", "m-1").await.unwrap().len(), 1, "the next attempt replays it");
}

#[tokio::test]
async fn after_a_failed_write_no_other_one_of_the_attempt_follows() {
    let inner = embedded().await.store;
    let journal = journal(&inner).await;
    let label = Label { kind: "model", target: "m" };
    let answer = async |_| Ok::<_, Infallible>(Done::ok("好".to_owned()));
    journal.step("a", label, Durability::Deferred, "a", answer).await.unwrap();
    let (end, ends) = tokio::sync::oneshot::channel();
    let under_way = journal.step("b", label, Durability::Deferred, "b", async |key| {
        ends.await.unwrap();
        answer(key).await
    });
    let fails = async {
        let failed = journal.settle().await;
        end.send(()).unwrap();
        failed
    };
    let (ended, failed) = tokio::join!(under_way, fails);
    ended.expect("a step in flight finishes");
    assert!(matches!(failed, Err(JournalError::Store(_))), "{failed:?}");
    let begun = journal.step("c", label, Durability::Deferred, "c", answer).await;
    assert!(matches!(begun, Err(StepError::Journal(JournalError::Halted))), "no further step begins");
    let refused = journal.settle().await;
    assert!(matches!(refused, Err(JournalError::Halted)), "{refused:?}");
    let steps = inner.steps("s", "m-1").await.unwrap();
    assert_eq!(steps.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["a"], "the next attempt replays it");
}
