//! `turnwheel dead`: lists, shows, replays and deletes dead letters.

use crate::client::GatewayClient;
use crate::connection;
use crate::deletion;
use crate::list_args::ListArgs;
use crate::table::{pretty, print, print_json, print_queued, printable, rough, table};
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::dead_letters::{DeadLetterDetails, DeadLetterSummary, LetterFilter, ReplayedLetter, ReplayedLetters};
use serde_json::Value;
use std::process::ExitCode;
use types::cause::Cause;
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel dead list           list the jobs that failed for good, newest first
  turnwheel dead show 7         print the reason and the job's payload
  turnwheel dead replay m-1     put the job back on its lane, after you have fixed the cause
  turnwheel dead replay --all   the same for all of them";

const LIST: &str = "\
Examples:
  turnwheel dead list
  turnwheel dead list --limit 10 --json
  turnwheel dead list --watch";

const SHOW: &str = "\
Examples:
  turnwheel dead show 7      by the number of the dead letter
  turnwheel dead show m-1    by the id of its job";

const REPLAY: &str = "\
Examples:
  turnwheel agents apply && turnwheel dead replay 7     after its agent was unknown
  turnwheel dead replay m-1 --json
  turnwheel dead replay --cause unknown_agent --agent sales
  turnwheel dead replay --all                           every letter of before the command

The job becomes a new turn, behind everything that waits in its lane. It gets a new id, which is printed \
(`m-1-replay-7`); actions that its first turn executed may run again. The dead letter is removed. Replaying it twice \
is still one turn. A replay that would fail again (an invalid payload, an agent that is still unknown, a cancelled \
timer) is refused. Many letters are replayed in the order of their numbers; refused ones are listed and stay. A \
command that was interrupted can be run again.

Exit status of a replay of many: 0 all replayed, 1 some were refused.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Dead {
    /// List dead letters, newest first
    #[command(after_help = LIST)]
    List(ListArgs),
    /// Show a dead letter with its payload
    #[command(after_help = SHOW)]
    Show(LetterArgs),
    /// Put the job of a dead letter, or of many, back on its lane
    #[command(after_help = REPLAY)]
    Replay(ReplayArgs),
    /// Delete a dead letter
    #[command(after_help = deletion::LETTER)]
    Delete(LetterArgs),
}

#[derive(Debug, Args)]
pub struct LetterArgs {
    /// Number of the dead letter, or id of its job
    #[arg(value_name = "SEQ|JOB_ID", value_parser = crate::dotted_id)]
    which: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Number of the dead letter, or id of its job
    #[arg(value_name = "SEQ|JOB_ID", value_parser = crate::dotted_id, required_unless_present_any = ["all", "cause", "agent"])]
    which: Option<String>,
    /// Replay all dead letters
    #[arg(long, conflicts_with_all = ["which", "cause", "agent"])]
    all: bool,
    /// Replay the dead letters of this cause: invalid, unknown_agent, attempts, replay
    #[arg(long, value_parser = cause, conflicts_with = "which")]
    cause: Option<Cause>,
    /// Replay the dead letters of this agent
    #[arg(long, value_name = "AGENT", value_parser = crate::id, conflicts_with = "which")]
    agent: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn cause(name: &str) -> Result<Cause, String> {
    let names = Cause::ALL.map(Cause::as_str).join(", ");
    Cause::from_token(name).ok_or_else(|| format!("the causes are {names}"))
}

impl ReplayArgs {
    async fn run(self, client: &GatewayClient) -> anyhow::Result<ExitCode> {
        let Self { which: Some(which), json, .. } = &self else { return self.many(client).await };
        let replayed = client.replay(which).await?;
        if *json {
            print_json(&replayed)?;
            return Ok(ExitCode::SUCCESS);
        }
        let ReplayedLetter { seq, job_id, session_id } = &replayed;
        let next = format!("`turnwheel sessions show {session_id} --steps` shows its turn");
        print_queued(job_id, &format!("queued dead letter {seq} as job `{job_id}` of session `{session_id}`; {next}"));
        Ok(ExitCode::SUCCESS)
    }

    /// Replays page by page, and tells the progress on standard error.
    async fn many(self, client: &GatewayClient) -> anyhow::Result<ExitCode> {
        let mut filter = LetterFilter { cause: self.cause, agent_id: self.agent, ..LetterFilter::default() };
        let mut all = ReplayedLetters::default();
        while !all.complete {
            let ReplayedLetters { replayed, refused, after, until, complete } = client.replay_many(&filter).await?;
            (filter.after, filter.until) = (Some(after), Some(until));
            (all.after, all.until, all.complete) = (after, until, complete);
            all.replayed.extend(replayed);
            if !self.json {
                refused.iter().for_each(|letter| {
                    print(printable(&format!(
                        "refused {} of session `{}`: {}",
                        letter.seq, letter.session_id, letter.reason
                    )));
                });
            }
            all.refused.extend(refused);
            if !(self.json || complete) {
                eprintln!("letter {after} of {until}: replayed {}, refused {}", all.replayed.len(), all.refused.len());
            }
        }
        if self.json {
            print_json(&all)?;
        } else {
            print(format!("replayed {}, refused {}", all.replayed.len(), all.refused.len()));
        }
        Ok(if all.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Dead {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::List(listing) => {
                listing.refresh.show("no dead letters", async || view(&client, listing).await).await?;
            }
            Self::Show(LetterArgs { which, json }) => {
                let letter = client.letter(&which).await?;
                match json {
                    true => print_json(&letter)?,
                    false => describe(&letter, clock::now())?.iter().for_each(print),
                }
            }
            Self::Replay(letters) => return letters.run(&client).await,
            Self::Delete(LetterArgs { which, json }) => deletion::letter(&client, &which, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn view(client: &GatewayClient, listing: ListArgs) -> anyhow::Result<String> {
    let letters = client.letters(listing.limit()).await?;
    listing.text("letters", letters, |letters| rows(letters, clock::now()))
}

fn rows(letters: Vec<DeadLetterSummary>, now: Timestamp) -> String {
    let mut rows = table(&["seq", "when", "cause", "session", "job", "reason"]);
    for letter in letters {
        let when = format!("{} ago", rough(letter.at.until(now)));
        let (cause, job) = (letter.cause.as_str().to_owned(), letter.job_id.unwrap_or_default());
        rows.add_row([letter.seq.to_string(), when, cause, letter.session_id, job, letter.reason]);
    }
    rows.to_string()
}

/// Formats a dead letter as lines.
fn describe(letter: &DeadLetterDetails, now: Timestamp) -> anyhow::Result<Vec<String>> {
    let DeadLetterDetails { summary, subject, payload, payload_bytes } = letter;
    let row = |name: &str, text: &str| format!("{name:<9} {}", printable(text));
    let payload = match payload {
        Value::String(text) => text.clone(),
        json => pretty(json)?,
    };
    Ok(vec![
        row("letter", &summary.seq.to_string()),
        row("since", &format!("{}, {} ago", summary.at, rough(summary.at.until(now)))),
        row("cause", summary.cause.as_str()),
        row("reason", &summary.reason),
        row("attempts", &summary.attempts.to_string()),
        row("subject", subject),
        row("session", &summary.session_id),
        row("job", summary.job_id.as_deref().unwrap_or("-")),
        payload_bytes.map_or("payload".to_owned(), |bytes| format!("payload   (start of {bytes} bytes)")),
        printable(&payload),
    ])
}
