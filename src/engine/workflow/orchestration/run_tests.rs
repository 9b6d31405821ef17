//! Tests of the interpreter: which stages run, in which order, with which events, and which steps a repeated run executes
//! again.

use super::event::{QueuedEvent, RunEvent, RunEventType as Type};
use super::ground::{Ground, Heard};
use super::resolved::{ResolveError, ResolvedDefinitions};
use super::run::{EventSink, RunEnvironment, RunError, RunStart, SinkError, execute};
use crate::journal::{Guard, Journal, JournalError};
use crate::workflow::asking::Asking;
use crate::workflow::{FlowContext, FlowError};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(super) const NESTED: &str = "
type: pipeline
id: outer
stages:
  - {id: plan, runnable: echo, input: 'plan {query}'}
  - {id: never, runnable: echo, input: x, condition: \"{plan} == 'no'\"}
  - id: again
    input: '{plan}'
    runnable:
      type: loop
      id: body
      max_iterations: 2
      inherit_keys: [plan]
      stages:
        - id: both
          input: '{plan}'
          runnable:
            type: parallel
            id: sides
            branches:
              - {id: left, runnable: echo, input: 'L{loop.iteration}'}
              - {id: right, runnable: echo, input: 'R {plan}{loop.last.both}'}
        - {id: sum, runnable: echo, input: '{left}+{right}'}
  - {id: end, runnable: echo, input: 'end {again}{never}'}
";

#[tokio::test]
async fn a_nested_run_wires_outputs_to_inputs_and_tells_where_it_is() {
    let ground = Ground::new(&[NESTED]);
    let end = ground.run("outer", "q").await.unwrap();
    assert_eq!(end.outcome.unwrap(), "<end <<L2>+<R <plan q>[left]:\n<L1>\n\n[right]:\n<R <plan q>>>>>");
    assert_eq!(end.usage.stages, 11, "3 in the pipeline, since one is skipped; 4 in each iteration, with the branches");
    assert_eq!((end.event.kind, end.event.depth), (Type::RunCompleted, 0));
    let told = ground.told();
    let expected = [
        "0 run_started - - -",
        "0 stage_started plan - -",
        "1 run_started plan - -",
        "1 run_completed plan - -",
        "0 stage_completed plan - -",
        "0 stage_started again - -",
        "1 run_started again - -",
        "1 loop_iteration again - 1",
        "1 stage_started both - 1",
        "2 run_started both - 1",
        "2 branch_started both left 1",
    ];
    assert_eq!(told[..expected.len()], expected);
    assert!(told.contains(&"3 run_started both right 2".to_owned()), "{told:#?}");
    assert!(!told.iter().any(|line| line.contains("never")), "a skipped stage has no events");
    assert_eq!(told.last().unwrap(), "0 stage_completed end - -", "the last event waits for the durable end");
    let heard = ground.heard.0.lock().unwrap();
    let mut ids: Vec<&str> = heard.iter().map(|event| event.event_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), heard.len(), "all event ids are different");
    let path = |event: &&RunEvent| event.path == "again[2]/both/right" && event.kind == Type::BranchCompleted;
    assert_eq!(heard.iter().filter(path).count(), 1);
}

#[tokio::test]
async fn a_repeated_run_asks_nothing_again_and_tells_the_same_under_the_same_ids() {
    let ground = Ground::new(&[NESTED]);
    let first = ground.output("outer", "q").await;
    assert_eq!(ground.calls().len(), 8);
    let ids = |ground: &Ground| {
        let mut heard = std::mem::take(&mut *ground.heard.0.lock().unwrap());
        heard.sort_by(|a, b| a.event_id.cmp(&b.event_id));
        heard
    };
    let before = ids(&ground);
    assert_eq!(ground.output("outer", "q").await, first);
    assert!(ground.calls().is_empty());
    assert_eq!(ids(&ground), before);
}

#[tokio::test]
async fn branches_run_at_once_and_as_many_as_they_may() {
    let stages = |most: &str| {
        let branches: Vec<String> = (0..8).map(|n| format!("  - {{id: b{n}, runnable: slow, input: '{n}'}}")).collect();
        format!("type: parallel\nid: p\n{most}\nbranches:\n{}\n", branches.join("\n"))
    };
    for (most, at_least, at_most) in [("", 200, 1_200), ("max_concurrency: 2", 800, 1_600)] {
        let ground = Ground::new(&[&stages(most)]);
        let begun = Instant::now();
        let output = ground.output("p", "q").await;
        let ms = begun.elapsed().as_millis();
        assert!(output.starts_with("[b0]:\n0\n\n[b1]:\n1"), "{output}");
        assert!((at_least..at_most).contains(&ms), "{most}: {ms} ms");
    }
}

