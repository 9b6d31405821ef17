//! `turnwheel migrate`: brings the data of an older version up to date.

use crate::connection::is_cluster;
use crate::table::print;
use anyhow::Context;
use base::config::load::LoadedSettings;
use clap::Args;
use cluster::mongo::connect::client;
use cluster::mongo::schema::{self, FoundSchema, SCHEMA, Standing, UPGRADE_REMEDY};
use embedded::store::migrate::{self as file, CURRENT_LAYOUT};
use embedded::store::{EmbeddedFile, OpenError};
use std::path::Path;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  turnwheel migrate --check     what a migration would change; exit status 1 if there is something
  turnwheel migrate             migrate now

Every process migrates when it starts, too, and a running process of an older version goes on. So the command is for \
those who want to see it happen first: the database of a cluster, or the file of a stopped `dev`. It may be interrupted \
and repeated. The file from before stays beside the new one, for a return to the old version.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Change nothing, and print what would be changed
    #[arg(long)]
    check: bool,
}

impl Migrate {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let path = embedded::store::path(&loaded.settings);
        match is_cluster(loaded) {
            true => Box::pin(self.database(loaded)).await,
            false => tokio::task::spawn_blocking(move || self.file(&path)).await?,
        }
    }

    async fn database(&self, loaded: &LoadedSettings) -> anyhow::Result<ExitCode> {
        let settings = &loaded.settings;
        let name = &settings.mongodb.database;
        let database = client(settings).await.context("cannot read mongodb.uri")?.database(name);
        let found = FoundSchema::read(&database).await.with_context(|| format!("cannot read the database `{name}`"))?;
        match found.standing() {
            Standing::NewerIncompatible => anyhow::bail!("{}; {UPGRADE_REMEDY}", found.newer(name)),
            Standing::NewerCompatible => print(format!("{}; nothing to do", found.newer(name))),
            Standing::Current if self.check => {
                print(format!("the database `{name}` has schema {SCHEMA}; nothing to do"));
            }
            Standing::Older if self.check => {
                let found = found.version;
                print(format!("the database `{name}` has schema {found}, and would be migrated to {SCHEMA}:"));
                print("  create missing indexes, which processes of the older version ignore");
                print("  record the schema in the collection `meta`");
                return Ok(ExitCode::FAILURE);
            }
            Standing::Current | Standing::Older => {
                let before = schema::migrate(&database, |step| print(format!("  {step}"))).await?;
                print(format!("the database `{name}` had schema {}, and has schema {SCHEMA}", before.version));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn file(&self, path: &Path) -> anyhow::Result<ExitCode> {
        let shown = path.display();
        let Some(found) = file::found(path)? else {
            print(format!("there is no file {shown}; nothing to do"));
            return Ok(ExitCode::SUCCESS);
        };
        if found.is_too_new() {
            return Err(OpenError::Layout { path: path.to_owned(), found: found.layout }.into());
        }
        if !found.is_older() {
            print(format!("{shown} has layout {}; nothing to do", found.layout));
            return Ok(ExitCode::SUCCESS);
        }
        let kept = file::kept_path(path, found.layout);
        if self.check {
            print(format!("{shown} has layout {}, and would be migrated to {CURRENT_LAYOUT}:", found.layout));
            print(format!("  write all rows to a new file, which needs up to {} bytes", path.metadata()?.len()));
            print(format!("  keep the file from before as {}", kept.display()));
            return Ok(ExitCode::FAILURE);
        }
        drop(EmbeddedFile::open_with(path, &mut |part| print(format!("  {part}")))?);
        let kept = kept.display();
        print(format!(
            "{shown} had layout {}, and has layout {CURRENT_LAYOUT}; the file from before is {kept}",
            found.layout
        ));
        Ok(ExitCode::SUCCESS)
    }
}
