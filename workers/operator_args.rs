//! The options and the output that all operators' commands for a session share.

use crate::client::GatewayClient;
use crate::table::{one_line, print_json, print_queued};
use base::clock;
use clap::Args;
use commands::sessions::SessionDetails;
use types::job::{Command, Control};
use types::session::{Session, Status};

#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// Reason of the command; recorded with the session
    #[arg(long)]
    reason: Option<String>,
    /// Who gives the command
    #[arg(long)]
    by: Option<String>,
    /// Print JSON: {job_id, session_id}, or {session_id, changed, note}
    #[arg(long)]
    json: bool,
}

impl OperatorArgs {
    /// Publishes the command on the session's lane and prints its effect with the id of its job, or prints why it would
    /// change nothing. The reason and the name of the person are those of the options.
    pub async fn send(self, client: &GatewayClient, session_id: &str, order: Control) -> anyhow::Result<()> {
        let Self { reason, by, json } = self;
        let (command, name) = (order.command, order.name.clone());
        if let Some(note) = nothing_to_do(client, session_id, command, name.as_deref()).await? {
            match json {
                true => print_json(&serde_json::json!({ "session_id": session_id, "changed": false, "note": note }))?,
                false => eprintln!("{}", one_line(&note)),
            }
            return Ok(());
        }
        let effect = effect(session_id, command, name.as_deref());
        let accepted = client.control(session_id, &Control { reason, by, ..order }).await?;
        if json {
            return print_json(&accepted);
        }
        print_queued(&accepted.job_id, &format!("queued command `{}`: {effect}", accepted.job_id));
        Ok(())
    }
}

/// The effect of a command in words, with the command that shows it.
fn effect(session_id: &str, command: Command, name: Option<&str>) -> String {
    let effect = match (command, name) {
        (Command::Cancel, _) => format!("it cancels the running turn and the timers of session `{session_id}`"),
        (Command::Release, _) => format!("it releases session `{session_id}` to its agent"),
        (Command::Close, _) => format!("it closes session `{session_id}`"),
        (Command::Note, _) => format!("it adds the note to session `{session_id}`"),
        // These print the handoff.
        (Command::Claim | Command::Unclaim | Command::Transfer, _) => {
            format!("it changes the claim of session `{session_id}`")
        }
        (Command::CancelTimers, None) => format!("it cancels the follow-up timers of session `{session_id}`"),
        (Command::CancelTimers, Some(name)) => format!("it cancels the timer `{name}` of session `{session_id}`"),
    };
    format!("{effect}; `turnwheel sessions show {session_id}` shows the result")
}

/// Returns the reason why the command would change nothing; `None` if the session is unknown or busy.
async fn nothing_to_do(
    client: &GatewayClient,
    session_id: &str,
    command: Command,
    name: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let Some(SessionDetails { session, has_jobs }) = client.session(session_id).await? else { return Ok(None) };
    if is_at_work(&session) || has_jobs.unwrap_or(true) {
        return Ok(None);
    }
    Ok(idle(&session, command, name))
}

fn is_at_work(session: &Session) -> bool {
    let held = session.lease.as_ref().is_some_and(|lease| lease.until > clock::now());
    held || matches!(session.workflow_state.status, Status::Acknowledged | Status::Processing | Status::Typing)
}

fn idle(session: &Session, command: Command, name: Option<&str>) -> Option<String> {
    let (id, status) = (&session.session_id, session.workflow_state.status);
    let (waits, transferred) = (session.waiting.is_some(), status == Status::Transferred);
    match command {
        Command::Cancel if !waits && !transferred && session.timers.is_empty() => {
            Some(format!("nothing to cancel: {id} has no turn in progress and no timers"))
        }
        Command::Release if !waits && !transferred => {
            Some(format!("nothing to release: {id} is `{status}`, and none of its flows waits for an answer"))
        }
        Command::Close => session.closed_at.map(|at| format!("nothing to close: {id} is closed since {at}")),
        Command::CancelTimers => match name {
            _ if session.timers.iter().any(|timer| name.is_none_or(|name| timer.name == name)) => None,
            Some(name) => Some(format!("nothing to cancel: {id} has no timer `{name}`")),
            None => Some(format!("nothing to cancel: {id} has no timers")),
        },
        Command::Cancel | Command::Release => None,
        Command::Claim | Command::Unclaim | Command::Transfer | Command::Note => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::timestamp::Timestamp;

    #[test]
    fn what_would_change_nothing_is_told() {
        let now = Timestamp::from_millis(1_000);
        let mut session = Session::new("s1", now);
        let commands = [Command::Cancel, Command::Release, Command::CancelTimers];
        for command in commands {
            assert!(idle(&session, command, None).unwrap().contains("s1"), "{command:?}");
        }
        assert_eq!(idle(&session, Command::Close, None), None);
        session.closed_at = Some(now);
        assert!(idle(&session, Command::Close, None).unwrap().contains("closed since"));
        session.workflow_state.status = Status::Transferred;
        assert_eq!((idle(&session, Command::Cancel, None), idle(&session, Command::Release, None)), (None, None));
        session.workflow_state.status = Status::Typing;
        assert!(is_at_work(&session));
    }
}
