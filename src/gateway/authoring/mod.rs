//! Authoring dialogues over HTTP.
//!
//! - [`dialogues`]: begin, list, show, delete. [`chat`]: a message, and the events of its turn.
//! - [`artifacts`]: draft, difference, publication, catalogue. [`trials`]: tests of a draft by a person. [`replays`]:
//!   recorded turns against a draft.
//! - `turn_events`: the events of one turn. `error_codes`: the codes that only these endpoints have.

mod artifacts;
mod chat;
mod dialogues;
mod error_codes;
pub(super) mod replays;
mod trials;
mod turn_events;

use crate::error_codes::{EVENT_ID, ID, OVERTAKEN, PUBLISH, QUEUE, STORE, STREAM};
use crate::openapi::Routes;
use error_codes::{
    AGAINST, CONFIG, DIALOGUE, DRAFT, NEW_DIALOGUE, PUBLICATION, REPLAY, REPORT, SPENT, TRIAL, TURN_GOES_ON,
    TURN_MESSAGE, UNUSABLE,
};

/// Adds the routes.
pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .add(dialogues::CREATE, dialogues::create, &[NEW_DIALOGUE, CONFIG, STORE])
        .add(dialogues::LIST, dialogues::list, &[ID, STORE])
        .add(dialogues::SHOW, dialogues::show, &[ID, DIALOGUE, STORE])
        .add(dialogues::DELETE, dialogues::delete, &[ID, DIALOGUE, TURN_GOES_ON, OVERTAKEN, STORE, QUEUE])
        .add(dialogues::HISTORY, dialogues::history, &[ID, DIALOGUE, STORE])
        .add(
            chat::CHAT,
            chat::chat,
            &[ID, EVENT_ID, DIALOGUE, TURN_MESSAGE, CONFIG, TURN_GOES_ON, STORE, QUEUE, PUBLISH, STREAM],
        )
        .add(artifacts::STATUS, artifacts::status, &[ID, DIALOGUE, STORE])
        .add(artifacts::DRAFT, artifacts::draft, &[ID, DIALOGUE, DRAFT, STORE])
        .add(artifacts::DIFF, artifacts::diff, &[ID, AGAINST, DIALOGUE, DRAFT, STORE])
        .add(artifacts::PUBLISH, artifacts::publish, &[ID, DIALOGUE, DRAFT, TURN_GOES_ON, PUBLICATION, UNUSABLE, STORE])
        .add(trials::TEST, trials::test, &[ID, DIALOGUE, DRAFT, UNUSABLE, TRIAL, SPENT, STORE, STREAM])
        .add(replays::REPLAY, replays::replay, &[ID, DIALOGUE, DRAFT, UNUSABLE, REPLAY, SPENT, STORE])
        .add(replays::SHOW_REPLAY, replays::show_replay, &[ID, DIALOGUE, REPORT, STORE])
        .add(artifacts::CATALOGUE, artifacts::catalogue, &[STORE])
}
