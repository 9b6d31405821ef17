//! All routes, each with its handler, its description and the errors that it may respond with.
//!
//! `Routes::add` adds the errors of parameters, body and security by itself.

use super::error_codes::*;
use super::openapi::{Access, Routes};
use super::{
    GatewayState, agents, all_events, audit, authoring, backup, claims, control, dead_letters, decisions, deletion,
    doctor, events, handoffs, health, knowledge, login, messages, metrics, models, openapi, processes, run_stream,
    runs, sessions, timers, workflows,
};

/// The routes without a token.
pub(super) fn health() -> Routes {
    Routes::unguarded(Access::Everyone).add(health::ALIVE, health::alive, &[]).add(
        health::READY,
        health::ready,
        &[NOT_READY],
    )
}

/// The routes by which people log in and out.
pub(super) fn logins() -> Routes {
    Routes::unguarded(Access::Everyone).add(login::LOGIN, login::login, &[TOKEN, ORIGIN, STORE]).add(
        login::LOGOUT,
        login::logout,
        &[ORIGIN],
    )
}

/// All other routes.
pub(super) fn api(access: Access, state: &GatewayState) -> Routes {
    let routes = operation(agents_and_knowledge(handed_off(sessions(Routes::guarded(access, state)))));
    authoring::routes(runs(workflows(routes)))
}

fn sessions(routes: Routes) -> Routes {
    let command: &'static [Codes] = &[ID, SESSION, STORE, QUEUE, PUBLISH];
    routes
        .add(
            messages::POST_MESSAGE,
            messages::post_message,
            &[MESSAGE, TEXT, ID, TASK_AGENT, AGENT, VERSION, AGENT_RATE, STORE, QUEUE, PUBLISH],
        )
        .add(sessions::LIST, sessions::list, &[ID, STORE])
        .add(sessions::SHOW, sessions::show, &[ID, SESSION, STORE])
        .add(deletion::SESSION, deletion::session, &[ID, SESSION, OVERTAKEN, STORE, QUEUE])
        .add(deletion::USER, deletion::user, &[ID, USER, OVERTAKEN, STORE, QUEUE])
        .add(sessions::TURNS, sessions::turns, &[ID, SESSION, STORE])
        .add(sessions::TURN, sessions::turn, &[ID, SESSION, TURN, STORE])
        .add(sessions::PROMPT, sessions::prompt, &[ID, SESSION, PROMPT, STORE])
        .add(all_events::FOLLOW, all_events::follow, &[ID, EVENT_ID, QUEUE, STREAM])
        .add(events::FOLLOW, events::follow, &[ID, EVENT_ID, SESSION, STORE, QUEUE, STREAM])
        .add(control::CANCEL, control::cancel, command)
        .add(control::CLOSE, control::close, command)
        .add(control::CANCEL_TIMERS, control::cancel_timers, command)
        .add(timers::LIST, timers::list, &[ID, SESSION, STORE])
}

/// The routes about conversations that humans have.
fn handed_off(routes: Routes) -> Routes {
    let claim: &'static [Codes] = &[ID, PERSON, SESSION, NOT_TRANSFERRED, CLAIMED, STORE, QUEUE, PUBLISH];
    let noted: &'static [Codes] = &[ID, PERSON, NOTE_TEXT, SESSION, NOT_TRANSFERRED, CLAIMED, STORE, QUEUE, PUBLISH];
    let note: &'static [Codes] = &[ID, PERSON, NOTE_TEXT, SESSION, NOT_TRANSFERRED, STORE, QUEUE, PUBLISH];
    let reply: &'static [Codes] = &[ID, REPLY_TEXT, SESSION, NOT_TRANSFERRED, CLAIMED, STORE, QUEUE, PUBLISH];
    let release: &'static [Codes] = &[ID, NOTE_TEXT, SESSION, NOT_TRANSFERRED, CLAIMED, STORE, QUEUE, PUBLISH];
    routes
        .add(handoffs::LIST, handoffs::list, &[ID, STORE])
        .add(claims::CLAIM, claims::claim, claim)
        .add(claims::UNCLAIM, claims::unclaim, claim)
        .add(claims::TRANSFER, claims::transfer, noted)
        .add(claims::NOTE, claims::note, note)
        .add(claims::TYPING, claims::typing, &[ID, PERSON, SESSION, NOT_TRANSFERRED, STORE, QUEUE])
        .add(control::REPLY, control::reply, reply)
        .add(control::RELEASE, control::release, release)
}

fn agents_and_knowledge(routes: Routes) -> Routes {
    routes
        .add(agents::LIST, agents::list, &[STORE])
        .add(agents::SHOW, agents::show, &[ID, AGENT, STORE])
        .add(agents::VALIDATE, agents::validate, &[STORE])
        .add(agents::APPLY, agents::apply, &[ID, AGENT_FILE, NOTE, CHANGE, QUOTA, STORE])
        .add(agents::VERSIONS, agents::versions, &[ID, AGENT, STORE])
        .add(agents::VERSION, agents::version, &[ID, VERSION, STORE])
        .add(agents::STORE, agents::store, &[ID, AGENT_FILE, NOTE, STORE])
        .add(agents::APPLY_VERSION, agents::apply_version, &[ID, VERSION, AGENT_FILE, NOTE, CHANGE, QUOTA, STORE])
        .add(deletion::AGENT, deletion::agent, &[ID, AGENT, AGENT_IN_USE, STORE])
        .add(models::SHOW, models::show, &[STORE])
        .add(knowledge::LIST, knowledge::list, &[ID, AGENT, STORE])
        .add(knowledge::FIND, knowledge::find, &[ID, AGENT, STORE])
        .add(knowledge::STORE, knowledge::store, &[ID, AGENT, KNOWLEDGE_TEXT, QUOTA, STORE])
        .add(knowledge::DELETE, knowledge::delete, &[ID, AGENT, SOURCE, STORE])
}

