//! `turnwheel sessions`: lists, shows, cancels, releases, closes and deletes conversations. [`crate::claims`] has the
//! commands for the people who have a conversation.

use crate::claims::{self, ClaimArgs, NoteArgs, TransferArgs, UnclaimArgs};
use crate::client::{GatewayClient, SessionFilter};
use crate::connection;
use crate::deletion::{self, DeleteArgs};
use crate::failure::Failure;
use crate::list_args::ListArgs;
use crate::operator_args::OperatorArgs;
use crate::prompts::{self, ShowPrompts};
use crate::steps;
use crate::table::{pretty, print, printable, rough, table};
use crate::watch_option::WatchOption;
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::session_listing::SessionSummary;
use serde_json::json;
use std::time::Duration;
use types::duration;
use types::job::{Command, Control};
use types::session::{Role, Session, Status};
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel sessions list --status transferred                 conversations that humans handle
  turnwheel sessions show s1                                   status, timers, last messages
  turnwheel sessions cancel s1 --reason 'wrong order' --by li  end its running turn";

const LIST: &str = "\
Examples:
  turnwheel sessions list                                    last changed first
  turnwheel sessions list --status transferred --watch       conversations that humans handle, live
  turnwheel sessions list --agent sales --limit 200 --json
  turnwheel sessions list --waiting                          a user or a human has to act
  turnwheel sessions list --search '退货 order' --since 2h   both words, changed in the last 2 hours";

const SHOW: &str = "\
Examples:
  turnwheel sessions show s1
  turnwheel sessions show s1 --watch
  turnwheel sessions show s1 --steps      its last turns: model calls, actions, failures
  turnwheel sessions show s1 --json";

const CANCEL: &str = "\
Examples:
  turnwheel sessions cancel s1
  turnwheel sessions cancel s1 --reason 'wrong order' --by li

The running turn ends immediately, as does every turn before the command in the session's lane. Timers are cancelled. \
An action that has started may still take effect. The agent handles the user's next message as usual.";

const RELEASE: &str = "\
Examples:
  turnwheel sessions release s1 --by li                         the agent replies again
  turnwheel sessions release s1 --note 'the refund is granted'  and its model reads the note

The session also leaves a flow that waits for the user's answer; `cancel` and `close` do the same.";

const CLOSE: &str = "\
Examples:
  turnwheel sessions close s1 --reason solved

Its timers are cancelled. The user's next message opens the conversation again.";

/// Number of history entries or turns that are shown.
const MAX_SHOWN: usize = 10;

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Sessions {
    /// List sessions, last changed first
    #[command(after_help = LIST)]
    List(ListSessions),
    /// Show a session: status, timers, last messages
    #[command(after_help = SHOW)]
    Show(ShowSession),
    /// Show the messages that the model calls of a turn have sent
    #[command(after_help = prompts::HELP)]
    Prompts(ShowPrompts),
    /// Cancel a session's running turn and timers
    #[command(after_help = CANCEL)]
    Cancel(SessionCommandArgs),
    /// Release a conversation from a human, or from a flow that waits for an answer
    #[command(after_help = RELEASE)]
    Release(ReleaseArgs),
    /// Claim a conversation that is handed off, or take it over from the agent
    #[command(after_help = claims::CLAIM)]
    Claim(ClaimArgs),
    /// End a claim: the conversation waits for another person
    #[command(after_help = claims::UNCLAIM)]
    Unclaim(UnclaimArgs),
    /// Pass a claim on to another person
    #[command(after_help = claims::TRANSFER)]
    Transfer(TransferArgs),
    /// Add a note for colleagues to a conversation that is handed off
    #[command(after_help = claims::NOTE)]
    Note(NoteArgs),
    /// Close a conversation
    #[command(after_help = CLOSE)]
    Close(SessionCommandArgs),
    /// Delete a session with everything that belongs to it
    #[command(after_help = deletion::SESSION)]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub struct ShowSession {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    /// Print the whole session as JSON; with `--steps` the turns
    #[arg(long)]
    json: bool,
    /// Show the last turns with their steps
    #[arg(long)]
    steps: bool,
    #[command(flatten)]
    refresh: WatchOption,
}

