//! `turnwheel authoring`: lists, shows and deletes authoring dialogues.

use crate::author::short;
use crate::client::GatewayClient;
use crate::connection;
use crate::list_args::ListArgs;
use crate::table::{one_line, print, print_json, printable, rough, table};
use base::clock;
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::authoring::view::{ChatHistory, DialogueDetails, DialogueSummary};
use types::authoring::Stage;

const EXAMPLES: &str = "\
Examples:
  turnwheel authoring list                        the dialogues, last changed first
  turnwheel authoring list --stage negotiation    dialogues that wait for a yes
  turnwheel authoring show 1f0c…                  the stage of one, and its last messages
  turnwheel authoring show 1f0c… --yaml           its last draft as a file; --diff shows the changes
  turnwheel authoring delete 1f0c…                with its drafts; its published document stays

`turnwheel author` begins a dialogue, or continues one.";

/// Number of messages that are shown.
const MAX_SHOWN: usize = 10;

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Authoring {
    /// List authoring dialogues, last changed first
    #[command(after_help = EXAMPLES)]
    List(ListDialogues),
    /// Show the stage of a dialogue, and its last messages
    #[command(after_help = EXAMPLES)]
    Show(ShowDialogue),
    /// Delete a dialogue with its drafts
    #[command(after_help = EXAMPLES)]
    Delete(OneDialogue),
}

#[derive(Debug, Args)]
pub struct ListDialogues {
    /// Only dialogues of this user
    #[arg(long, value_parser = crate::dotted_id)]
    user: Option<String>,
    /// Only dialogues in this stage, such as `clarification`, `negotiation` or `completed`
    #[arg(long, value_parser = stage)]
    stage: Option<Stage>,
    #[command(flatten)]
    listing: ListArgs,
}

#[derive(Debug, Args)]
pub struct OneDialogue {
    /// Id of the session
    #[arg(value_parser = crate::id)]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ShowDialogue {
    #[command(flatten)]
    which: OneDialogue,
    /// Print the document of the last draft as YAML
    #[arg(long, conflicts_with_all = ["json", "diff"])]
    yaml: bool,
    /// Print the changes of the last draft
    #[arg(long)]
    diff: bool,
}

fn stage(text: &str) -> Result<Stage, String> {
    Stage::parse(text).ok_or_else(|| {
        let known: Vec<&str> = Stage::ALL.iter().map(|stage| stage.as_str()).collect();
        format!("must be one of {}", known.join(", "))
    })
}

impl Authoring {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::List(which) => which.listing.refresh.show("no dialogues", async || list(&client, &which).await).await,
            Self::Show(which) => show(&client, &which).await,
            Self::Delete(OneDialogue { id, json }) => {
                client.delete_dialogue(&id).await?;
                if json {
                    return print_json(&serde_json::json!({"session_id": id}));
                }
                print(format!("deleted the dialogue {id}"));
                Ok(())
            }
        }
    }
}

async fn list(client: &GatewayClient, which: &ListDialogues) -> anyhow::Result<String> {
    let found = client.dialogues(which.user.as_deref(), which.stage, which.listing.limit()).await?;
    which.listing.text("sessions", found, rows)
}

fn rows(found: Vec<DialogueSummary>) -> String {
    let mut rows = table(&["SESSION", "USER", "MAKES", "STAGE", "CHANGED", "INTENT"]);
    let now = clock::now();
    for one in found {
        let changed = format!("{} ago", rough(one.last_updated.until(now)));
        let (makes, stage) = (one.artifact.to_string(), one.stage.to_string());
        rows.add_row([one.session_id, one.user_id, makes, stage, changed, one_line(&one.intent_summary)]);
    }
    rows.to_string()
}

async fn show(client: &GatewayClient, show: &ShowDialogue) -> anyhow::Result<()> {
    let which = &show.which;
    if show.yaml {
        let draft = client.draft(&which.id).await?;
        print(printable(definitions::document::yaml::to_yaml(&draft.document).trim_end()));
        return Ok(());
    }
    if show.diff {
        let difference = client.draft_difference(&which.id).await?;
        if which.json {
            return print_json(&difference);
        }
        print(printable(difference.to_string().trim_end()));
        return Ok(());
    }
    let (details, history) = futures::try_join!(client.dialogue(&which.id), client.dialogue_history(&which.id))?;
    if which.json {
        return print_json(&serde_json::json!({"session": details, "conversations": history.conversations}));
    }
    print(text(&details, &history));
    Ok(())
}

fn text(details: &DialogueDetails, history: &ChatHistory) -> String {
    let summary = &details.summary;
    let mut lines = vec![format!(
        "{} of {}: {} an {} in stage {}, {} turns",
        summary.session_id,
        summary.user_id,
        details.action_type,
        summary.artifact,
        summary.stage,
        details.conversation_turns
    )];
    let fact = |name: &str, value: String| format!("  {name:<10} {value}");
    lines.extend((!summary.intent_summary.is_empty()).then(|| fact("intent", one_line(&summary.intent_summary))));
    lines.extend(details.workflow_id.clone().map(|id| fact("id", id)));
    lines.extend(details.draft.as_ref().map(|draft| {
        let tests = draft.tests;
        let checked = match draft.ok {
            None => "not checked",
            Some(true) => "checks passed",
            Some(false) => "checks failed",
        };
        let counts = format!("{} passed, {} failed, {} not run", tests.passed, tests.failed, tests.not_run);
        fact("draft", format!("{} ({checked}; tests: {counts})", short(&draft.hash)))
    }));
    lines.extend(details.published.as_ref().map(|published| {
        let forced = if published.forced { ", forced" } else { "" };
        fact("published", format!("{} by {} at {}{forced}", short(&published.hash), published.by, published.at))
    }));
    lines.extend((!details.pending_actions.is_empty()).then(|| fact("waits for", details.pending_actions.join(", "))));
    let from = history.conversations.len().saturating_sub(MAX_SHOWN);
    lines.extend(history.conversations[from..].iter().map(|said| format!("  {}: {}", said.role, one_line(&said.text))));
    lines.join("\n")
}
