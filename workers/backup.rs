//! `turnwheel backup` and `turnwheel restore`.

use crate::connection;
use crate::failure::Failure;
use crate::table::{print, print_json};
use anyhow::Context;
use base::clock;
use base::config::load::LoadedSettings;
use base::error::with_causes;
use base::tasks::Tasks;
use clap::Args;
use embedded::store;
use serde_json::{Map, json};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use storage::backup::{Archive, BackupError, Manifest, Source};
use tokio::time::Instant;

use types::access::Role;
use types::audit::AuditEntry;
use uuid::Uuid;

const BACKUP: &str = "\
Examples:
  turnwheel backup                              of `dev`, running or not, into the working directory
  turnwheel backup /backups/monday.tar          under this name
  turnwheel --config cluster.toml backup b.tar  of NATS and MongoDB, while workers run
  turnwheel restore b.tar --check               read it again: is it complete and unchanged?

The backup is one tar file: conversations, timers, waiting messages, runs, agents, workflows, knowledge, events, dead \
letters and the audit trail. Keep turnwheel.toml, the folders of agents and workflows, and the secrets yourself; they \
are not in it. Everything that was accepted before the command began is in it. The file has what users have said: \
only its owner may read it, and it is not encrypted.
Exit status: 0 success, 1 failure, 2 wrong usage.";

const RESTORE: &str = "\
Examples:
  turnwheel restore b.tar                          into data_dir, for `turnwheel dev`
  turnwheel --set data_dir=/tmp/look restore b.tar elsewhere, to look at it
  turnwheel --config new.toml restore b.tar        into an empty NATS and MongoDB
  turnwheel restore b.tar --check                  only check the file, and say what it has
  turnwheel restore b.tar --force                  in place of what is there

Stop all processes first, and start them afterwards. Messages that waited are then answered, turns that had begun go \
on from their recorded steps, and overdue timers fire. Without --force it refuses to touch existing data. With --force \
the former embedded file is kept as turnwheel.redb.before-restore; the content of a cluster is deleted.
Exit status: 0 success, 1 failure, 2 wrong usage.";

/// The interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = BACKUP)]
pub struct Backup {
    /// The file to write [default: turnwheel-<time>.tar in the working directory]
    file: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = RESTORE)]
pub struct Restore {
    /// The file that `turnwheel backup` has written
    file: PathBuf,
    /// Replace existing data
    #[arg(long)]
    force: bool,
    /// Only check the file, and restore nothing
    #[arg(long, conflicts_with = "force")]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let file = self.file.clone().unwrap_or_else(default_name);
        if file.exists() && !self.force {
            let message = format!("{} exists already", file.display());
            return Err(Failure::new(message, "give another name, or replace it with --force").into());
        }
        let incomplete = store::with_ending(&file, ".incomplete");
        let saved = self.save(loaded, &incomplete).await;
        if saved.is_err() {
            // It may not exist.
            let _ = std::fs::remove_file(&incomplete);
        }
        saved?;
        store::finish(&incomplete, &file).map_err(|error| Failure::new(with_causes(&error), "check the folder"))?;
        let manifest = open(&file)?.manifest().clone();
        if self.json {
            return print_json(&described(&file, &manifest));
        }
        print(format!("backed up {} to {}: {}", source(&manifest), file.display(), words(&manifest)));
        Ok(())
    }

    /// Writes the archive, and reads it again.
    async fn save(&self, loaded: &LoadedSettings, target: &Path) -> anyhow::Result<()> {
        let settings = &loaded.settings;
        if connection::is_cluster(loaded) {
            let tasks = Tasks::new();
            let (_, store) = connection::cluster(settings, &tasks).await?;
            store.put_audit(action("create_backup")).await?;
            let saved = Box::pin(cluster::backup::save(settings, created(target)?, target, &tell)).await;
            saved.map_err(failure)?.1.flush().with_context(|| target.display().to_string())?;
            tasks.stop();
        } else if let Some(client) = connection::running_dev(loaded).await? {
            eprintln!("using the dev server at {}", client.base());
            let (mut file, mut bytes, mut told) = (created(target)?, 0_u64, Instant::now());
            let mut parts = client.backup().await?;
            while let Some(part) = client.next_part(&mut parts).await? {
                file.write_all(&part).with_context(|| target.display().to_string())?;
                bytes += part.len() as u64;
                if told.elapsed() >= PROGRESS_INTERVAL {
                    told = Instant::now();
                    tell(format!("{} so far", size(bytes)));
                }
            }
            file.flush().with_context(|| target.display().to_string())?;
        } else {
            let copy = embedded::backup::copy(&store::path(settings)).map_err(failure)?;
            let saved = copy.save(created(target)?, target).map_err(failure)?;
            { saved }.1.flush().with_context(|| target.display().to_string())?;
        }
        open(target).map(drop)
    }
}

