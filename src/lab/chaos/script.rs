//! The conversations of a run: messages, pauses and ways of publishing, drawn from the seed alone.

use super::agents::Manner;
use super::conversations::{ScriptMessage, Verb};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::time::Duration;
use types::cause::Cause;

/// Average number of messages in a conversation, which converts a rate of messages to a rate of conversations.
pub(super) const AVERAGE_MESSAGES: f64 = 5.0;

/// The script of one session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conversation {
    pub(super) session_id: String,
    pub(super) manner: Manner,
    pub(super) moves: Vec<Move>,
}

/// One step of a conversation. The steps happen in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// A pause.
    Wait(Duration),
    /// Publishes a message.
    Say(ScriptMessage, PublishRoute),
    /// Publishes an earlier message again. Without `keyed` it has no message id, so the queue cannot deduplicate it.
    Again {
        /// Index of the message, from 0.
        message: usize,
        way: PublishRoute,
        keyed: bool,
    },
    /// Publishes an invalid job.
    Bad(Bad),
}

/// How a message is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublishRoute {
    /// To the subject in NATS.
    Nats,
    /// Over HTTP.
    Gateway,
}

/// A job that the engine must dead-letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) tag: String,
    pub(super) payload: String,
    /// Expected cause of the dead letter.
    pub(super) cause: Cause,
}

/// Draws the conversation with this number.
pub(super) fn conversation(seed: u64, number: u64) -> Conversation {
    // Multiplying by the golden ratio spreads neighbouring numbers over all seeds.
    let mut rng = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // A message of a dialogue costs as much as ten others.
    let manners = [(Manner::Plain, 9), (Manner::Timed, 5), (Manner::Merging, 5), (Manner::Authoring, 1)];
    let manner = manners.choose_weighted(&mut rng, |(_, weight)| *weight).map_or(Manner::Plain, |(manner, _)| *manner);
    let session_id = format!("c{number}");
    let mut moves = Vec::new();
    for message in 0..rng.random_range(2..=8_usize) {
        if message > 0 {
            moves.extend(pause(&mut rng, manner).map(Move::Wait));
        }
        let tag = format!("{session_id}-{message}");
        moves.push(Move::Say(ScriptMessage::new(verb(&mut rng, manner), tag), way(&mut rng)));
        if rng.random_bool(0.15) {
            moves.extend(rng.random_bool(0.3).then(|| Move::Wait(Duration::from_millis(rng.random_range(100..4_000)))));
            let (message, way) = (rng.random_range(0..=message), way(&mut rng));
            moves.push(Move::Again { message, way, keyed: rng.random_bool(0.5) });
        }
        if manner != Manner::Authoring && rng.random_bool(0.02) {
            moves.push(Move::Bad(bad(&mut rng, &session_id, format!("{session_id}-{message}-bad"))));
        }
    }
    Conversation { session_id, manner, moves }
}

fn verb(rng: &mut StdRng, manner: Manner) -> Verb {
    // All merged messages share one turn with at most ten decisions, so each may have one action only. Silent messages
    // would have no part in the merged reply.
    let merging = [(Verb::Say, 2), (Verb::Order, 1)];
    let any =
        [(Verb::Say, 4), (Verb::Order, 3), (Verb::OrderEta, 2), (Verb::Errands, 2), (Verb::Note, 1), (Verb::Bye, 1)];
    let authoring = [(Verb::Wish, 2), (Verb::Detail, 3)];
    let known: &[(Verb, u32)] = match manner {
        Manner::Merging => &merging,
        Manner::Authoring => &authoring,
        Manner::Plain | Manner::Timed => &any,
    };
    known.choose_weighted(rng, |(_, weight)| *weight).map_or(Verb::Say, |(verb, _)| *verb)
}

fn way(rng: &mut StdRng) -> PublishRoute {
    if rng.random_bool(0.3) { PublishRoute::Gateway } else { PublishRoute::Nats }
}

/// Pause before the next message: short for messages that should be merged, long for timers that should fire.
fn pause(rng: &mut StdRng, manner: Manner) -> Option<Duration> {
    let longest = match manner {
        Manner::Plain | Manner::Authoring => 1_500,
        Manner::Timed => 5_000,
        Manner::Merging => 400,
    };
    rng.random_bool(0.7).then(|| Duration::from_millis(rng.random_range(10..longest)))
}

fn bad(rng: &mut StdRng, session_id: &str, tag: String) -> Bad {
    let text = format!("say #{tag}");
    let message = |session_id: &str, agent_id: &str, text: &str| {
        json!({"type": "user_message", "session_id": session_id, "agent_id": agent_id, "job_id": tag, "text": text,
               "metadata": {"tag": tag}})
        .to_string()
    };
    let (payload, cause) = match rng.random_range(0..4) {
        0 => (format!("{{\"tag\": \"{tag}\""), Cause::Invalid),
        1 => (message("other", "plain", &text), Cause::Invalid),
        2 => (message(session_id, "plain", ""), Cause::Invalid),
        _ => (message(session_id, "nobody", &text), Cause::UnknownAgent),
    };
    Bad { tag, payload, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_run() {
        for number in 0..50 {
            assert_eq!(conversation(7, number), conversation(7, number));
        }
        assert_ne!(conversation(7, 1).moves, conversation(8, 1).moves);
    }

    #[test]
    fn conversations_have_as_many_messages_as_the_rate_counts_on() {
        let said =
            |conversation: Conversation| conversation.moves.iter().filter(|step| matches!(step, Move::Say(..))).count();
        let total: usize = (0..1_000).map(|number| said(conversation(1, number))).sum();
        assert!((4_700..5_300).contains(&total), "{total} of 1,000");
    }
}
