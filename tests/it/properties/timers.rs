//! Properties of timers: due times, ids, and the generation that counts.

use super::id;
use crate::conformance::kit::run_turn;
use crate::support::backend::embedded;
use base::clock;
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;
use storage::store::records::TimerChange;
use types::duration;
use types::timer::{NewTimer, timer_id};
use types::timestamp::Timestamp;

proptest! {
    #[test]
    fn a_timer_is_armed_for_its_delay_and_no_less(now in 0..4_000_000_000_000_i64, delay in 1..36_525 * 86_400_000_u64, generation: u64) {
        let text = duration::format(Duration::from_millis(delay));
        let delay_read = duration::parse(&text).unwrap();
        prop_assert_eq!(delay_read, Duration::from_millis(delay));
        let new = NewTimer { timer_id: "t".into(), name: "n".into(), delay: delay_read, action: None, message: None, traceparent: None };
        let timer = new.arm(Timestamp::from_millis(now), generation);
        prop_assert_eq!(timer.due_at.as_millis() - now, i64::try_from(delay).unwrap());
        prop_assert_eq!(timer.generation, generation);
    }

    #[test]
    fn timers_of_other_turns_have_other_ids(one in (id(), id(), 0..9_usize), other in (id(), id(), 0..9_usize)) {
        let name = |(session, turn, index): &(String, String, usize)| timer_id(session, turn, *index);
        prop_assert_eq!(name(&one) == name(&other), one == other);
        prop_assert!(types::ids::is_legal(&name(&one)));
    }
}

/// A change of the timers by a commit.
#[derive(Clone, Debug)]
enum Armed {
    Replace(Vec<u64>),
    Keep,
    Remove(Index),
}

fn armed() -> impl Strategy<Value = Armed> {
    prop_oneof![
        3 => prop::collection::vec(1_000..50_000_u64, 0..4).prop_map(Armed::Replace),
        1 => Just(Armed::Keep),
        2 => any::<Index>().prop_map(Armed::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn only_timers_of_the_last_generation_are_due(changes in prop::collection::vec(armed(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = embedded().await.store;
            let (mut expected, mut generation) = (Vec::<(String, i64)>::new(), 0);
            for (change, seq) in changes.into_iter().zip(1..) {
                let earliest = clock::now();
                let timers = match change {
                    Armed::Keep => TimerChange::Keep,
                    Armed::Remove(at) if !expected.is_empty() => {
                        let at = at.index(expected.len());
                        TimerChange::Remove(vec![expected.remove(at).0])
                    }
                    Armed::Remove(_) => TimerChange::Remove(vec!["gone".into()]),
                    Armed::Replace(delays) => {
                        generation += 1;
                        let new = |(index, delay): (usize, &u64)| NewTimer {
                            timer_id: timer_id("s1", &format!("m-{seq}"), index), name: String::new(),
                            delay: Duration::from_millis(*delay), action: None, message: None, traceparent: None,
                        };
                        let new: Vec<_> = delays.iter().enumerate().map(new).collect();
                        let due = |timer: &NewTimer| (timer.timer_id.clone(), earliest.plus(timer.delay).as_millis());
                        expected = new.iter().map(due).collect();
                        TimerChange::Replace(new)
                    }
                };
                let session = run_turn(&store, "s1", seq, |change| {
                    change.timers = timers;
                    change.timer_generation = generation;
                }).await;
                prop_assert_eq!(session.timers.len(), expected.len());
                prop_assert!(session.timers.iter().all(|timer| timer.generation == generation));
                for timer in &session.timers {
                    let (_, earliest) = expected.iter().find(|(id, _)| *id == timer.timer_id).expect("it was armed");
                    prop_assert!(timer.due_at.as_millis() >= *earliest, "a timer is never due early");
                }
                let due = store.due_timers(Duration::from_secs(3_600), 100).await.unwrap().timers;
                let mut ids: Vec<_> = due.iter().map(|due| due.timer.timer_id.clone()).collect();
                let mut known: Vec<_> = expected.iter().map(|(id, _)| id.clone()).collect();
                ids.sort();
                known.sort();
                prop_assert_eq!(ids, known);
            }
            Ok(())
        })?;
    }
}
