//! Authoring dialogues: one state for each, in the stage that the session names. The invariants of every run
//! ([`crate::invariants`]) check their conversations, events and publications.

use super::case::Case;
use super::{Found, Promise};
use std::collections::HashSet;
use types::authoring::Body;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    let Some(dialogue) = case.dialogue else {
        // A session that was never created has accepted no message.
        if case.session.is_some() {
            found.broken(Promise::Dialogues, "the session is no authoring dialogue".to_owned());
        }
        return;
    };
    found.counts().dialogues += 1;
    match dialogue.stages.as_slice() {
        [stage] if *stage == dialogue.session_stage => {}
        [stage] => {
            let session = &dialogue.session_stage;
            found
                .broken(Promise::Dialogues, format!("the session is in the stage {session:?}, its state in {stage:?}"));
        }
        stages => found.broken(Promise::Dialogues, format!("the dialogue has {} states", stages.len())),
    }
    let published: HashSet<&str> = case
        .authoring
        .iter()
        .filter_map(|event| match &event.body {
            Body::WorkflowComplete { data, .. } if data.published => Some(data.hash.as_str()),
            _ => None,
        })
        .collect();
    found.counts().workflows += u64::try_from(published.len()).unwrap_or(0);
}
