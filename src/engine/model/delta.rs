//! The pieces of an answer on their way from a model to a reader.
//!
//! The model never waits: what its reader has not taken is kept as one text. A reader that is slow gets fewer and longer
//! pieces; one that is further behind than [`MAX_KEPT`] gets no more of them, and has the whole answer at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The most bytes that wait for a reader.
const MAX_KEPT: usize = 1024 * 1024;
/// The most bytes of one piece.
const MAX_PIECE: usize = 16 * 1024;

/// Where a model puts the pieces of its answer. Cheap to clone; the reader's end is that of the last clone.
#[derive(Clone)]
pub struct DeltaSink(Arc<Writer>);

/// The reader's side of a [`DeltaSink`].
pub struct Deltas {
    mailbox: Arc<Mailbox>,
}

/// Some of an answer's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text.
    pub content: String,
    /// The answer begins anew with it: what was read of it before is void.
    pub anew: bool,
}

/// A sink and its reader.
pub fn deltas() -> (DeltaSink, Deltas) {
    let mailbox = Arc::<Mailbox>::default();
    (DeltaSink(Arc::new(Writer(Arc::clone(&mailbox)))), Deltas { mailbox })
}

struct Writer(Arc<Mailbox>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

#[derive(Default)]
struct Mailbox {
    kept: Mutex<Kept>,
    changed: Notify,
}

#[derive(Default)]
struct Kept {
    text: String,
    /// A piece of this answer has been sent.
    sent: bool,
    /// The next piece is the first one after a restart.
    anew: bool,
    /// The reader has fallen too far behind.
    overflowed: bool,
    closed: bool,
    first: Option<Instant>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeltaSink {
    /// One that nobody reads.
    pub fn unread() -> Self {
        deltas().0
    }

    /// Hands on a piece of the answer. Returns at once.
    pub fn send(&self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let mut kept = self.0.0.lock();
        kept.first.get_or_insert_with(Instant::now);
        kept.sent = true;
        if kept.overflowed || kept.text.len() + piece.len() > MAX_KEPT {
            kept.overflowed = true;
            return;
        }
        kept.text.push_str(piece);
        drop(kept);
        self.0.0.changed.notify_one();
    }

    /// Hands on an answer that came in one piece: there is nothing to watch, unless it takes the place of one that was watched.
    pub fn whole(&self, answer: &str) {
        let anew = {
            let mut kept = self.0.0.lock();
            kept.first.get_or_insert_with(Instant::now);
            kept.anew
        };
        if anew {
            self.send(answer);
        }
    }

    /// The answer begins anew: what was sent of it is void, because the attempt that it came from has failed and another
    /// one makes another answer. Does nothing before the first piece.
    pub fn restart(&self) {
        let mut kept = self.0.0.lock();
        if kept.sent {
            let (first, closed) = (kept.first, kept.closed);
            *kept = Kept { anew: true, first, closed, ..Kept::default() };
        }
    }

    /// When the first piece came.
    pub fn first(&self) -> Option<Instant> {
        self.0.0.lock().first
    }
}

impl Deltas {
    /// Everything that has come since the last call, once there is something; `None` at the answer's end.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            {
                let mut kept = self.mailbox.lock();
                if !kept.text.is_empty() {
                    return Some(kept.take());
                }
                if kept.closed {
                    return None;
                }
            }
            self.mailbox.changed.notified().await;
        }
    }

    /// Returns when the answer is at its end.
    pub async fn closed(&self) {
        while !self.mailbox.lock().closed {
            self.mailbox.changed.notified().await;
        }
    }
}

impl Kept {
    fn take(&mut self) -> Piece {
        let end = self.text.floor_char_boundary(MAX_PIECE);
        let rest = self.text.split_off(end);
        Piece { content: std::mem::replace(&mut self.text, rest), anew: std::mem::take(&mut self.anew) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    async fn all(mut deltas: Deltas) -> Vec<(String, bool)> {
        let mut pieces = Vec::new();
        while let Some(Piece { content, anew }) = deltas.next().await {
            pieces.push((content, anew));
        }
        pieces
    }

    #[tokio::test]
    async fn a_slow_reader_gets_everything_in_fewer_pieces() {
        let (sink, mut deltas) = deltas();
        assert!(deltas.next().now_or_never().is_none());
        sink.send("你");
        assert_eq!(deltas.next().await.unwrap().content, "你", "the first is not kept back");
        sink.send("");
        sink.send("好");
        sink.clone().send("！");
        assert!(deltas.closed().now_or_never().is_none());
        sink.send("再见");
        drop(sink);
        deltas.closed().await;
        assert_eq!(all(deltas).await, [("好！再见".to_owned(), false)]);
    }

    #[tokio::test]
    async fn an_answer_in_one_piece_is_not_for_the_reader() {
        let (sink, deltas) = deltas();
        sink.whole("whole");
        assert!(sink.first().is_some());
        drop(sink);
        assert_eq!(all(deltas).await, []);
    }

    #[tokio::test]
    async fn an_answer_that_begins_anew_voids_what_was_sent() {
        let (sink, mut deltas) = deltas();
        sink.restart();
        sink.send("a");
        sink.send("b");
        assert_eq!(deltas.next().await.unwrap(), Piece { content: "ab".into(), anew: false });
        sink.send("never read");
        sink.restart();
        sink.send("c");
        sink.send("d");
        drop(sink);
        assert_eq!(all(deltas).await, [("cd".to_owned(), true)]);
    }

    #[tokio::test]
    async fn a_whole_answer_takes_the_place_of_pieces_that_were_read() {
        let (sink, mut deltas) = deltas();
        sink.send("half");
        assert_eq!(deltas.next().await.unwrap().content, "half");
        sink.restart();
        sink.whole("whole");
        drop(sink);
        assert_eq!(all(deltas).await, [("whole".to_owned(), true)]);
    }

    #[tokio::test]
    async fn what_nobody_takes_is_bounded_and_no_piece_is_too_long() {
        let (sink, deltas) = deltas();
        let piece = "好".repeat(1_000);
        for _ in 0..1_000 {
            sink.send(&piece);
        }
        drop(sink);
        let pieces = all(deltas).await;
        assert!(pieces.iter().all(|(text, _)| text.len() <= MAX_PIECE));
        let total: usize = pieces.iter().map(|(text, _)| text.len()).sum();
        assert!(total <= MAX_KEPT && total > MAX_KEPT - piece.len(), "{total}");
    }
}
