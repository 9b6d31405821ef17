//! All routes, each with its handler, its description and the errors that it may respond with.
//!
//! `Routes::add` adds the errors of parameters, body and security by itself.

use super::error_codes::*;
use super::openapi::{Access, Routes};
use super::{
    agents, control, dead_letters, doctor, events, health, knowledge, messages, metrics, models, openapi, processes,
    run_stream, runs, sessions, timers, workflows,
};
use axum::routing::{delete, get, post, put};

/// The routes without a token.
pub(super) fn health() -> Routes {
    Routes::new(Access::Everyone)
        .add::<health::__path_alive>(get(health::alive), &[])
        .add::<health::__path_ready>(get(health::ready), &[NOT_READY])
}

/// All other routes.
pub(super) fn api(access: Access) -> Routes {
    let routes = operation(agents_and_knowledge(sessions(Routes::new(access))));
    runs(workflows(routes))
}

fn sessions(routes: Routes) -> Routes {
    let command: &[Codes] = &[ID, SESSION, STORE, QUEUE, PUBLISH];
    routes
        .add::<messages::__path_post_message>(
            post(messages::post_message),
            &[MESSAGE, TEXT, ID, TASK_AGENT, AGENT, STORE, QUEUE, PUBLISH],
        )
        .add::<sessions::__path_list>(get(sessions::list), &[ID, STORE])
        .add::<sessions::__path_show>(get(sessions::show), &[ID, SESSION, STORE])
        .add::<sessions::__path_turns>(get(sessions::turns), &[ID, SESSION, STORE])
        .add::<sessions::__path_turn>(get(sessions::turn), &[ID, SESSION, TURN, STORE])
        .add::<events::__path_follow>(get(events::follow), &[ID, EVENT_ID, SESSION, STORE, QUEUE, STREAM])
        .add::<control::__path_cancel>(post(control::cancel), command)
        .add::<control::__path_release>(post(control::release), command)
        .add::<control::__path_close>(post(control::close), command)
        .add::<control::__path_cancel_timers>(post(control::cancel_timers), command)
        .add::<control::__path_reply>(
            post(control::reply),
            &[ID, TEXT, SESSION, NOT_TRANSFERRED, STORE, QUEUE, PUBLISH],
        )
        .add::<timers::__path_list>(get(timers::list), &[ID, SESSION, STORE])
}

fn agents_and_knowledge(routes: Routes) -> Routes {
    routes
        .add::<agents::__path_list>(get(agents::list), &[STORE])
        .add::<agents::__path_show>(get(agents::show), &[ID, AGENT, STORE])
        .add::<agents::__path_apply>(put(agents::apply), &[ID, AGENT_FILE, STORE])
        .add::<models::__path_show>(get(models::show), &[STORE])
        .add::<knowledge::__path_list>(get(knowledge::list), &[ID, AGENT, STORE])
        .add::<knowledge::__path_find>(get(knowledge::find), &[ID, AGENT, STORE])
        .add::<knowledge::__path_store>(put(knowledge::store), &[ID, AGENT, KNOWLEDGE_TEXT, STORE])
        .add::<knowledge::__path_delete>(delete(knowledge::delete), &[ID, AGENT, SOURCE, STORE])
}

fn operation(routes: Routes) -> Routes {
    routes
        .add::<dead_letters::__path_get_all>(get(dead_letters::get_all), &[QUEUE])
        .add::<dead_letters::__path_get_one>(get(dead_letters::get_one), &[LETTER, QUEUE])
        .add::<dead_letters::__path_post_replay>(
            post(dead_letters::post_replay),
            &[LETTER, REPLAY, TASK_AGENT, AGENT, SESSION, STORE, QUEUE, PUBLISH],
        )
        .add::<doctor::__path_examine>(get(doctor::examine), &[])
        .add::<processes::__path_list>(get(processes::list), &[STORE])
        .add::<metrics::__path_show>(get(metrics::show), &[])
        .add::<openapi::__path_show>(get(openapi::show), &[])
}

fn workflows(routes: Routes) -> Routes {
    let started: &[Codes] = &[ID, NEW_RUN, WORKFLOW, STORE, QUEUE, PUBLISH];
    let followed: &[Codes] = &[ID, NEW_RUN, WORKFLOW, STORE, QUEUE, PUBLISH, STREAM];
    let continued: &[Codes] = &[ID, NEW_RUN, WORKFLOW, EVENT_ID, RUN, STORE, QUEUE, PUBLISH, STREAM];
    routes
        .add::<workflows::__path_list>(get(workflows::list), &[STORE])
        .add::<workflows::__path_show>(get(workflows::show), &[ID, WORKFLOW, STORE])
        .add::<workflows::__path_put>(put(workflows::put), &[ID, WORKFLOW_FILE, STORE])
        .add_everywhere::<workflows::__path_structure>(&get(workflows::structure), &[ID, WORKFLOW, STORE])
        .add_everywhere::<run_stream::__path_post_run>(&post(run_stream::post_run), followed)
        .add_everywhere::<run_stream::__path_get_run>(&get(run_stream::get_run), continued)
        .add::<run_stream::__path_post_start>(post(run_stream::post_start), started)
}

fn runs(routes: Routes) -> Routes {
    routes
        .add::<runs::__path_list>(get(runs::list), &[ID, STORE])
        .add::<runs::__path_show>(get(runs::show), &[ID, RUN, STORE])
        .add::<run_stream::__path_follow>(get(run_stream::follow), &[ID, EVENT_ID, RUN, STORE, QUEUE, STREAM])
        .add::<runs::__path_cancel>(post(runs::cancel), &[ID, RUN, CANCEL, SESSION, STORE, QUEUE, PUBLISH])
        .add::<runs::__path_resume>(post(runs::resume), &[ID, RUN, RESUME, STORE, QUEUE, PUBLISH])
        .add::<runs::__path_restart>(post(runs::restart), &[ID, RUN, WORKFLOW, RESTART, STORE, QUEUE, PUBLISH])
}
