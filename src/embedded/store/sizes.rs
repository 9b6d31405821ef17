//! Which sessions hold most of the file.

use super::fault::FileFault;
use super::tables::{HISTORY, PROMPTS, SESSIONS, STEPS, TURNS};
use redb::{ReadTransaction, ReadableTable};
use std::collections::HashMap;
use storage::store::SessionSize;

/// Implements [`Store::largest_sessions`](storage::store::Store::largest_sessions). Adds up all rows, without decoding
/// them.
pub(super) fn largest_sessions(read: &ReadTransaction, limit: usize) -> Result<Vec<SessionSize>, FileFault> {
    let mut sizes: HashMap<String, (u64, u64)> = HashMap::new();
    for row in read.open_table(SESSIONS)?.iter()? {
        let (id, value) = row?;
        add(&mut sizes, id.value(), (value.value().3.len() as u64, 0));
    }
    for row in read.open_table(HISTORY)?.iter()? {
        let (key, entries) = row?;
        let bytes: usize = entries.value().iter().map(|entry| entry.len()).sum();
        add(&mut sizes, key.value().0, (bytes as u64, 0));
    }
    for table in [STEPS, PROMPTS] {
        for row in read.open_table(table)?.iter()? {
            let (key, step) = row?;
            add(&mut sizes, key.value().0, (0, step.value().len() as u64));
        }
    }
    for row in read.open_table(TURNS)?.iter()? {
        let (key, turn) = row?;
        let bytes: usize = turn.value().2.iter().map(|(_, step)| step.len()).sum();
        add(&mut sizes, key.value().0, (0, bytes as u64));
    }
    let size = |(session_id, (session_bytes, step_bytes))| SessionSize { session_id, session_bytes, step_bytes };
    Ok(SessionSize::largest(sizes.into_iter().map(size).collect(), limit))
}

fn add(sizes: &mut HashMap<String, (u64, u64)>, session_id: &str, (session, steps): (u64, u64)) {
    if let Some(size) = sizes.get_mut(session_id) {
        size.0 += session;
        size.1 += steps;
    } else {
        sizes.insert(session_id.to_owned(), (session, steps));
    }
}
