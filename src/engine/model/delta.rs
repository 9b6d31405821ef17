//! The pieces of a streamed answer on their way from the model to a reader.
//!
//! The model never waits for the reader: text that the reader has not taken accumulates. A slow reader gets fewer and
//! longer pieces. A reader that is more than [`MAX_UNREAD`] behind gets no further pieces, only the complete answer at
//! the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Maximum number of bytes that wait for a reader.
const MAX_UNREAD: usize = 1024 * 1024;
/// Maximum number of bytes of one piece.
const MAX_PIECE: usize = 16 * 1024;

/// The sink for the pieces of an answer. Cheap to clone. The stream ends when the last clone is dropped.
#[derive(Clone)]
pub struct DeltaSink(Arc<Writer>);

/// The reader's side of a [`DeltaSink`].
pub struct Deltas {
    mailbox: Arc<Mailbox>,
}

/// A piece of an answer's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text.
    pub content: String,
    /// The answer starts again with this piece: discard the pieces before it.
    pub anew: bool,
}

/// Creates a sink and its reader.
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
    state: Mutex<MailboxState>,
    changed: Notify,
}

#[derive(Default)]
struct MailboxState {
    text: String,
    /// A piece of the current answer has been sent.
    sent: bool,
    /// The next piece is the first one after a restart.
    anew: bool,
    /// The reader is too far behind: no further pieces for it.
    overflowed: bool,
    closed: bool,
    first: Option<Instant>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeltaSink {
    /// A sink without a reader.
    pub fn unread() -> Self {
        deltas().0
    }

    /// Sends a piece of the answer. Never blocks.
    pub fn send(&self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let mut state = self.0.0.lock();
        state.first.get_or_insert_with(Instant::now);
        state.sent = true;
        if state.overflowed || state.text.len() + piece.len() > MAX_UNREAD {
            state.overflowed = true;
            return;
        }
        state.text.push_str(piece);
        drop(state);
        self.0.0.changed.notify_one();
    }

    /// Sends an answer that was not streamed. Readers get no pieces of it, unless it replaces pieces that were sent
    /// before a restart.
    pub fn whole(&self, answer: &str) {
        let anew = {
            let mut state = self.0.0.lock();
            state.first.get_or_insert_with(Instant::now);
            state.anew
        };
        if anew {
            self.send(answer);
        }
    }

    /// Starts the answer again, because the attempt that sent the pieces so far has failed. The reader must discard
    /// these pieces. Does nothing if no piece was sent.
    pub fn restart(&self) {
        let mut state = self.0.0.lock();
        if state.sent {
            let (first, closed) = (state.first, state.closed);
            *state = MailboxState { anew: true, first, closed, ..MailboxState::default() };
        }
    }

    /// Time at which the first piece was sent.
    pub fn first(&self) -> Option<Instant> {
        self.0.0.lock().first
    }
}

impl Deltas {
    /// Waits for text and returns all of it that has arrived, up to the maximum of one piece; `None` when the answer is
    /// complete. Cancel safe.
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            {
                let mut state = self.mailbox.lock();
                if !state.text.is_empty() {
                    return Some(state.take());
                }
                if state.closed {
                    return None;
                }
            }
            self.mailbox.changed.notified().await;
        }
    }

    /// Returns when the answer is complete.
    pub async fn closed(&self) {
        while !self.mailbox.lock().closed {
            self.mailbox.changed.notified().await;
        }
    }
}

impl MailboxState {
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
        assert_eq!(deltas.next().await.unwrap().content, "你", "the first piece is not delayed");
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
        assert!(total <= MAX_UNREAD && total > MAX_UNREAD - piece.len(), "{total}");
    }
}
