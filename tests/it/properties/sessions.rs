//! Properties of statuses and of the history of a conversation.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, json};
use types::session::Status::{self, Acknowledged, Cancelled, Processing, Ready, Transferred, Typing};
use types::session::history::{self, Entry, MAX_BYTES, MAX_ENTRIES, MAX_TEXT, Metadata, Role};
use types::timestamp::Timestamp;

/// The legal transitions of the contract, written independently of the code's table.
const LEGAL: [(Status, &[Status]); 6] = [
    (Ready, &[Acknowledged, Processing, Cancelled]),
    (Cancelled, &[Acknowledged, Processing]),
    (Transferred, &[Acknowledged, Processing, Ready, Cancelled]),
    (Acknowledged, &[Processing, Cancelled]),
    (Processing, &[Processing, Typing, Ready, Transferred, Cancelled]),
    (Typing, &[Ready, Cancelled]),
];

fn status() -> impl Strategy<Value = Status> {
    select(LEGAL.map(|(from, _)| from).to_vec())
}
proptest! {
    #[test]
    fn only_legal_transitions_are_accepted(from in status(), to in status()) {
        let legal = LEGAL.iter().any(|(known, next)| *known == from && next.contains(&to));
        prop_assert_eq!(from.check(to).is_ok(), legal);
        if let Err(refused) = from.check(to) {
            prop_assert_eq!((refused.from, refused.to), (from, to));
        }
    }

    #[test]
    fn however_a_session_goes_a_turn_can_begin_and_end(asked in prop::collection::vec(status(), 0..40)) {
        let at = asked.into_iter().fold(Ready, |at, to| if at.check(to).is_ok() { to } else { at });
        // From any status the session can become `cancelled` (unless it is), and from there the next turn begins.
        prop_assert!(at == Cancelled || at.check(Cancelled).is_ok());
        prop_assert!(Cancelled.check(Processing).is_ok() && Processing.check(Typing).is_ok() && Typing.check(Ready).is_ok());
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let length = prop_oneof![4 => 0..200_usize, 2 => 0..30_000_usize, 1 => 0..2 * MAX_BYTES];
    let metadata = prop_oneof![6 => Just(0), 1 => 0..2 * MAX_TEXT];
    (select(vec![Role::User, Role::Assistant, Role::Human]), length, select(vec!["x", "中", "😀"]), metadata).prop_map(
        |(role, length, text, metadata)| Entry {
            role,
            text: text.repeat(length / text.len()),
            at: Timestamp::from_millis(0),
            turn_id: "m-1".into(),
            kind: None,
            metadata: if metadata == 0 {
                Metadata::default()
            } else {
                Map::from_iter([("a".to_owned(), json!("y".repeat(metadata)))]).into()
            },
        },
    )
}

fn bytes(entry: &Entry) -> usize {
    let metadata: usize = entry.metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    entry.text.len() + entry.turn_id.len() + metadata
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_history_keeps_the_newest_within_its_bounds(turns in prop::collection::vec(prop::collection::vec(entry(), 1..4), 1..60)) {
        let (mut kept, mut all) = (Vec::<Entry>::new(), Vec::new());
        for added in turns {
            let added: Vec<Entry> = added.into_iter().map(Entry::bounded).collect();
            prop_assert!(added.iter().all(|entry| entry.text.len() <= MAX_TEXT + 64 && bytes(entry) <= 2 * MAX_TEXT + 128));
            let excess = history::excess(&kept, &added);
            prop_assert!(excess <= kept.len() + added.len());
            all.extend(added.clone());
            history::append(&mut kept, added);
            prop_assert!(kept.len() <= MAX_ENTRIES && kept.iter().map(bytes).sum::<usize>() <= MAX_BYTES);
            prop_assert!(!kept.is_empty() && all.ends_with(&kept), "the newest entries stay, in order");
            if let Some(next) = all.len().checked_sub(kept.len() + 1) {
                let more = kept.iter().map(bytes).sum::<usize>() + bytes(&all[next]);
                prop_assert!(kept.len() == MAX_ENTRIES || more > MAX_BYTES, "nothing is dropped without need");
            }
        }
    }
}
