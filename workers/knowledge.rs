//! `turnwheel knowledge`: adds, lists, searches and removes the texts that agents answer from.

use crate::client::GatewayClient;
use crate::connection;
use crate::table::{print, print_json, print_table, printable, table};
use base::config::load::LoadedSettings;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::knowledge::{NewText, RemovedSource};
use definitions::knowledge::files::{self, NamedText};
use definitions::knowledge::source::Origin;
use engine::knowledge::Hit;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel knowledge add --agent sales returns.md prices.md   replies use them within two seconds
  turnwheel knowledge search --agent sales 怎么退货             show the passages for a question
  turnwheel knowledge list --agent sales
  turnwheel knowledge remove --agent sales returns.md

`turnwheel agents apply` and `dev` store the files that an agent's file names under `knowledge.files`.";

const ADD: &str = "\
Examples:
  turnwheel knowledge add --agent sales returns.md kb/prices.txt
  turnwheel knowledge add --agent support kb/*.md --json

Files are Markdown (.md, .markdown) or plain text (.txt), in UTF-8, at most 1 MiB each. A file of the same name is \
replaced. Valid files are stored even if others are not; exit status 1 if a file is invalid.";

const LIST: &str = "\
Examples:
  turnwheel knowledge list
  turnwheel knowledge list --agent sales --json

The origin `agent_file` marks texts that the agent's file names, `added` those of `knowledge add`.";

const SEARCH: &str = "\
Examples:
  turnwheel knowledge search --agent sales 保修多久
  turnwheel knowledge search --agent support --limit 1 --json how do I return the router

It searches in the same way as a reply does, and prints the best passage first.";

const REMOVE: &str = "\
Examples:
  turnwheel knowledge remove --agent sales returns.md

A text that the agent's file names is stored again when the agent is applied.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Knowledge {
    /// Store files from which an agent answers
    #[command(after_help = ADD)]
    Add(AddKnowledge),
    /// List stored files, ordered by agent
    #[command(after_help = LIST)]
    List(ListKnowledge),
    /// Search an agent's files and show the passages that fit a question
    #[command(after_help = SEARCH)]
    Search(SearchKnowledge),
    /// Remove stored files
    #[command(after_help = REMOVE)]
    Remove(RemoveKnowledge),
}

#[derive(Debug, Args)]
pub struct AddKnowledge {
    /// Id of the agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// Files to store, each under its path as given; a file with an absolute path under its file name
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ListKnowledge {
    /// Only files of this agent
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct SearchKnowledge {
    /// Id of the agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// Highest number of passages, 1 to 50
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=50))]
    limit: u16,
    /// The question, in a user's words
    #[arg(required = true)]
    query: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct RemoveKnowledge {
    /// Id of the agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// Names of the files, as `list` shows them
    #[arg(required = true)]
    sources: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Knowledge {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        let client = connection::connect(loaded, &tasks).await?;
        match self {
            Self::Add(add) => return add.run(&client).await,
            Self::List(list) => list.run(&client).await?,
            Self::Search(search) => search.run(&client).await?,
            Self::Remove(remove) => remove.run(&client).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl AddKnowledge {
    async fn run(self, client: &GatewayClient) -> anyhow::Result<ExitCode> {
        let (mut stored, mut bad) = (Vec::new(), false);
        for (at, file) in self.files.iter().enumerate() {
            let last = at + 1 == self.files.len();
            let NamedText { name, text } = match files::read_one(file, &self.agent) {
                Ok(text) => text,
                Err(problem) => {
                    bad = true;
                    eprintln!("{}", printable(&format!("✗ {}: {problem}", file.display())));
                    continue;
                }
            };
            let done = client.put_knowledge(&self.agent, &name, &NewText { text, origin: Origin::Added }, last).await?;
            if !self.json {
                let word = if done.changed { "stored" } else { "unchanged" };
                let (agent, passages) = (&self.agent, done.source.passage_count);
                print(printable(&format!("✓ {name}: {word} for agent {agent} (passages: {passages})")));
            }
            stored.push(done);
        }
        if self.json {
            print_json(&json!({ "stored": stored }))?;
        }
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl ListKnowledge {
    async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let sources = client.knowledge(self.agent.as_deref()).await?;
        if self.json {
            return print_json(&json!({ "sources": sources }));
        }
        if sources.is_empty() {
            eprintln!("no knowledge; add some with `turnwheel knowledge add --agent AGENT FILE…`");
            return Ok(());
        }
        let mut rows = table(&["agent", "source", "origin", "passages", "bytes", "stored"]);
        for source in sources {
            let (origin, passages) = (source.origin.as_str().to_owned(), source.passage_count.to_string());
            let (bytes, stored) = (source.bytes.to_string(), source.updated_at.to_string());
            rows.add_row([source.agent_id, source.source, origin, passages, bytes, stored]);
        }
        print_table(&rows);
        Ok(())
    }
}

impl SearchKnowledge {
    async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let hits = client.search_knowledge(&self.agent, &self.query.join(" "), usize::from(self.limit)).await?;
        if self.json {
            return print_json(&json!({ "hits": hits }));
        }
        if hits.is_empty() {
            eprintln!("no passage fits; `turnwheel knowledge list --agent {}` shows the stored files", self.agent);
        }
        for (at, Hit { source, heading, line, text, score }) in hits.iter().enumerate() {
            let heading = if heading.is_empty() { String::new() } else { format!("  {heading}") };
            let gap = if at == 0 { "" } else { "\n" };
            print(printable(&format!("{gap}{source}:{line}{heading}  ({score:.2})")));
            print(printable(&text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")));
        }
        Ok(())
    }
}

impl RemoveKnowledge {
    async fn run(self, client: &GatewayClient) -> anyhow::Result<()> {
        let mut removed = Vec::new();
        for (at, name) in self.sources.iter().enumerate() {
            removed.push(client.remove_knowledge(&self.agent, name, at + 1 == self.sources.len()).await?);
        }
        if self.json {
            return print_json(&json!({ "removed": removed }));
        }
        for RemovedSource { agent_id, source } in &removed {
            print(printable(&format!("✓ {source}: removed from agent {agent_id}")));
        }
        Ok(())
    }
}
