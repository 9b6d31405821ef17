//! Masks the tokens that `token_file` has got since the start of the process.

use super::mask::Masker;
use super::{Environment, NamedToken};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the files are read again, while texts are masked. More often than the gateway takes new tokens from them.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The tokens that are masked. Beyond them, the first ones are forgotten.
const MAX_TOKENS: usize = 1_000;

/// The tokens that the files have, and have had.
pub(super) struct RotatedTokens {
    files: Vec<NamedToken>,
    seen: Mutex<Seen>,
}

struct Seen {
    read_at: Instant,
    tokens: VecDeque<String>,
    masker: Masker,
}

impl RotatedTokens {
    /// For the entries with files; `None` without any.
    pub(super) fn new(entries: &[NamedToken]) -> Option<Self> {
        let files: Vec<_> = entries.iter().filter(|entry| entry.token_file.is_some()).cloned().collect();
        let seen = Seen { read_at: Instant::now(), tokens: VecDeque::new(), masker: Masker::default() };
        (!files.is_empty()).then(|| Self { files, seen: Mutex::new(seen) })
    }

    /// Masks every token in the text. Reads the files again, if the last time is long ago.
    pub(super) fn mask(&self, text: &str) -> String {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.read_at.elapsed() >= REFRESH_INTERVAL {
            seen.read_at = Instant::now();
            let given = self.files.iter().filter_map(|file| file.tokens(&Environment::default()).ok()).flatten();
            let new: Vec<String> = given.filter(|token| !seen.tokens.contains(token)).collect();
            if !new.is_empty() {
                seen.tokens.extend(new);
                let surplus = seen.tokens.len().saturating_sub(MAX_TOKENS);
                seen.tokens.drain(..surplus);
                seen.masker = Masker::new(seen.tokens.iter().cloned());
            }
        }
        seen.masker.mask(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_masked_from_its_rotation_on_also_after_the_next_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = serde_json::json!({"name": "web", "role": "viewer", "token_file": file.path()});
        let rotated = RotatedTokens::new(&[serde_json::from_value(entry).unwrap()]).unwrap();
        let is_due = || {
            rotated.seen.lock().unwrap().read_at = Instant::now().checked_sub(REFRESH_INTERVAL).unwrap();
        };
        for token in ["second-token", "third-token"] {
            std::fs::write(file.path(), token).unwrap();
            is_due();
            assert_eq!(rotated.mask(&format!("x {token} y")), "x *** y");
        }
        assert_eq!(rotated.mask("second-token"), "***");
    }
}