pub(super) const FAILING: &str = "
type: loop
id: failing
max_iterations: 3
stages:
  - {id: first, runnable: echo, input: 'in {loop.iteration}'}
  - id: both
    input: x
    runnable:
      type: parallel
      id: p
      branches:
        - {id: fine, runnable: echo, input: ok, condition: \"{first} contains 'nothing'\"}
        - {id: verify, runnable: echo, input: fail, condition: \"{loop.iteration} == '2'\", retry: {max_attempts: 3, backoff: 1ms}}
";

/// A sink that fails to publish.
struct Deaf;

#[async_trait]
impl EventSink for Deaf {
    async fn publish(&self, _: Vec<QueuedEvent>) -> Result<(), SinkError> {
        Err("nobody hears it".into())
    }
}

#[tokio::test]
async fn a_run_that_nobody_hears_finishes_what_is_under_way_and_asks_it_no_more() {
    let branch = |id: &str, kind: &str| format!("  - {{id: {id}, runnable: {kind}, input: '{id}'}}\n");
    let branches = ["a", "b", "c"].map(|id| branch(id, "slow_step")).concat();
    let ground = Ground::new(&[&format!("type: parallel\nid: p\nbranches:\n{branches}")]);
    let environment = RunEnvironment { sink: Arc::new(Deaf), ..ground.environment() };
    let start = RunStart::new("r1", ground.resolved("p").await, "q", ground.journal().await, environment);
    let RunError::Sink(problem) = execute(start).await.unwrap_err() else { panic!("it was heard") };
    assert_eq!((problem.to_string().as_str(), ground.calls().len()), ("nobody hears it", 3));
    assert!(ground.output("p", "q").await.starts_with("[a]:\na"));
    assert_eq!(ground.calls(), [""; 0], "the steps that were in flight are recorded");
}

/// A sink that publishes nothing until its gate is open.
struct Gated {
    heard: Arc<Heard>,
    reached: Semaphore,
    gate: Semaphore,
}

#[async_trait]
impl EventSink for Gated {
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError> {
        self.reached.add_permits(1);
        let _open = self.gate.acquire().await?;
        self.heard.publish(events).await
    }
}

#[tokio::test]
async fn a_cancelled_run_publishes_what_came_before_the_cancellation() {
    let mut ground = Ground::new(&["type: pipeline\nid: p\nstages: [{id: a, runnable: hangs, input: ''}]\n"]);
    ground.flows =
        ground.flows.with("hangs", async |_: FlowContext| std::future::pending::<Result<String, FlowError>>().await);
    let heard = Arc::clone(&ground.heard);
    let sink = Arc::new(Gated { heard, reached: Semaphore::new(0), gate: Semaphore::new(0) });
    let environment = RunEnvironment { sink: sink.clone(), ..ground.environment() };
    let cancelled = CancellationToken::new();
    let journal = ground.guarded_journal(Guard::always().cancelled_by(cancelled.clone())).await;
    let start = RunStart::new("r1", ground.resolved("p").await, "q", journal, environment);
    let cancels = async {
        let _reached = sink.reached.acquire().await.unwrap();
        cancelled.cancel();
        tokio::task::yield_now().await;
        sink.gate.add_permits(1);
    };
    let (ended, ()) = tokio::join!(execute(start), cancels);
    assert!(matches!(ended, Err(RunError::Journal(JournalError::Cancelled))), "{ended:?}");
    assert_eq!(ground.told(), ["0 run_started - - -", "0 stage_started a - -", "1 run_started a - -"]);
}

/// A sink that publishes the pieces of an answer only after the answer is recorded and other tasks have run.
struct Hesitant {
    heard: Arc<Heard>,
    journal: Journal,
}

#[async_trait]
impl EventSink for Hesitant {
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError> {
        if events.iter().any(|event| matches!(event, QueuedEvent::Run(event) if event.delta.is_some())) {
            while self.journal.recorded().is_empty() {
                tokio::task::yield_now().await;
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        self.heard.publish(events).await
    }
}

#[tokio::test]
async fn what_runs_beside_a_question_comes_to_its_end_also_while_its_words_are_on_their_way() {
    let branches = "  - {id: q, runnable: asks, input: ''}\n  - {id: other, runnable: says, input: '{query}'}\n";
    let mut ground = Ground::new(&[&format!("type: parallel\nid: p\nbranches:\n{branches}")]);
    let asks = async |context: FlowContext| context.ask("哪个？").await;
    let says = async |context: FlowContext| context.say("words", "Answer.", &context.input).await;
    ground.flows = ground.flows.with("asks", asks).with("says", says);
    let (heard, journal) = (Arc::clone(&ground.heard), ground.journal().await);
    let sink = Arc::new(Hesitant { heard, journal: journal.clone() });
    let environment = RunEnvironment { sink, ..ground.environment() };
    let start = RunStart::new("r1", ground.resolved("p").await, "你好", journal, environment);
    let ended = execute(start.with_asking(Arc::new(Asking::for_user(None)))).await;
    assert!(matches!(ended, Err(RunError::Waits(_))), "{ended:?}");
    let told = ground.told();
    assert!(told.iter().any(|line| line.contains("step_delta")), "{told:?}");
    assert!(told.iter().any(|line| line.contains("branch_completed") && line.contains("other")), "{told:?}");
}

#[tokio::test]
async fn a_failing_stage_names_its_path_its_cause_and_its_attempts() {
    let ground = Ground::new(&[FAILING]);
    let end = ground.run("failing", "q").await.unwrap();
    let failure = end.outcome.unwrap_err();
    assert_eq!((failure.path.as_str(), failure.attempts), ("failing[2]/both/verify", 3));
    assert_eq!(failure.to_string(), "failing[2]/both/verify: it was told to fail (after 3 attempts)");
    assert_eq!((end.event.kind, end.event.error.as_deref()), (Type::RunFailed, Some(failure.to_string().as_str())));
    assert_eq!(ground.calls().iter().filter(|call| *call == "fail").count(), 3);
    let told = ground.told();
    assert!(told.contains(&"1 run_failed both verify 2".to_owned()), "the inner workflow fails, too: {told:#?}");
    assert!(ground.run("failing", "q").await.unwrap().outcome.is_err());
    assert!(ground.calls().is_empty(), "the failures of the attempts are recorded");
}

#[tokio::test]
async fn a_stage_that_takes_too_long_fails_and_may_be_tried_again() {
    let ground = Ground::new(&["
id: w
stages:
  - {id: slow, runnable: slow, input: x, timeout: 20ms, retry: {max_attempts: 2, backoff: 1ms}}
"]);
    let failure = ground.run("w", "q").await.unwrap().outcome.unwrap_err();
    assert_eq!((failure.path.as_str(), failure.attempts), ("slow", 2));
    assert!(failure.cause.contains("20ms") && failure.cause.contains("timeout"), "{failure}");
}

#[tokio::test]
async fn limits_end_a_run_with_the_remedy() {
    const ENDLESS: &str = "
type: loop
id: w
max_iterations: 1000
stages: [{id: a, runnable: echo, input: '{loop.iteration}', retry: {max_attempts: 5}}]
";
    let mut ground = Ground::new(&[ENDLESS]);
    ground.limits.max_stages = 10;
    let failure = ground.run("w", "q").await.unwrap().outcome.unwrap_err();
    assert!(failure.cause.contains("more stages than allowed (10)"), "{failure}");
    assert_eq!((failure.path.as_str(), failure.attempts, ground.calls().len()), ("w[11]/a", 1, 10));
}

#[tokio::test]
async fn nesting_and_time_are_bounded() {
    let mut ground = Ground::new(&[NESTED]);
    ground.limits.max_depth = 1;
    let failure = ground.run("outer", "q").await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.path, "again[1]/both/left", "{failure}");
    assert!(failure.cause.contains("nested deeper") && failure.cause.contains("max_depth"), "{failure}");
    let mut ground = Ground::new(&["id: w\nstages: [{id: a, runnable: slow, input: x}]"]);
    ground.limits.timeout = Duration::from_millis(20);
    let failure = ground.run("w", "q").await.unwrap().outcome.unwrap_err();
    assert!(failure.path.is_empty() && failure.cause.contains("workflow.timeout"), "{failure}");
}

#[tokio::test]
async fn the_first_route_that_fits_is_taken_and_conditions_see_what_is_asked_now() {
    let ground = Ground::new(&["
type: conditional
id: router
routes:
  - {condition: \"{query} contains '代码'\", stage: {id: code, runnable: echo, input: 'c {query}'}}
  - {condition: \"{query} contains '数据'\", stage: {id: data, runnable: echo, input: 'd {query}'}}
default: {id: general, runnable: echo, input: 'g {query}'}
"]);
    let resolved = ground.resolved("router").await;
    let start = RunStart::new(
        "r1",
        resolved,
        "用户: 写代码\n\n当前请求: 分析数据",
        ground.journal().await,
        ground.environment(),
    );
    let end = execute(start.with_request("分析数据")).await.unwrap();
    assert_eq!(end.outcome.unwrap(), "<d 用户: 写代码\n\n当前请求: 分析数据>");
    let told = ground.told();
    assert_eq!(told[1..3], ["0 stage_started data - -", "1 run_started data - -"]);
}

#[tokio::test]
async fn what_a_run_names_and_nobody_has_is_said_before_it_begins() {
    let ground = Ground::new(&["id: w\nstages: [{id: a, runnable: nobody, input: x}]"]);
    let refused = |id: &'static str| ResolvedDefinitions::resolve(&ground.files, &ground.flows, id);
    let Err(ResolveError::Unfit(problem)) = refused("w").await else { panic!("it was taken") };
    assert!(problem.to_string().starts_with("Runnable not found: nobody"), "{problem}");
    let Err(error @ ResolveError::Unknown(_)) = refused("gone").await else { panic!("it was taken") };
    assert_eq!(error.to_string(), "there is no workflow or task agent `gone`");
}
