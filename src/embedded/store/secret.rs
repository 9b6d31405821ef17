//! Secrets that all processes of an installation share. The table `meta` holds numbers, so a secret is four of them.

use super::fault::FileFault;
use super::tables::Tables;
use redb::ReadableTable;

/// Returns the secret of this name. The first call stores its `candidate`.
pub(super) fn get_or_put(tables: &mut Tables<'_>, name: &str, candidate: &[u8; 32]) -> Result<[u8; 32], FileFault> {
    let mut secret = [0; 32];
    for (number, (found, new)) in secret.chunks_exact_mut(8).zip(candidate.chunks_exact(8)).enumerate() {
        let row = format!("secret/{name}/{number}");
        let stored: Option<u64> = tables.meta.get(row.as_str())?.map(|stored| stored.value());
        match stored {
            Some(stored) => found.copy_from_slice(&stored.to_be_bytes()),
            None => {
                found.copy_from_slice(new);
                let mut bytes = [0; 8];
                bytes.copy_from_slice(new);
                tables.meta.insert(row.as_str(), u64::from_be_bytes(bytes))?;
            }
        }
    }
    Ok(secret)
}
