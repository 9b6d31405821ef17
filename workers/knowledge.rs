//! `turnwheel knowledge`: what agents answer from.

use crate::access::Access;
use crate::table::{print, print_json, print_table, printable, table};
use base::config::load::Loaded;
use base::tasks::Tasks;
use clap::{Args, Subcommand};
use commands::knowledge::NewText;
use definitions::knowledge::files::{self, NamedText};
use definitions::knowledge::source::Origin;
use engine::knowledge::Hit;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel knowledge add --agent sales returns.md prices.md   in use a second or two later
  turnwheel knowledge search --agent sales 怎么退货             what a reply would be written from
  turnwheel knowledge list --agent sales
  turnwheel knowledge remove --agent sales returns.md

Files that an agent's file names under `knowledge.files` are stored by `turnwheel agents apply`, and by `dev`.";

const ADD: &str = "\
Examples:
  turnwheel knowledge add --agent sales returns.md kb/prices.txt
  turnwheel knowledge add --agent support kb/*.md --json

Markdown (.md, .markdown) and text (.txt), in UTF-8, 1 MiB each at most; a file of the same name is replaced. The good files are
stored; exit status 1 if one was bad.";

const LIST: &str = "\
Examples:
  turnwheel knowledge list
  turnwheel knowledge list --agent sales --json

`agent_file` sources are those that the agent's file names, `added` ones those of `knowledge add`.";

const SEARCH: &str = "\
Examples:
  turnwheel knowledge search --agent sales 保修多久
  turnwheel knowledge search --agent support --limit 1 --json how do I return the router

Searches as a reply would, the best passage first. Nothing is found where nothing fits: replies are as decided then.";

const REMOVE: &str = "\
Examples:
  turnwheel knowledge remove --agent sales returns.md

What the agent's file names comes back when it is applied again.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Knowledge {
    /// Store files that an agent is to answer from
    #[command(after_help = ADD)]
    Add(Add),
    /// Stored files, by agent
    #[command(after_help = LIST)]
    List(List),
    /// The passages that a question finds
    #[command(after_help = SEARCH)]
    Search(Search),
    /// Remove stored files
    #[command(after_help = REMOVE)]
    Remove(Remove),
}

#[derive(Debug, Args)]
pub struct Add {
    /// The agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// The files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct List {
    /// Only those of this agent
    #[arg(long, value_parser = crate::id)]
    agent: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Search {
    /// The agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// The most passages to show
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=50))]
    limit: u16,
    /// The question, in a user's words
    #[arg(required = true)]
    query: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// The agent
    #[arg(long, value_parser = crate::id)]
    agent: String,
    /// Their names, as `list` shows them
    #[arg(required = true)]
    sources: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Knowledge {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<ExitCode> {
        let tasks = Tasks::new();
        let access = Access::open(loaded, &tasks).await?;
        match self {
            Self::Add(add) => return add.run(&access).await,
            Self::List(list) => list.run(&access).await?,
            Self::Search(search) => search.run(&access).await?,
            Self::Remove(remove) => remove.run(&access).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Add {
    async fn run(self, access: &Access) -> anyhow::Result<ExitCode> {
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
            let done = access.put_knowledge(&self.agent, &name, &NewText { text, origin: Origin::Added }, last).await?;
            if !self.json {
                let word = if done.changed { "stored" } else { "unchanged" };
                print(printable(&format!("✓ {name}: {word}, {} passages", done.source.passage_count)));
            }
            stored.push(done);
        }
        if self.json {
            print_json(&json!({ "stored": stored }))?;
        }
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl List {
    async fn run(self, access: &Access) -> anyhow::Result<()> {
        let sources = access.list_knowledge(self.agent.as_deref()).await?;
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

impl Search {
    async fn run(self, access: &Access) -> anyhow::Result<()> {
        let hits = access.search_knowledge(&self.agent, &self.query.join(" "), usize::from(self.limit)).await?;
        if self.json {
            return print_json(&json!({ "hits": hits }));
        }
        if hits.is_empty() {
            eprintln!("nothing fits; `turnwheel knowledge list --agent {}` shows what there is", self.agent);
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

impl Remove {
    async fn run(self, access: &Access) -> anyhow::Result<()> {
        let mut removed = Vec::new();
        for (at, name) in self.sources.iter().enumerate() {
            removed.push(access.remove_knowledge(&self.agent, name, at + 1 == self.sources.len()).await?);
        }
        if self.json {
            return print_json(&json!({ "removed": removed }));
        }
        removed.iter().for_each(|removed| print(printable(&format!("✓ {}: removed", removed.source))));
        Ok(())
    }
}