#[derive(Debug, Args)]
pub struct ListSessions {
    /// Only sessions in this status: acknowledged, processing, typing, ready, cancelled or transferred
    #[arg(long, value_parser = status)]
    status: Option<Status>,
    /// Only sessions of this agent
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// Only sessions of this channel
    #[arg(long, value_parser = crate::id)]
    channel: Option<String>,
    /// Only sessions of this user
    #[arg(long, value_parser = crate::id)]
    user: Option<String>,
    /// Only sessions that wait for a user's answer or a human; `--waiting false` lists the others
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    waiting: Option<bool>,
    /// Only sessions that changed at this time or later: 2026-01-02T03:04:05Z, or 2h for two hours ago
    #[arg(long, value_parser = moment)]
    since: Option<Moment>,
    /// Only sessions that last changed before this time
    #[arg(long, value_parser = moment)]
    until: Option<Moment>,
    /// Only sessions whose last 100 messages have all of these words
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    #[command(flatten)]
    listing: ListArgs,
}

#[derive(Debug, Args)]
pub struct SessionCommandArgs {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    #[command(flatten)]
    args: OperatorArgs,
}

#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    /// A note for the agent's model, at most 4 KiB; the user does not get it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    args: OperatorArgs,
}

fn status(text: &str) -> Result<Status, String> {
    serde_json::from_value(json!(text))
        .map_err(|_| "must be one of acknowledged, processing, typing, ready, cancelled, transferred".to_owned())
}

/// A time on the command line.
#[derive(Clone, Copy, Debug)]
enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.minus(ago),
        }
    }
}

fn moment(text: &str) -> Result<Moment, String> {
    let at = text.parse().map(Moment::At).ok();
    let found = at.or_else(|| duration::parse(text).map(Moment::Ago).ok());
    found.ok_or_else(|| "must be a time such as 2026-01-02T03:04:05Z, or a duration such as 2h".to_owned())
}

impl ListSessions {
    fn filter(&self, now: Timestamp) -> SessionFilter {
        SessionFilter {
            status: self.status,
            agent_id: self.agent.clone(),
            channel: self.channel.clone(),
            user_id: self.user.clone(),
            waiting: self.waiting,
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
            q: self.search.clone(),
        }
    }
}

impl Sessions {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::List(which) => which.listing.refresh.show("no sessions", async || list(&client, &which).await).await,
            Self::Show(which) => which.refresh.show("", async || show(&client, &which).await).await,
            Self::Prompts(which) => {
                print(which.text(&client).await?);
                Ok(())
            }
            Self::Cancel(SessionCommandArgs { id, args }) => {
                args.send(&client, &id, Control::new(Command::Cancel)).await
            }
            Self::Release(ReleaseArgs { id, note, args }) => {
                args.send(&client, &id, Control { note, ..Control::new(Command::Release) }).await
            }
            Self::Close(SessionCommandArgs { id, args }) => args.send(&client, &id, Control::new(Command::Close)).await,
            Self::Claim(which) => which.run(&client).await,
            Self::Unclaim(which) => which.run(&client).await,
            Self::Transfer(which) => which.run(&client).await,
            Self::Note(which) => which.run(&client).await,
            Self::Delete(which) => which.session(&client).await,
        }
    }
}

async fn list(client: &GatewayClient, which: &ListSessions) -> anyhow::Result<String> {
    let sessions = client.sessions(&which.filter(clock::now()), which.listing.limit()).await?;
    which.listing.text("sessions", sessions, |sessions| rows(sessions, clock::now()))
}

fn rows(sessions: Vec<SessionSummary>, now: Timestamp) -> String {
    let mut rows = table(&["session", "agent", "user", "channel", "status", "timers", "changed", "last message"]);
    for session in sessions {
        let closed = if session.closed_at.is_some() { " (closed)" } else { "" };
        let asks = session.waiting.map(|waiting| format!(" ({} waits)", waiting.flow)).unwrap_or_default();
        rows.add_row([
            session.session_id,
            session.agent_id,
            session.user_id,
            session.channel,
            format!("{}{closed}{asks}", session.status),
            session.timers.to_string(),
            ago(session.updated_at, now),
            session.last_message.map(|last| format!("{}: {}", who(last.role), last.text)).unwrap_or_default(),
        ]);
    }
    rows.to_string()
}

async fn show(client: &GatewayClient, which: &ShowSession) -> anyhow::Result<String> {
    let unknown = || {
        let hint =
            "`turnwheel sessions list` shows all sessions; a new one appears when a worker handles its first message";
        Failure::new(format!("there is no session `{}`", which.id), hint)
    };
    let session = client.session(&which.id).await?.ok_or_else(unknown)?.session;
    if which.steps {
        let turns = client.turns(&which.id, MAX_SHOWN).await?;
        return if which.json { pretty(&json!({ "turns": turns })) } else { Ok(steps::describe(&turns, clock::now())) };
    }
    if which.json {
        return pretty(&session);
    }
    Ok(describe(&session, clock::now()).join("\n"))
}

fn who(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "agent",
        Role::Human => "human",
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", rough(at.until(now)))
}

