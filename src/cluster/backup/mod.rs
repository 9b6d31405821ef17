//! Backups of a cluster while it runs, and their restoration elsewhere.
//!
//! MongoDB and NATS have no common clock, so the order of the reads makes the pair consistent. A backup has some jobs
//! twice and some turns half, as the servers do after a crash of a worker: ids make the repeats harmless, and the journal
//! continues the turns.
//!
//! 1. From now on, every published job is remembered ([`capture`]). 2. The waiting jobs. 3. The sessions, each as of the
//!    moment in which it is read. A job that a session has not processed then was waiting before, or is remembered.
//! 4. The steps. They may name merged jobs, which are older. 5. The jobs that wait now: their turns may be committed and
//!    not published. 6. All other collections, and the events and dead
//!    letters: they have at least what belongs to the sessions.
//!
//! [`mod@restore`] drops records that are newer than the sessions: turns that their sessions do not know, with their events,
//! and the dead letters of jobs that are processed again.
//!
//! [`mod@save`] writes a backup. [`jobs`] finds the jobs that are processed again. [`stream`] has the messages of streams.

mod capture;
mod documents;
mod jobs;
mod replay;
pub mod restore;
pub mod save;
mod stream;

pub use restore::{Restored, restore};
pub use save::save;

use crate::nats;
use async_nats::Client;
use async_nats::jetstream::{self, Context};
use base::config::Settings;
use std::time::Duration;
use storage::backup::{BackupError, Result};

/// The folders of the archive.
const COLLECTIONS: &str = "mongodb";
const WAITING: &str = "nats/jobs";
const CAPTURED: &str = "nats/jobs_meanwhile";
const LATE: &str = "nats/jobs_late";
const EVENTS: &str = "nats/out";
const LETTERS: &str = "nats/dead";

/// Collections that belong to running processes.
const OF_PROCESSES: [&str; 2] = ["processes", "leaders"];
/// The differences of clocks that are allowed for.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The time limit of a request to NATS.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells the progress to the caller.
pub type Tell<'t> = &'t (dyn Fn(String) + Send + Sync);

/// The streams of these settings.
struct Streams {
    client: Client,
    context: Context,
    jobs: Name,
    out: Name,
    dead: Name,
}

/// A stream with the pattern of its subjects.
struct Name {
    stream: String,
    subject: String,
}

impl Streams {
    async fn connect(settings: &Settings) -> Result<Self> {
        let client = Box::pin(nats::connect(settings)).await.map_err(BackupError::servers)?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST_TIMEOUT);
        let [jobs, out, dead] = nats::streams::wanted(settings).map(|config| Name {
            subject: config.subjects.into_iter().next().unwrap_or_default(),
            stream: config.name,
        });
        Ok(Self { client, context, jobs, out, dead })
    }
}
