//! `turnwheel agents replay`: replays recorded turns against the agent in a file.

use crate::agent_drafts::{companions, in_file};
use crate::client::{GatewayClient, SessionFilter};
use crate::connection;
use crate::failure::Failure;
use crate::known_names;
use crate::table::{print, print_json, printable};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::Args;
use definitions::agent::load;
use definitions::knowledge::files;
use futures::{StreamExt, TryStreamExt, stream};
use std::cmp::Reverse;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use turnwheel::rehearsal::{RecordedTurn, Rehearsal, Replay, Replayed, ReplayedTurn, TurnEnd};
use types::duration;
use types::timestamp::Timestamp;

pub const REPLAY: &str = "\
Examples:
  turnwheel agents replay agents/sales.yaml                  the last 20 turns of the stored agent
  turnwheel agents replay agents/sales.yaml --session s1     the last turns of one conversation
  turnwheel agents replay new.yaml --agent sales --turns 50  of another agent
  turnwheel agents replay agents/sales.yaml --json           for a build server

Each turn runs in memory with the models of the settings, beginning with the conversation before it. Its calls return \
the recorded results; only models are called. Actions are compared strictly: the first different one is named. Exit \
status 1 if a turn takes other actions or fails.";

/// Sessions that are read concurrently.
const CONCURRENT_READS: usize = 4;
/// The largest number of an agent's sessions in which its last turns are searched.
const MAX_SESSIONS: usize = 100;
/// The most turns of one replay.
const MAX_TURNS: u64 = 200;

#[derive(Debug, Args)]
pub struct ReplayAgent {
    /// Agent file
    file: PathBuf,
    /// Id of the stored agent whose turns are replayed [default: the file's id]
    #[arg(long, value_name = "ID", conflicts_with = "session", value_parser = crate::id)]
    agent: Option<String>,
    /// Only turns of this session
    #[arg(long, value_name = "ID", value_parser = crate::id)]
    session: Option<String>,
    /// How many turns, the last ones
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=MAX_TURNS))]
    turns: u64,
    /// Time for all turns
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReplayAgent {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let settings = &loaded.settings;
        let agent = load::file(&self.file)?;
        let (agent, _) =
            known_names::local_names(settings).check(agent).map_err(|problem| in_file(&self.file, problem))?;
        let (texts, _) = files::read(&self.file, &agent).map_err(|problem| in_file(&self.file, problem))?;
        let tasks = Tasks::new();
        let turns = {
            let client = connection::connect(loaded, &tasks).await?;
            self.recorded(&client, agent.id()).await?
        };
        let (agents, workflows) = companions(settings, agent.id());
        let rehearsal = Rehearsal::new(settings, &loaded.env).with(agents, workflows);
        let report = rehearsal.replay(&agent, &texts, &turns, self.timeout).await;
        match self.json {
            true => print_json(&report)?,
            false => print(printable(described(&report).trim_end())),
        }
        Ok(if report.acts_alike() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The last recorded turns, the newest first.
    async fn recorded(&self, client: &GatewayClient, file_id: &str) -> anyhow::Result<Vec<RecordedTurn>> {
        let count = usize::try_from(self.turns).unwrap_or(usize::MAX);
        let sessions = match &self.session {
            Some(session_id) => vec![session_id.clone()],
            None => {
                let agent_id = Some(self.agent.as_deref().unwrap_or(file_id).to_owned());
                let filter = SessionFilter { agent_id, ..SessionFilter::default() };
                client.sessions(&filter, MAX_SESSIONS).await?.into_iter().map(|session| session.session_id).collect()
            }
        };
        let read: Vec<Vec<(Timestamp, RecordedTurn)>> = stream::iter(sessions)
            .map(async |session_id| of_session(client, &session_id, count).await)
            .buffered(CONCURRENT_READS)
            .try_collect()
            .await?;
        let mut turns: Vec<_> = read.into_iter().flatten().collect();
        turns.sort_by_key(|(started_at, _)| Reverse(*started_at));
        turns.truncate(count);
        if turns.is_empty() {
            let hint = "`turnwheel sessions list` shows the conversations; --agent or --session names others";
            return Err(Failure::new("there are no recorded turns of users' messages", hint).into());
        }
        Ok(turns.into_iter().map(|(_, turn)| turn).collect())
    }
}

async fn of_session(
    client: &GatewayClient,
    session_id: &str,
    count: usize,
) -> anyhow::Result<Vec<(Timestamp, RecordedTurn)>> {
    let unknown = || {
        let hint = "`turnwheel sessions list` shows the conversations";
        Failure::new(format!("there is no session `{session_id}`"), hint)
    };
    let session = client.session(session_id).await?.ok_or_else(unknown)?.session;
    let turns = client.turns(session_id, count).await?.into_iter();
    let read = turns.filter_map(|details| {
        Some((details.turn.started_at, RecordedTurn::read(&session, &details.turn, &details.steps)?))
    });
    Ok(read.collect())
}

/// One paragraph for each turn that is not the same, and the numbers.
fn described(report: &Replayed) -> String {
    let mut text = String::new();
    for turn in &report.turns {
        text.push_str(&line(turn));
    }
    let Replayed { same, reply_differs, actions_differ, diverged, failed, partial, .. } = report;
    text + &format!(
        "{same} same, {reply_differs} with other words, {actions_differ} with other actions, {diverged} diverged, \
         {failed} failed, {partial} not replayed\n"
    )
}

fn line(turn: &ReplayedTurn) -> String {
    let ReplayedTurn { session_id, turn_id, said, end } = turn;
    let place = format!("{session_id} {turn_id} “{said}”");
    match end {
        TurnEnd::Same => format!("same     {place}\n"),
        TurnEnd::ReplyDiffers { was, now } => format!("words    {place}\n         was: {was}\n         now: {now}\n"),
        TurnEnd::ActionsDiffer { first } => format!(
            "action   {place}\n         decision {}: was {}, now {}\n",
            first.iteration + 1,
            first.was,
            first.now
        ),
        TurnEnd::Diverged { first, missing } => format!(
            "diverged {place}\n         decision {}: was {}, now {}\n         {}\n",
            first.iteration + 1,
            first.was,
            first.now,
            missing.join("\n         ")
        ),
        TurnEnd::Failed { reason } => format!("failed   {place}: {reason}\n"),
        TurnEnd::Partial { reason } => format!("not run  {place}: {reason}\n"),
    }
}
