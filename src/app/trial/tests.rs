use super::*;
use std::thread;

#[tokio::test]
async fn a_seat_that_is_only_looked_at_does_not_seem_to_be_taken() {
    let engine = Engine::in_memory().open().await.unwrap();
    let room = TrialRoom::of(&engine).0;
    let idle: Vec<String> = (0..PLACES).map(|nth| format!("d{nth}")).collect();
    idle.iter().for_each(|id| drop(room.seat(id).unwrap()));
    let _places = Arc::clone(&room.places).try_acquire_many_owned(u32::try_from(PLACES).unwrap()).unwrap();
    let taken = room.seat("d3").unwrap();
    assert!(room.seat("d3").is_none(), "its draft answers");
    drop(taken);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Other dialogues look for the conversation that was idle the longest, in all seats.
        let looking = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(matches!(room.place(), Err(TrialError::TooMany(PLACES))));
                room.end_idle(IDLE);
            }
        });
        let refused = (0..50_000).filter(|nth| room.seat(&idle[nth % PLACES]).is_none()).count();
        done.store(true, Ordering::Relaxed);
        looking.join().unwrap();
        assert_eq!(refused, 0);
    });
    engine.abandon();
}
