//! `turnwheel audit`: lists who has changed something.

use crate::client::GatewayClient;
use crate::connection;
use crate::failure::Failure;
use crate::list_args::ListArgs;
use crate::table::table;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use commands::paging::MAX_LIMIT;
use types::audit::AuditEntry;

pub const EXAMPLES: &str = "\
Examples:
  turnwheel audit                                    the last 50 actions
  turnwheel audit --watch                            live
  turnwheel audit --after 2026-01-02T00:00:00Z       from a time on, the earliest first
  turnwheel audit --after ID --limit 1000 --json     on from an entry, for an archive

An action has its entry before it begins, and the status of its response afterwards.";

#[derive(Debug, Args)]
pub struct Audit {
    /// Only entries after this RFC 3339 time, or after the entry with this id
    #[arg(long)]
    after: Option<String>,
    #[command(flatten)]
    listing: ListArgs,
}

impl Audit {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        self.listing.refresh.show("no actions", async || view(&client, &self).await).await
    }
}

async fn view(client: &GatewayClient, which: &Audit) -> anyhow::Result<String> {
    if which.after.is_none() && which.listing.limit() > MAX_LIMIT {
        let hint = "give `--after`, for example a time, to read on from there";
        return Err(
            Failure::new(format!("without `--after`, at most the last {MAX_LIMIT} actions are listed"), hint).into()
        );
    }
    let entries = client.audit(which.after.as_deref(), which.listing.limit()).await?;
    which.listing.text("entries", entries, rows)
}

fn rows(entries: Vec<AuditEntry>) -> String {
    let mut rows = table(&["at", "by", "role", "action", "target", "status"]);
    for AuditEntry { at, by, role, action, target, detail, .. } in entries {
        let status = detail.get("status").map_or_else(|| "-".to_owned(), ToString::to_string);
        rows.add_row([at.to_string(), by, role.to_string(), action, target, status]);
    }
    rows.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_one_line() {
        let entry = serde_json::json!({
            "id": "1", "at": "2026-01-02T03:04:05Z", "by": "desk", "role": "agent", "action": "reply_to_user",
            "target": "session/s1", "detail": {"status": 202},
        });
        let text = rows(vec![serde_json::from_value(entry).unwrap()]);
        for part in ["2026-01-02", "desk", "agent", "reply_to_user", "session/s1", "202"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
