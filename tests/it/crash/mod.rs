//! Nothing lost, nothing twice: runs every scenario with a fault at every operation.
//!
//! Each run has its own backend in memory, and workers and a scheduler as [`process`]es that can be killed or frozen. A
//! [`wire`] connects each process with the backend; the [`plan`] decides where it injects a fault. The model uses other
//! words at every call ([`varied`]), and in some scenarios reads [`lag`]. [`run`] recovers from the faults, waits until
//! no work is left, and checks [`lab::invariants`]. [`mutants`] show that this check finds violations.
//!
//! Every point must be reached. Each run has its own clock for processes, queue, store, model and API, which a
//! [`mover`] advances. Servers of NATS and MongoDB have clocks that no test can move, so these tests use the embedded
//! backend only. `turnwheel chaos` checks the same promises on real servers, with their leases and redeliveries.

mod faulty;
mod journal;
mod lag;
mod mover;
pub mod mutants;
mod plan;
mod process;
mod run;
mod scenario;
pub mod seen;
mod site;
mod suite;
mod varied;
mod wire;

use plan::Fault;
use suite::{finds, survives, survives_twice};

/// Generates one test for each scenario.
macro_rules! scenarios {
    ($($name:ident: $scenario:ident, $faults:expr;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            survives(scenario::$scenario(), &$faults).await;
        })*
    };
}

scenarios! {
    plain_turn_survives_every_crash_point: plain_turn, Fault::ALL;
    instant_turn_survives_every_crash_point: instant_turn, Fault::ALL;
    greeting_survives_every_crash_point: greeting, Fault::ALL;
    two_actions_survive_every_crash_point: two_actions, Fault::ALL;
    silent_action_survives_every_crash_point: silent_action, Fault::ALL;
    handoff_that_notifies_survives_every_crash_point: handoff_that_notifies, Fault::ALL;
    handoff_that_holds_survives_every_crash_point: handoff_that_holds, Fault::ALL;
    close_survives_every_crash_point: close, Fault::ALL;
    cancel_survives_every_crash_point: cancel, Fault::ALL;
    cancel_meanwhile_survives_every_crash_point: cancel_meanwhile, Fault::ALL;
    timer_fires_despite_every_crash_point: timer_fires, Fault::ALL;
    timer_is_cancelled_despite_every_crash_point: timer_cancelled, Fault::ALL;
    merge_survives_every_crash_point: merge, Fault::ALL;
    flow_survives_every_crash_point: flow, Fault::ALL;
    run_survives_every_crash: run, Fault::CRASHES;
    run_survives_every_error: run, Fault::ERRORS;
    run_survives_every_pause: run, Fault::PAUSES;
    run_of_a_session_enters_its_history_despite_every_crash_point: session_run, Fault::ALL;
    dynamic_run_survives_every_crash: dynamic_run, Fault::CRASHES;
    cancelled_run_survives_every_crash_point: cancelled_run, Fault::ALL;
    dead_letter_survives_every_crash_point: dead_letter, Fault::ALL;
    two_sessions_at_once_survive_every_crash_point: two_sessions, Fault::ALL;
    three_messages_in_one_lane_survive_every_crash_point: three_messages, Fault::ALL;
    refusing_model_cancels_once_despite_every_crash_point: refusing_model, Fault::ALL;
    refused_flow_survives_every_crash_point: refused_flow, Fault::ALL;
    answered_flow_survives_every_crash_point: answered_flow, Fault::ALL;
    answered_run_survives_every_crash: answered_run, Fault::CRASHES;
    answered_run_survives_every_error: answered_run, Fault::ERRORS;
    answered_run_survives_every_pause: answered_run, Fault::PAUSES;
    waiting_run_survives_every_crash: waiting_run, Fault::CRASHES;
    waiting_run_survives_every_error: waiting_run, Fault::ERRORS;
    waiting_run_survives_every_pause: waiting_run, Fault::PAUSES;
    left_run_survives_every_crash_point: left_run, Fault::ALL;
    panicking_flow_cancels_once_despite_every_crash_point: panicking_flow, Fault::ALL;
    three_messages_over_lagging_reads_survive_every_crash_point: lagging_messages, Fault::ALL;
    merge_over_lagging_reads_survives_every_crash_point: lagging_merge, Fault::ALL;
    timer_over_lagging_reads_fires_despite_every_crash_point: lagging_timer, Fault::ALL;
    rejected_decision_survives_every_crash_point: rejected_decision, Fault::ALL;
    sub_agent_survives_every_crash_point: sub_agent, Fault::ALL;
    authoring_survives_every_crash: dialogue, Fault::CRASHES;
    authoring_survives_every_error: dialogue, Fault::ERRORS;
    authoring_survives_every_pause: dialogue, Fault::PAUSES;
    failing_authoring_survives_every_crash: failing_dialogue, Fault::CRASHES;
    clarification_survives_every_crash_point: clarification, Fault::ALL;
    plan_survives_every_crash_point: planned_work, Fault::ALL;
    background_run_survives_every_crash_point: background_run, Fault::ALL;
    recovering_graph_survives_every_crash: recovering_graph, Fault::CRASHES;
    recovering_graph_survives_every_error: recovering_graph, Fault::ERRORS;
    recovering_graph_survives_every_pause: recovering_graph, Fault::PAUSES;
    turn_that_is_given_up_ends_once_after_every_crash_point: given_up, Fault::ALL;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_waits_for_nothing_publishes_once() {
    let operations = suite::operations(scenario::instant_turn()).await;
    let published = operations.iter().filter(|operation| operation.name == "emit" && operation.lane == "s1");
    assert_eq!(published.count(), 1, "all events are published together: {operations:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greeting_survives_a_second_crash_at_every_point_of_its_recovery() {
    survives_twice(scenario::greeting()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledging_before_the_commit_is_found() {
    finds("was processed 0 times", scenario::plain_turn(), mutants::ACKNOWLEDGES_FIRST, &Fault::CRASHES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committing_under_any_epoch_is_found() {
    finds("was processed 2 times", scenario::three_messages(), mutants::FILTERS_NO_EPOCH, &Fault::PAUSES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_recorded_steps_again_is_found() {
    finds("ran again after it was recorded", scenario::two_actions(), mutants::IGNORES_RECORDS, &Fault::CRASHES).await;
}
