//! `turnwheel dead`: jobs that were given up, and putting them back.

use crate::access::Access;
use crate::listing::Listing;
use crate::table::{pretty, print, print_json, printable, rough, table};
use base::clock;
use base::config::load::Loaded;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::dead_letters::{Letter, LetterSummary};
use serde_json::Value;
use types::timestamp::Timestamp;

const EXAMPLES: &str = "\
Examples:
  turnwheel dead list           newest first
  turnwheel dead show 7         why it was given up, and what came
  turnwheel dead replay m-1     put it back onto its lane, when its cause is mended";

const LIST: &str = "\
Examples:
  turnwheel dead list
  turnwheel dead list --limit 10 --json
  turnwheel dead list --watch";

const SHOW: &str = "\
Examples:
  turnwheel dead show 7      by its number
  turnwheel dead show m-1    by its job id";

const REPLAY: &str = "\
Examples:
  turnwheel agents apply && turnwheel dead replay 7     its agent was unknown
  turnwheel dead replay m-1 --json

The job becomes a turn of its own, under the id that is printed (`m-1-replay-7`), after all that waits in its lane by now: an \
action that its first turn has run may run again. The letter is removed; replayed twice, it is one turn. What would only \
come back (a payload that is no job, an agent that is still unknown, a timer that is cancelled) is refused.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Dead {
    /// Dead letters, newest first
    #[command(after_help = LIST)]
    List(Listing),
    /// One dead letter with its payload
    #[command(after_help = SHOW)]
    Show(Which),
    /// Put a dead letter's job back onto its lane
    #[command(after_help = REPLAY)]
    Replay(Which),
}

#[derive(Debug, Args)]
pub struct Which {
    /// The letter: its number, or its job's id
    #[arg(value_name = "SEQ|JOB_ID", value_parser = crate::dotted_id)]
    which: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Dead {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let access = Access::open(loaded, &tasks).await?;
        match self {
            Self::List(listing) => listing.refresh.show("no dead letters", async || view(&access, listing).await).await,
            Self::Show(Which { which, json }) => {
                let letter = access.get_letter(&which).await?;
                if json {
                    return print_json(&letter);
                }
                describe(&letter, clock::now())?.iter().for_each(print);
                Ok(())
            }
            Self::Replay(Which { which, json }) => {
                let replayed = access.replay_letter(&which).await?;
                if json {
                    return print_json(&replayed);
                }
                print(replayed.job_id);
                Ok(())
            }
        }
    }
}

async fn view(access: &Access, listing: Listing) -> anyhow::Result<String> {
    let letters = access.list_letters(listing.limit()).await?;
    listing.text("letters", letters, |letters| rows(letters, clock::now()))
}

fn rows(letters: Vec<LetterSummary>, now: Timestamp) -> String {
    let mut rows = table(&["seq", "when", "cause", "session", "job", "reason"]);
    for letter in letters {
        let when = format!("{} ago", rough(letter.at.until(now)));
        let (cause, job) = (letter.cause.as_str().to_owned(), letter.job_id.unwrap_or_default());
        rows.add_row([letter.seq.to_string(), when, cause, letter.session_id, job, letter.reason]);
    }
    rows.to_string()
}

/// A letter in lines.
fn describe(letter: &Letter, now: Timestamp) -> anyhow::Result<Vec<String>> {
    let Letter { summary, subject, payload, payload_bytes } = letter;
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
        payload_bytes.map_or("payload".to_owned(), |bytes| format!("payload   the beginning of {bytes} bytes")),
        printable(&payload),
    ])
}