impl Restore {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let (settings, archive) = (&loaded.settings, open(&self.file)?);
        let manifest = archive.manifest();
        if self.check {
            if self.json {
                return print_json(&described(&self.file, manifest));
            }
            print(format!("{} is complete: {}, {}", self.file.display(), source(manifest), words(manifest)));
            return Ok(());
        }
        let (to, also) = if connection::is_cluster(loaded) {
            let tasks = Tasks::new();
            let restored = Box::pin(cluster::backup::restore(settings, &archive, self.force, &tasks, &tell)).await;
            let restored = restored.map_err(failure)?;
            let (_, store) = connection::cluster(settings, &tasks).await?;
            store.put_audit(action("restore_backup")).await?;
            tasks.stop();
            let database = &settings.mongodb.database;
            let also = format!("; {} jobs wait for workers. Start the processes now", restored.open_jobs);
            (format!("the database `{database}` and its streams"), also)
        } else {
            if connection::running_dev(loaded).await?.is_some() {
                let message = format!("a dev server is running on {}", settings.data_dir.display());
                return Err(Failure::new(message, "stop it, or restore elsewhere with --set data_dir=…").into());
            }
            let path = store::path(settings);
            let former = embedded::backup::restore(&archive, &path, self.force).map_err(failure)?;
            let kept = former.map(|former| format!("; the former file is {}", former.display()));
            (path.display().to_string(), format!("{}. Start `turnwheel dev` now", kept.unwrap_or_default()))
        };
        if self.json {
            return print_json(&described(&self.file, manifest));
        }
        print(format!("restored {} as it was at {}: {}{also}", to, manifest.started_at, words(manifest)));
        Ok(())
    }
}

/// A name with the time, such as `turnwheel-20260102T030405Z.tar`.
fn default_name() -> PathBuf {
    let time: String = clock::now().to_string().chars().filter(|sign| !matches!(sign, '-' | ':')).collect();
    PathBuf::from(format!("turnwheel-{}Z.tar", time.split('.').next().unwrap_or_default()))
}

/// Creates a file that only its owner may read.
fn created(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(|source| failure(BackupError::file(path, source)))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn open(path: &Path) -> anyhow::Result<Archive> {
    Ok(Archive::open(path).map_err(failure)?)
}

#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
fn failure(error: BackupError) -> Failure {
    Failure::new(with_causes(&error), error.hint())
}

#[allow(clippy::needless_pass_by_value, reason = "the library passes a value")]
fn tell(line: String) {
    eprintln!("{line}");
}

/// The entry of the audit trail for a command that works without a gateway.
fn action(name: &str) -> AuditEntry {
    let at = clock::now();
    AuditEntry {
        id: format!("{:013}-{}", at.as_millis(), Uuid::new_v4().simple()),
        at,
        by: "cli".to_owned(),
        role: Role::Admin,
        action: name.to_owned(),
        target: String::new(),
        detail: Map::new(),
    }
}

fn source(manifest: &Manifest) -> String {
    match manifest.backend {
        Source::Embedded => "the embedded file".to_owned(),
        Source::Cluster => format!("the cluster with the namespace `{}`", manifest.namespace),
    }
}

/// The size, the time and the most important numbers.
fn words(manifest: &Manifest) -> String {
    let count = |folder: &str, what: &str| manifest.counts.get(folder).map(|count| format!("{count} {what}"));
    let counted =
        [count("mongodb/sessions", "sessions"), count("nats/jobs", "waiting jobs"), count("nats/out", "events")];
    let parts = [Some(size(manifest.bytes()))].into_iter().chain(counted).flatten();
    let parts: Vec<String> = parts.collect();
    format!("{}, begun at {} by turnwheel {}", parts.join(", "), manifest.started_at, manifest.version)
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        mib => format!("{mib} MiB"),
    }
}

fn described(file: &Path, manifest: &Manifest) -> serde_json::Value {
    json!({
        "file": file,
        "backend": manifest.backend,
        "namespace": manifest.namespace,
        "version": manifest.version,
        "started_at": manifest.started_at,
        "completed_at": manifest.completed_at,
        "bytes": manifest.bytes(),
        "counts": manifest.counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_described_in_a_line() {
        let mut manifest = Manifest::begin(Source::Cluster, "tw", None);
        manifest.counts = [("mongodb/sessions".to_owned(), 3), ("nats/jobs".to_owned(), 1)].into();
        let text = format!("{}: {}", source(&manifest), words(&manifest));
        assert!(
            text.starts_with("the cluster with the namespace `tw`: 0 KiB, 3 sessions, 1 waiting jobs, begun"),
            "{text}"
        );
        assert_eq!((size(1), size(5 << 20)), ("1 KiB".to_owned(), "5 MiB".to_owned()));
        let name = default_name().display().to_string();
        assert!(name.starts_with("turnwheel-2") && name.ends_with("Z.tar") && !name.contains(':'), "{name}");
    }
}
