//! The audit trail: one row for each entry.

use super::EmbeddedFile;
use super::fault::FileFault;
use super::tables::{AUDIT, Tables, decode, encode};
use redb::{AccessGuard, ReadableTable};
use std::ops::Bound;
use types::audit::{AuditEntry, AuditQuery};
use types::timestamp::Timestamp;

type Row<'r> = Result<(AccessGuard<'r, &'static str>, AccessGuard<'r, (i64, &'static [u8])>), redb::StorageError>;

/// Implements [`Store::put_audit`](storage::store::Store::put_audit).
pub(super) fn put(tables: &mut Tables<'_>, entry: &AuditEntry) -> Result<(), FileFault> {
    let bytes = encode("the audit entry", entry)?;
    tables.audit.insert(entry.id.as_str(), (entry.at.as_millis(), bytes.as_slice()))?;
    Ok(())
}

/// Implements [`Store::audit`](storage::store::Store::audit).
pub(super) fn list(file: &EmbeddedFile, query: &AuditQuery) -> Result<Vec<AuditEntry>, FileFault> {
    file.read(|read| {
        let table = read.open_table(AUDIT)?;
        let entry = |row: Row<'_>| {
            let (id, row) = row?;
            decode(|| format!("audit entry `{}`", id.value()), row.value().1)
        };
        let Some(after) = &query.after else {
            let mut last: Vec<_> = table.iter()?.rev().take(query.limit).map(entry).collect::<Result<_, _>>()?;
            last.reverse();
            return Ok(last);
        };
        let later = (Bound::Excluded(after.as_str()), Bound::Unbounded);
        table.range::<&str>(later)?.take(query.limit).map(entry).collect()
    })
}

/// Deletes the entries that are older than `before`. Ids begin with the time, but a clock may have been wrong.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> Result<(), FileFault> {
    tables.audit.retain(|_, (at, _)| at >= before.as_millis())?;
    Ok(())
}