/// Formats a session as lines.
fn describe(session: &Session, now: Timestamp) -> Vec<String> {
    let state = &session.workflow_state;
    let reason = session.status_reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let row = |name: &str, text: &str| format!("{name:<9} {}", printable(if text.is_empty() { "-" } else { text }));
    let mut lines = vec![
        row("session", &session.session_id),
        row("status", &format!("{}{reason}", state.status)),
        row("agent", &format!("{} (hash {})", session.agent_id, state.hash)),
        row("user", &session.user_id),
        row("channel", &session.channel),
        row("begun", &format!("{}, {}", session.created_at, ago(session.created_at, now))),
        row("changed", &format!("{}, {}", session.updated_at, ago(session.updated_at, now))),
    ];
    if session.tokens > 0 {
        lines.push(row("tokens", &session.tokens.to_string()));
    }
    if let Some(at) = session.closed_at {
        lines.push(row("closed", &format!("{at}, {}", ago(at, now))));
    }
    if let Some(handoff) = &session.handoff {
        lines.push(row("handoff", &format!("since {}, {}", handoff.since, ago(handoff.since, now))));
        lines.extend(claims::describe(handoff, now).into_iter().map(|(name, text)| row(name, &text)));
    }
    if let Some(waiting) = &session.waiting {
        let left = if waiting.until > now { format!("{} more", rough(now.until(waiting.until))) } else { "0s".into() };
        let run = waiting.run_id.as_deref().map(|run_id| format!(", run {run_id}")).unwrap_or_default();
        let asked = ago(waiting.asked_at, now);
        lines.push(row(
            "waiting",
            &format!("flow {}{run}, asked {asked}, until {} ({left})", waiting.flow, waiting.until),
        ));
        lines.push(row("question", &waiting.question.replace('\n', " ")));
    }
    if let Some(lease) = &session.lease {
        let left =
            if lease.until > now { format!("for {} more", rough(now.until(lease.until))) } else { "expired".into() };
        lines.push(row("lease", &format!("{}, {left}", lease.owner)));
    }
    for timer in &session.timers {
        let due = if timer.due_at > now { format!("due in {}", rough(now.until(timer.due_at))) } else { "due".into() };
        lines.push(row("timer", &format!("{} {due} ({})", timer.name, timer.due_at)));
    }
    let earlier = session.history.len().saturating_sub(MAX_SHOWN);
    if !session.history.is_empty() {
        let more = if earlier > 0 { format!(" ({earlier} earlier entries with --json)") } else { String::new() };
        lines.push(format!("history{more}"));
    }
    for entry in &session.history[earlier..] {
        let who = who(entry.role);
        let kind = entry.kind.as_deref().map(|kind| format!(" [{kind}]")).unwrap_or_default();
        lines.push(printable(&format!("  {who}{kind} {}", entry.text.replace('\n', " "))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::session::{Entry, Lease, Waiting};
    use types::timer::Timer;

    #[test]
    fn a_session_in_lines_tells_what_is_due_and_the_last_of_the_conversation() {
        let now = Timestamp::from_millis(1_000_000);
        let mut session = Session::new("会话", now);
        session.lease =
            Some(Lease { owner: "w1".into(), until: Timestamp::from_millis(1_005_000), token: String::new() });
        session.timers.push(Timer {
            timer_id: "t1".into(),
            name: "follow_up".into(),
            due_at: Timestamp::from_millis(1_000_000 + 1_800_000),
            generation: 1,
            action: None,
            message: None,
            traceparent: None,
        });
        session.history = Arc::new(
            (0..12)
                .map(|i| Entry {
                    role: Role::User,
                    text: format!("第{i}句\u{1b}"),
                    at: now,
                    turn_id: String::new(),
                    kind: None,
                    metadata: Default::default(),
                })
                .collect(),
        );
        session.waiting = Some(Box::new(Waiting {
            flow: "refund".into(),
            agent_id: "sales".into(),
            turn_id: "m-1".into(),
            prefix: "0/refund".into(),
            asked: 1,
            question: "哪个\n订单？".into(),
            choices: Vec::new(),
            run_id: Some("r1".into()),
            began_at: now,
            asked_at: now,
            until: Timestamp::from_millis(1_000_000 + 3_600_000),
        }));
        let text = describe(&session, now).join("\n");
        assert!(text.contains("waiting   flow refund, run r1, asked"), "{text}");
        assert!(text.contains("(1h more)") && text.contains("question  哪个 订单？"), "{text}");
        assert!(text.contains("follow_up due in 30m") && text.contains("w1, for 5s more"), "{text}");
        assert!(text.contains("第11句") && !text.contains("第1句") && text.contains("2 earlier"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
