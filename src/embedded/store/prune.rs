//! Removes records that are older than their retention settings.

use super::{EmbeddedStore, FileFault, audit, runs, session_plans, turns};

impl EmbeddedStore {
    /// Removes old runs, plans of sessions, days of token counts, audit entries and turns. Returns the number of turns.
    pub(super) async fn prune_all(&self) -> Result<u64, FileFault> {
        let before = self.file.clock().now().minus(self.keep_turns);
        while self.file.write(move |tables| runs::prune(tables, before)).await? {}
        let unused = self.file.clock().now().minus(self.keep_plans);
        while self.file.write(move |tables| session_plans::prune(tables, unused)).await? {}
        let keep_audit = self.keep_audit;
        self.file
            .write(move |tables| {
                let now = tables.clock.now();
                turns::prune_days(tables, now)?;
                audit::prune(tables, now.minus(keep_audit))
            })
            .await?;
        let mut pruned = 0;
        loop {
            let (turns, more) = self.file.write(move |tables| turns::prune(tables, before)).await?;
            pruned += turns;
            if !more {
                return Ok(pruned);
            }
        }
    }
}
