//! `turnwheel agents|workflows versions`, and the options by which a change is applied: a note, a condition, a draft,
//! or a stored version instead of a file.

use crate::client::{ChangeArgs, DocumentKind, GatewayClient};
use crate::failure::Failure;
use crate::table::{print, print_json, print_table, printable, table};
use clap::Args;
use commands::documents::versions::VersionSummary;
use definitions::document::yaml::to_yaml;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Help of `agents versions`.
pub const AGENT: &str = "\
Examples:
  turnwheel agents versions sales                        when, by whom and why each was applied
  turnwheel agents versions sales 9e107d9d               print the text of one
  turnwheel agents apply sales --version 9e107d9d372bb6826bd81d3542a419d6    go back to it
  turnwheel send --session s1 --agent sales --agent-version 9e107d9d372bb6826bd81d3542a419d6 hi

A draft is a version that was never applied. Unused versions are kept for retention.versions.";

/// Help of `workflows versions`.
pub const WORKFLOW: &str = "\
Examples:
  turnwheel workflows versions research                  when, by whom and why each was applied
  turnwheel workflows versions research 6efc7556         print the text of one
  turnwheel workflows apply research --version 6efc75562e5e203a4be398aa2e7a0c2a    go back to it

A draft is a version that was never applied. Unused versions are kept for retention.versions.";

/// Files to apply, and how.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Files or folders [default: the folder of the settings]; with --version the id
    pub paths: Vec<PathBuf>,
    /// Why it is changed, for the list of versions
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Only if the stored version has this hash still; for one file, or with --version
    #[arg(long, value_name = "HASH", conflicts_with = "draft")]
    if_match: Option<String>,
    /// Store the files as drafts, which only messages with --agent-version use
    #[arg(long)]
    pub draft: bool,
    /// Apply this stored version, an earlier one or a draft, instead of a file
    #[arg(long, value_name = "HASH", conflicts_with = "draft")]
    version: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ApplyArgs {
    /// The note and the condition.
    pub fn change(&self) -> ChangeArgs {
        ChangeArgs { note: self.note.clone(), if_match: self.if_match.clone() }
    }

    /// The id and the hash of the version to apply; `None` if files are to be applied.
    pub fn stored(&self) -> anyhow::Result<Option<(String, String)>> {
        let Some(hash) = &self.version else { return Ok(None) };
        let [id] = self.paths.as_slice() else {
            return Err(Failure::new("--version needs one id", "as in: apply sales --version HASH").into());
        };
        let id =
            crate::id(&id.to_string_lossy()).map_err(|problem| Failure::new(problem, "give the id, not a file"))?;
        Ok(Some((id, hash.clone())))
    }

    /// Fails if one condition were to hold for several files.
    pub fn check_one(&self, files: usize) -> anyhow::Result<()> {
        if self.if_match.is_some() && files != 1 {
            let message = format!("--if-match is for one file, and there are {files}");
            return Err(Failure::new(message, "name one file").into());
        }
        Ok(())
    }
}

/// Applies a stored version, and prints the result.
pub async fn apply_stored(
    client: &GatewayClient,
    kind: DocumentKind,
    (id, hash): (&str, &str),
    args: &ApplyArgs,
) -> anyhow::Result<ExitCode> {
    let hash = full_hash(client, kind, id, hash).await?;
    let changed = client.apply_version(kind, id, &hash, &args.change()).await?;
    match args.json {
        true => print_json(&json!({ "id": id, "hash": hash, "changed": changed }))?,
        false => print(printable(&format!("✓ {id} {} ({hash})", if changed { "applied" } else { "unchanged" }))),
    }
    Ok(ExitCode::SUCCESS)
}

/// Versions to list, or one to print.
#[derive(Debug, Args)]
pub struct VersionsArgs {
    /// Id of the agent or workflow
    #[arg(value_parser = crate::id)]
    id: String,
    /// Hash of the version to print, or its beginning [default: list all]
    hash: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl VersionsArgs {
    pub async fn run(&self, client: &GatewayClient, kind: DocumentKind) -> anyhow::Result<ExitCode> {
        match &self.hash {
            None => self.list(client.versions(kind, &self.id).await?)?,
            Some(hash) => {
                let hash = full_hash(client, kind, &self.id, hash).await?;
                let (version, document, source) = client.version(kind, &self.id, &hash).await?;
                match self.json {
                    true => print_json(&json!({ "version": version, "document": document, "source": source }))?,
                    false => print(printable(text(&document, source.as_deref()).trim_end())),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, versions: Vec<VersionSummary>) -> anyhow::Result<()> {
        if self.json {
            return print_json(&json!({ "versions": versions }));
        }
        let mut rows = table(&["hash", "applied or stored", "by", "state", "note"]);
        for VersionSummary { hash, at, by, note, current, draft } in versions {
            let state = if current {
                "current"
            } else if draft {
                "draft"
            } else {
                ""
            };
            rows.add_row([hash, at.to_string(), by.unwrap_or_default(), state.to_owned(), note.unwrap_or_default()]);
        }
        print_table(&rows);
        Ok(())
    }
}

/// The text of a document: its own, else YAML.
pub fn text(document: &Value, source: Option<&str>) -> String {
    source.map_or_else(|| to_yaml(document), str::to_owned)
}

/// The hash of the version whose hash begins so.
async fn full_hash(client: &GatewayClient, kind: DocumentKind, id: &str, begin: &str) -> anyhow::Result<String> {
    if begin.len() >= 32 {
        return Ok(begin.to_owned());
    }
    let versions = client.versions(kind, id).await?;
    let fitting: Vec<String> =
        versions.into_iter().map(|version| version.hash).filter(|hash| hash.starts_with(begin)).collect();
    match fitting.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::new(format!("`{id}` has no version `{begin}`"), "`versions ID` lists them").into()),
        several => {
            let message = format!("{} versions of `{id}` begin with `{begin}`", several.len());
            Err(Failure::new(message, "give more of the hash").into())
        }
    }
}
