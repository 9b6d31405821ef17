//! Limits the rate of the pieces of an answer for readers: the first piece immediately, then fewer than 20 per second.
//! Numbers the pieces and assigns them to streams.

use super::delta::Deltas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Pause between two pieces of one answer.
const MIN_PIECE_INTERVAL: Duration = Duration::from_millis(60);

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    /// The text of the piece.
    pub content: String,
    /// Number of the piece within its stream, from 0.
    pub seq: u64,
    /// Id of the stream. If the answer starts again after a failure, its pieces have another id and replace the earlier
    /// ones.
    #[serde(default)]
    pub stream_id: String,
    /// In the first piece of a stream: the id of the stream that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
}

/// The pieces of one answer at a limited rate.
pub struct Paced {
    pieces: Deltas,
    stream_id: String,
    seq: u64,
    /// White space that is sent only together with a following word.
    space: String,
    /// Earliest time of the next piece, unless it is the last one.
    due: Option<Instant>,
}

impl Paced {
    /// Paces the pieces of one answer. An answer that starts again, here or in a repeated turn, gets a new stream id.
    pub fn new(pieces: Deltas) -> Self {
        Self { pieces, stream_id: new_stream_id(), seq: 0, space: String::new(), due: None }
    }

    /// Returns the next piece; `None` when the answer is complete. Text that arrives during the pause becomes one
    /// piece. The end of the answer cuts the pause short. White space at the start and the end of a stream is dropped.
    pub async fn next(&mut self) -> Option<Delta> {
        if let Some(due) = self.due {
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.pieces.closed() => {}
            }
        }
        loop {
            let piece = self.pieces.next().await?;
            if piece.anew {
                (self.stream_id, self.seq) = (new_stream_id(), 0);
                self.space.clear();
            }
            self.space.push_str(&piece.content);
            let words = self.space.trim_end();
            let content = if self.seq == 0 { words.trim_start() } else { words }.to_owned();
            let end = words.len();
            self.space.drain(..end);
            if !content.is_empty() {
                let (seq, stream_id) = (self.seq, self.stream_id.clone());
                self.due = Some(Instant::now() + MIN_PIECE_INTERVAL);
                self.seq += 1;
                return Some(Delta { content, seq, stream_id, supersedes: None });
            }
        }
    }
}

fn new_stream_id() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::delta::deltas;

    #[tokio::test(start_paused = true)]
    async fn the_first_piece_comes_at_once_and_then_fewer_than_twenty_a_second() {
        let (sink, pieces) = deltas();
        let begun = Instant::now();
        let write = async {
            for _ in 0..1_000 {
                sink.send("字");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(sink);
        };
        let read = async {
            let (mut paced, mut found) = (Paced::new(pieces), Vec::new());
            while let Some(delta) = paced.next().await {
                found.push((begun.elapsed(), delta));
            }
            found
        };
        let ((), found) = tokio::join!(write, read);
        assert_eq!(found[0].0, Duration::ZERO);
        assert!(found.iter().map(|(_, delta)| delta.seq).eq(0..found.len() as u64));
        assert_eq!(found.iter().map(|(_, delta)| delta.content.as_str()).collect::<String>(), "字".repeat(1_000));
        let second = Duration::from_secs(1);
        let most =
            found.iter().map(|(from, _)| found.iter().filter(|(at, _)| at >= from && *at < *from + second).count());
        assert!(most.max().is_some_and(|most| (10..20).contains(&most)), "{} pieces in 5 s", found.len());
        assert!(begun.elapsed() <= Duration::from_millis(5_010), "the end is not waited for: {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_begins_anew_is_another_stream() {
        let (sink, pieces) = deltas();
        let mut paced = Paced::new(pieces);
        sink.send("\n");
        sink.send(" half");
        let half = paced.next().await.unwrap();
        sink.restart();
        sink.send("who");
        let whole = paced.next().await.unwrap();
        sink.send("le ");
        sink.send("truth");
        sink.send("\n");
        drop(sink);
        let rest = paced.next().await.unwrap();
        assert_eq!((half.seq, whole.seq, rest.seq), (0, 0, 1));
        assert_eq!(half.content, "half", "a stream begins and ends with a word");
        assert_eq!((rest.content.as_str(), &rest.stream_id), ("le truth", &whole.stream_id));
        assert_ne!(half.stream_id, whole.stream_id);
        assert_eq!(paced.next().await, None);
    }
}