fn operation(routes: Routes) -> Routes {
    routes
        .add(dead_letters::GET_ALL, dead_letters::get_all, &[QUEUE])
        .add(dead_letters::GET_ONE, dead_letters::get_one, &[LETTER, QUEUE])
        .add(deletion::LETTER, deletion::letter, &[LETTER, QUEUE])
        .add(
            dead_letters::POST_REPLAY,
            dead_letters::post_replay,
            &[LETTER, UNFIT_LETTER, TASK_AGENT, AGENT, SESSION, STORE, QUEUE, PUBLISH],
        )
        .add(dead_letters::POST_REPLAY_MANY, dead_letters::post_replay_many, &[LETTER_FILTER, STORE, QUEUE])
        .add(decisions::VALIDATE, decisions::validate, &[ID, DECISION, SESSION, AGENT, STORE])
        .add(decisions::SCHEMAS, decisions::schemas, &[])
        .add(decisions::SCHEMA, decisions::schema, &[DECISION_TYPE])
        .add(decisions::LIST, decisions::list, &[ID, SESSION, STORE])
        .add(audit::LIST, audit::list, &[STORE])
        .add(backup::CREATE, backup::create, &[NO_FILE, STORE])
        .add(doctor::EXAMINE, doctor::examine, &[])
        .add(processes::LIST, processes::list, &[STORE])
        .add(metrics::SHOW, metrics::show, &[])
        .add(login::ME, login::me, &[])
        .add(openapi::SHOW, openapi::show, &[])
}

fn workflows(routes: Routes) -> Routes {
    let started: &'static [Codes] = &[ID, NEW_RUN, WORKFLOW, STORE, QUEUE, PUBLISH];
    let followed: &'static [Codes] = &[ID, NEW_RUN, WORKFLOW, STORE, QUEUE, PUBLISH, STREAM];
    let continued: &'static [Codes] = &[ID, NEW_RUN, WORKFLOW, EVENT_ID, RUN, STORE, QUEUE, PUBLISH, STREAM];
    routes
        .add(workflows::LIST, workflows::list, &[ID, STORE])
        .add(workflows::SHOW, workflows::show, &[ID, WORKFLOW, STORE])
        .add(workflows::VALIDATE, workflows::validate, &[STORE])
        .add(workflows::PUT, workflows::put, &[ID, WORKFLOW_FILE, WORKFLOW_ID, NOTE, CHANGE, QUOTA, STORE])
        .add(workflows::VERSIONS, workflows::versions, &[ID, WORKFLOW, STORE])
        .add(workflows::VERSION, workflows::version, &[ID, VERSION, STORE])
        .add(workflows::STORE, workflows::store, &[ID, WORKFLOW_FILE, WORKFLOW_ID, NOTE, STORE])
        .add(
            workflows::APPLY_VERSION,
            workflows::apply_version,
            &[ID, VERSION, WORKFLOW_FILE, WORKFLOW_ID, NOTE, CHANGE, QUOTA, STORE],
        )
        .add(deletion::WORKFLOW, deletion::workflow, &[ID, WORKFLOW, WORKFLOW_IN_USE, STORE])
        .add_everywhere(workflows::STRUCTURE, workflows::structure, &[ID, WORKFLOW, STORE])
        .add_everywhere(run_stream::POST_RUN, run_stream::post_run, followed)
        .add_everywhere(run_stream::GET_RUN, run_stream::get_run, continued)
        .add(run_stream::POST_START, run_stream::post_start, started)
}

fn runs(routes: Routes) -> Routes {
    routes
        .add(runs::LIST, runs::list, &[ID, STORE])
        .add(runs::SHOW, runs::show, &[ID, RUN, STORE])
        .add(runs::DIAGRAM, runs::diagram, &[ID, RUN, NO_STEPS, STORE])
        .add(run_stream::FOLLOW, run_stream::follow, &[ID, EVENT_ID, RUN, STORE, QUEUE, STREAM])
        .add(runs::CANCEL, runs::cancel, &[ID, RUN, RUN_ENDED, SESSION, STORE, QUEUE, PUBLISH])
        .add(runs::RESUME, runs::resume, &[ID, RUN, NOT_RESUMABLE, STORE, QUEUE, PUBLISH])
        .add(runs::ANSWER, runs::answer, &[ID, RUN, ANSWER_TEXT, NO_OPEN_QUESTION, STORE, QUEUE, PUBLISH])
        .add(runs::RESTART, runs::restart, &[ID, RUN, WORKFLOW, NO_SUCH_STAGE, NO_STEPS, STORE, QUEUE, PUBLISH])
}
