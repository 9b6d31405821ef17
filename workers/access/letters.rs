//! Dead letters.

use super::{Access, direct};
use commands::dead_letters::{Letter, LetterSummary, Replayed};

impl Access {
    pub async fn list_letters(&self, limit: usize) -> anyhow::Result<Vec<LetterSummary>> {
        match self {
            Self::Direct { queue, .. } => direct(commands::dead_letters::newest(queue.as_ref(), limit).await),
            Self::Gateway(client) => client.letters(limit).await,
        }
    }

    /// Finds a dead letter by its number or job id.
    pub async fn get_letter(&self, which: &str) -> anyhow::Result<Letter> {
        match self {
            Self::Direct { queue, .. } => {
                direct(commands::dead_letters::find(queue.as_ref(), which).await.map(|kept| (&kept).into()))
            }
            Self::Gateway(client) => client.letter(which).await,
        }
    }

    pub async fn replay_letter(&self, which: &str) -> anyhow::Result<Replayed> {
        match self {
            Self::Direct { queue, store, .. } => {
                direct(commands::dead_letters::replay(queue.as_ref(), store.as_ref(), which).await)
            }
            Self::Gateway(client) => client.replay(which).await,
        }
    }
}
