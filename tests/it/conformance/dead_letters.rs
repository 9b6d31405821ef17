//! Cases for dead letters.

use bytes::Bytes;
use std::sync::Arc;
use storage::queue::{DeadLetter, Queue};
use types::cause::Cause;

type Letters = Arc<dyn Queue>;

fn letter(id: &str) -> DeadLetter {
    DeadLetter {
        cause: Cause::Attempts,
        reason: "x".into(),
        subject: "tw.jobs.s".into(),
        attempts: 1,
        job_id: Some(id.into()),
        msg_id: id.into(),
        payload: "{}".into(),
        cut_from: None,
    }
}

pub async fn a_dead_letter_is_taken_and_its_repeat_too(queue: Letters) {
    let letter = DeadLetter {
        cause: Cause::Invalid,
        reason: "the payload is not a job: 期望对象\nsecond line".into(),
        subject: "tw.jobs.会话".into(),
        attempts: 1,
        job_id: None,
        msg_id: "dead/会话/1".into(),
        payload: Bytes::from_static(b"\xff\x00 not json"),
        cut_from: None,
    };
    queue.publish_dead_letter(letter.clone()).await.unwrap();
    queue.publish_dead_letter(letter.clone()).await.unwrap();
    let other = DeadLetter { cause: Cause::Attempts, job_id: Some("m-2".into()), msg_id: "2".into(), ..letter.clone() };
    queue.publish_dead_letter(other.clone()).await.unwrap();
    let kept = queue.dead_letters(0, 10).await.unwrap();
    // The reason may be stored in a header, which has one line.
    let one_line = |letter: &DeadLetter| DeadLetter { reason: letter.reason.replace('\n', " "), ..letter.clone() };
    assert_eq!(
        kept.iter().map(|kept| one_line(&kept.letter)).collect::<Vec<_>>(),
        [one_line(&letter), one_line(&other)]
    );
    assert_eq!(queue.dead_letters(kept[0].seq, 10).await.unwrap(), kept[1..]);
    assert_eq!(queue.dead_letters(0, 1).await.unwrap(), kept[..1]);
    assert!(queue.dead_letters(kept[1].seq, 10).await.unwrap().is_empty());
    queue.ping().await.unwrap();
}

pub async fn a_dead_letter_is_removed_once_and_leaves_its_number_free_for_nobody(queue: Letters) {
    assert_eq!(queue.last_dead_letter_seq().await.unwrap(), 0);
    assert!(!queue.remove_dead_letter(1).await.unwrap());
    for id in ["1", "2", "3"] {
        queue.publish_dead_letter(letter(id)).await.unwrap();
    }
    let kept = queue.dead_letters(0, 10).await.unwrap();
    assert_eq!(queue.last_dead_letter_seq().await.unwrap(), kept[2].seq);
    assert!(queue.remove_dead_letter(kept[1].seq).await.unwrap());
    assert!(!queue.remove_dead_letter(kept[1].seq).await.unwrap(), "the dead letter is removed");
    assert_eq!(queue.dead_letters(0, 10).await.unwrap(), [kept[0].clone(), kept[2].clone()]);
    assert!(queue.remove_dead_letter(kept[2].seq).await.unwrap());
    assert_eq!(queue.last_dead_letter_seq().await.unwrap(), kept[2].seq, "a removed dead letter counts, too");
    queue.publish_dead_letter(letter("4")).await.unwrap();
    assert!(queue.dead_letters(0, 10).await.unwrap()[1].seq > kept[2].seq);
}

pub async fn a_payload_beyond_the_limit_is_cut_and_its_size_is_kept(queue: Letters) {
    let whole = queue.max_payload() + 1_000;
    let large = DeadLetter { payload: vec![b'x'; whole].into(), ..letter("large") };
    queue.publish_dead_letter(large.clone()).await.unwrap();
    queue.publish_dead_letter(large).await.unwrap();
    queue.publish_dead_letter(letter("small")).await.unwrap();
    let kept = queue.dead_letters(0, 10).await.unwrap();
    let ids: Vec<_> = kept.iter().map(|kept| kept.letter.msg_id.as_str()).collect();
    assert_eq!(ids, ["large", "small"]);
    let cut = &kept[0].letter;
    assert_eq!((cut.cut_from, kept[1].letter.cut_from), (Some(whole), None));
    assert!((1..whole).contains(&cut.payload.len()), "{}", cut.payload.len());
}

pub async fn dead_letters_are_listed_within_their_limits(queue: Letters) {
    for id in ["1", "2", "3"] {
        queue.publish_dead_letter(letter(id)).await.unwrap();
    }
    assert!(queue.dead_letters(0, 0).await.unwrap().is_empty());
    assert_eq!(queue.dead_letters(0, usize::MAX).await.unwrap().len(), 3);
    assert!(queue.dead_letters(u64::MAX, 10).await.unwrap().is_empty());
}
