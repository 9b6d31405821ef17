//! The commands of `turnwheel sessions` for the people who have a conversation: `claim`, `unclaim`, `transfer`, `note`.

use crate::client::GatewayClient;
use crate::table::{one_line, print_json, print_queued, rough};
use clap::Args;
use commands::handoffs::ClaimResult;
use types::job::{Command, Control};
use types::session::Handoff;
use types::timestamp::Timestamp;

pub const CLAIM: &str = "\
Examples:
  turnwheel sessions claim s1 --by li               only replies of li reach the user now
  turnwheel sessions claim s1 --by li --take-over   also if the agent has the conversation

A takeover ends the agent's running turn without another word to the user. A claim ends by itself when the user waits \
for an answer longer than `handoff.claim_timeout` of the agent file.";

pub const UNCLAIM: &str = "\
Examples:
  turnwheel sessions unclaim s1 --by li
  turnwheel sessions unclaim s1 --force      also if another person has the claim; for operators";

pub const TRANSFER: &str = "\
Examples:
  turnwheel sessions transfer s1 --to wang --by li
  turnwheel sessions transfer s1 --to wang --note 'asks for a second refund'";

pub const NOTE: &str = "\
Examples:
  turnwheel sessions note s1 --by li 'has called twice'

Colleagues read the note in the console and with `sessions show --json`. Neither the user nor the model reads it.";

/// The options that the commands share.
#[derive(Debug, Args)]
struct ClaimOptions {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    /// Who gives the command [default: the name of the token]
    #[arg(long)]
    by: Option<String>,
    /// Print JSON: {job_id, session_id, handoff}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ClaimArgs {
    #[command(flatten)]
    shared: ClaimOptions,
    /// Take the conversation over if the agent has it
    #[arg(long)]
    take_over: bool,
    /// Reason of a takeover; recorded with the turn that ends
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub struct UnclaimArgs {
    #[command(flatten)]
    shared: ClaimOptions,
    /// Also if another person has the claim; for operators
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub struct TransferArgs {
    #[command(flatten)]
    shared: ClaimOptions,
    /// Who gets the claim
    #[arg(long, value_name = "NAME")]
    to: String,
    /// A note for colleagues
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Also if another person has the claim; for operators
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub struct NoteArgs {
    #[command(flatten)]
    shared: ClaimOptions,
    /// The note, at most 4 KiB
    text: String,
}

impl ClaimArgs {
    pub async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let Self { shared, take_over, reason } = self;
        shared.change(client, Control { take_over, reason, ..Control::new(Command::Claim) }).await
    }
}

impl UnclaimArgs {
    pub async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        self.shared.change(client, Control { force: self.force, ..Control::new(Command::Unclaim) }).await
    }
}

impl TransferArgs {
    pub async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let Self { shared, to, note, force } = self;
        shared.change(client, Control { to: Some(to), note, force, ..Control::new(Command::Transfer) }).await
    }
}

impl NoteArgs {
    pub async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let ClaimOptions { id, by, json } = self.shared;
        let order = Control { note: Some(self.text), by, ..Control::new(Command::Note) };
        let accepted = client.control(&id, &order).await?;
        match json {
            true => return print_json(&accepted),
            false => print_queued(&accepted.job_id, &format!("queued the note for session `{id}`")),
        }
        Ok(())
    }
}

impl ClaimOptions {
    async fn change(self, client: &GatewayClient, order: Control) -> anyhow::Result<()> {
        let Self { id, by, json } = self;
        let result = client.change_claim(&id, &Control { by, ..order }).await?;
        match json {
            true => return print_json(&result),
            false => print_queued(&result.job_id, &one_line(&outcome(&result))),
        }
        Ok(())
    }
}

/// The result of a command in words.
fn outcome(ClaimResult { session_id, handoff, .. }: &ClaimResult) -> String {
    match handoff {
        None => format!("queued; `turnwheel sessions show {session_id}` shows the result"),
        Some(Handoff { claim: None, .. }) => format!("session `{session_id}` waits for a person who claims it"),
        Some(Handoff { claim: Some(claim), .. }) => format!("`{}` has the claim of session `{session_id}`", claim.by),
    }
}

/// Rows for a handoff: the name of each and its text.
pub fn describe(handoff: &Handoff, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(claim) = &handoff.claim {
        let until = claim.until.map(|until| format!(", until {until} unless they answer")).unwrap_or_default();
        rows.push(("claim", format!("{} since {}{until}", claim.by, claim.at)));
    }
    if let Some(since) = handoff.waiting_since {
        rows.push(("waits", format!("{}, unread messages: {}", rough(since.until(now)), handoff.unread)));
    }
    rows.extend(handoff.notes.iter().map(|note| ("note", format!("{}: {}", note.by, note.text.replace('\n', " ")))));
    rows.extend(handoff.held.iter().map(|held| ("held", held.text.replace('\n', " "))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_in_rows_tells_who_has_it_and_who_waits() {
        let at = Timestamp::from_millis;
        let mut handoff = Handoff::begin("m-1", at(0), 2);
        handoff.give_to("li", at(60_000), at(660_000));
        let rows = describe(&handoff, at(120_000));
        assert_eq!(rows[0].0, "claim");
        assert!(rows[0].1.starts_with("li since") && rows[0].1.contains("unless they answer"), "{rows:?}");
        assert_eq!(rows[1], ("waits", "2m, unread messages: 2".to_owned()));
        let result = ClaimResult { job_id: "c-1".into(), session_id: "s1".into(), handoff: Some(handoff) };
        assert_eq!(outcome(&result), "`li` has the claim of session `s1`");
        assert!(outcome(&ClaimResult { handoff: None, ..result }).starts_with("queued"));
    }
}
