//! The tables of the file. Documents are JSON, which keeps every key and value unchanged.
//!
//! Writing a row takes several microseconds, whatever its size. So data that belongs together shares a row. Data that
//! is read only when the file is opened, or when it expires, shares one row for all operations of a commit
//! ([`super::pending_rows`]).

use super::fault::FileFault;
use super::pending_rows::PendingRows;
use base::clock::Clock;
use base::error::SharedError;
use redb::{Key, ReadTransaction, ReadableTable, Table, TableDefinition, TableError, Value, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::format;

/// The definition of a table with its key and value.
pub(crate) type Definition<K, V> = TableDefinition<'static, K, V>;
/// Bytes in a table.
pub(crate) type Bytes = &'static [u8];
/// Text in a table.
pub(crate) type Text = &'static str;
/// Steps of a turn, by key.
pub(crate) type Steps = Vec<(Text, Bytes)>;
/// An event in the index: (sequence, session, message id).
pub(crate) type IndexedEvent = (u64, Text, Option<Text>);

/// Name → counter or time.
pub const META: Definition<Text, u64> = TableDefinition::new("meta");
/// Session → (`updated_at`, flags, number of the history's first entry, the session as its last commit wrote it,
/// without its history).
pub(crate) const SESSIONS: Definition<Text, (i64, u8, u64, Bytes)> = TableDefinition::new("sessions");
/// Session → its open lane: the changes since the last commit.
pub(crate) const LANES: Definition<Text, Bytes> = TableDefinition::new("lanes");
/// (Session, number of the first entry) → history entries of one turn. Entries before the session's
/// first number are dropped, and deleted later.
pub(crate) const HISTORY: Definition<(Text, u64), Vec<Bytes>> = TableDefinition::new("history");
/// (Session, turn, key) → step that was recorded before the commit.
pub(crate) const STEPS: Definition<(Text, Text, Text), Bytes> = TableDefinition::new("steps");
/// (Session, turn, key) → compressed prompt of the step.
pub(crate) const PROMPTS: Definition<(Text, Text, Text), Bytes> = TableDefinition::new("prompts");
/// (Session, turn) → (`committed_at`, record, steps that the commit recorded, by key). These steps take precedence over
/// those in `STEPS`.
pub(crate) const TURNS: Definition<(Text, Text), (i64, Bytes, Steps)> = TableDefinition::new("turns");
/// (Time, number) → (session, turn) of the turns that were changed then. `prune` reads it.
pub(crate) const TURN_AGES: Definition<(i64, u64), Vec<(Text, Text)>> = TableDefinition::new("turn_ages");
/// (Due time, session, timer).
pub(crate) const TIMERS: Definition<(i64, Text, Text), ()> = TableDefinition::new("timers");
/// (Workflow, hash) → plan.
pub(crate) const PLANS: Definition<(Text, Text), Bytes> = TableDefinition::new("plan_cache");
/// Agent → its current version.
pub(crate) const AGENTS: Definition<Text, Bytes> = TableDefinition::new("agents");
/// (Agent, hash) → version.
pub(crate) const AGENT_VERSIONS: Definition<(Text, Text), Bytes> = TableDefinition::new("agent_versions");
/// (Agent, source) → the source without its passages.
pub(crate) const KNOWLEDGE: Definition<(Text, Text), Bytes> = TableDefinition::new("knowledge");
/// (Agent, source) → the passages of the source.
pub(crate) const PASSAGES: Definition<(Text, Text), Bytes> = TableDefinition::new("passages");
/// Workflow → its current version.
pub(crate) const WORKFLOWS: Definition<Text, Bytes> = TableDefinition::new("workflows");
/// (Workflow, hash) → version.
pub(crate) const WORKFLOW_VERSIONS: Definition<(Text, Text), Bytes> = TableDefinition::new("workflow_versions");
/// (Table of versions, id, hash) → since when the version is not in use.
pub(crate) const VERSION_MARKS: Definition<(Text, Text, Text), i64> = TableDefinition::new("version_marks");
/// Plan of a session → its state.
pub(crate) const PLAN_STATES: Definition<Text, Bytes> = TableDefinition::new("plan_states");
/// (Session, plan), without plans that are no longer among the last ones.
pub(crate) const SESSION_PLANS: Definition<(Text, Text), ()> = TableDefinition::new("session_plans");
/// Run → (epoch under which the record was written, record).
pub(crate) const RUNS: Definition<Text, (u64, Bytes)> = TableDefinition::new("workflow_runs");
/// (Creation time, run).
pub(crate) const RUN_TIMES: Definition<(i64, Text), ()> = TableDefinition::new("run_times");
/// (End time, run). `prune` reads it.
pub(crate) const RUN_ENDS: Definition<(i64, Text), ()> = TableDefinition::new("run_ends");
/// (Day, agent) → tokens that the agent's turns have used.
pub(crate) const AGENT_DAYS: Definition<(Text, Text), u64> = TableDefinition::new("agent_days");
/// Entry of the audit trail → (time, entry).
pub(crate) const AUDIT: Definition<Text, (i64, Bytes)> = TableDefinition::new("audit");
/// Session → the state of its authoring dialogue.
pub(crate) const AUTHORING: Definition<Text, Bytes> = TableDefinition::new("workflow_agent_states");
/// (Table of versions, id, hash) of a draft → the sessions that it belongs to.
pub(crate) const DRAFTS: Definition<(Text, Text, Text), Vec<Text>> = TableDefinition::new("drafts");
/// (Table of current versions, id) → the user who owns it.
pub(crate) const OWNERS: Definition<(Text, Text), Text> = TableDefinition::new("owners");
/// Role → (owner, end of the leadership).
pub(crate) const LEADERS: Definition<Text, (Text, i64)> = TableDefinition::new("leaders");
/// Sequence → (time, session, message id, payload) of a job that is not acknowledged.
pub const JOBS: Definition<u64, (i64, Text, Option<Text>, Bytes)> = TableDefinition::new("jobs");
/// First sequence → (time, (sequence, message id) of the jobs in one commit) within the deduplication window, also for
/// acknowledged jobs.
pub const JOB_IDS: Definition<u64, (i64, Vec<(u64, Text)>)> = TableDefinition::new("job_ids");
/// First sequence → (channel, type, payload) of events with consecutive sequences.
pub const EVENTS: Definition<u64, Vec<(Text, Text, Bytes)>> = TableDefinition::new("events");
/// First sequence → (time, (sequence, session, message id) of the events in one commit). It is read when the file is
/// opened.
pub const EVENT_INDEX: Definition<u64, (i64, Vec<IndexedEvent>)> = TableDefinition::new("event_index");
/// Sequence → (time, message id, headers, payload) of a dead letter.
pub const DEAD: Definition<u64, (i64, Text, Bytes, Bytes)> = TableDefinition::new("dead");

macro_rules! tables {
    ($($name:ident: $key:ty => $value:ty = $definition:ident;)*) => {
        /// All tables, open for writing in one transaction.
        pub struct Tables<'t> {
            $(#[allow(missing_docs, reason = "the definitions above describe the tables")] pub $name: Table<'t, $key, $value>,)*
            /// The clock of the file.
            pub(crate) clock: Clock,
            /// The entries that the operations of this commit write together.
            pub pending_rows: PendingRows,
        }

        impl<'t> Tables<'t> {
            /// Opens all tables and creates missing ones.
            pub(crate) fn open(transaction: &'t WriteTransaction, clock: &Clock) -> Result<Self, FileFault> {
                let (clock, pending_rows) = (clock.clone(), PendingRows::default());
                Ok(Self { $($name: transaction.open_table($definition)?,)* clock, pending_rows })
            }
        }

        /// Copies all rows of all tables into another database.
        pub(crate) fn copy_all(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), FileFault> {
            $(copy(from, to, $definition)?;)*
            Ok(())
        }
    };
}

tables! {
    meta: Text => u64 = META;
    sessions: Text => (i64, u8, u64, Bytes) = SESSIONS;
    lanes: Text => Bytes = LANES;
    history: (Text, u64) => Vec<Bytes> = HISTORY;
    steps: (Text, Text, Text) => Bytes = STEPS;
    prompts: (Text, Text, Text) => Bytes = PROMPTS;
    turns: (Text, Text) => (i64, Bytes, Steps) = TURNS;
    turn_ages: (i64, u64) => Vec<(Text, Text)> = TURN_AGES;
    timers: (i64, Text, Text) => () = TIMERS;
    plans: (Text, Text) => Bytes = PLANS;
    agents: Text => Bytes = AGENTS;
    agent_versions: (Text, Text) => Bytes = AGENT_VERSIONS;
    knowledge: (Text, Text) => Bytes = KNOWLEDGE;
    passages: (Text, Text) => Bytes = PASSAGES;
    workflows: Text => Bytes = WORKFLOWS;
    workflow_versions: (Text, Text) => Bytes = WORKFLOW_VERSIONS;
    version_marks: (Text, Text, Text) => i64 = VERSION_MARKS;
    plan_states: Text => Bytes = PLAN_STATES;
    session_plans: (Text, Text) => () = SESSION_PLANS;
    runs: Text => (u64, Bytes) = RUNS;
    run_times: (i64, Text) => () = RUN_TIMES;
    run_ends: (i64, Text) => () = RUN_ENDS;
    agent_days: (Text, Text) => u64 = AGENT_DAYS;
    audit: Text => (i64, Bytes) = AUDIT;
    authoring: Text => Bytes = AUTHORING;
    drafts: (Text, Text, Text) => Vec<Text> = DRAFTS;
    owners: (Text, Text) => Text = OWNERS;
    leaders: Text => (Text, i64) = LEADERS;
    jobs: u64 => (i64, Text, Option<Text>, Bytes) = JOBS;
    job_ids: u64 => (i64, Vec<(u64, Text)>) = JOB_IDS;
    events: u64 => Vec<(Text, Text, Bytes)> = EVENTS;
    event_index: u64 => (i64, Vec<IndexedEvent>) = EVENT_INDEX;
    dead: u64 => (i64, Text, Bytes, Bytes) = DEAD;
}

/// Copies one table. Does nothing if the original does not have it.
pub(super) fn copy<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: Definition<K, V>,
) -> Result<(), FileFault> {
    let mut copied = to.open_table(table)?;
    let original = match from.open_table(table) {
        // An earlier version, without this table, wrote the file.
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        original => original?,
    };
    for row in original.iter()? {
        let (key, value) = row?;
        copied.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// The version of the layout. It is raised when the key or the value of a table changes; [`super::migrate`] then needs
/// a conversion from the layout before.
pub const LAYOUT: u64 = 2;
/// The name of the layout's version in the table `meta`.
pub(super) const LAYOUT_NAME: &str = "layout";

/// Creates missing tables, so that readers find every table. Ends the leaderships of the last process.
pub(crate) fn prepare(database: &redb::Database) -> Result<(), FileFault> {
    let transaction = database.begin_write()?;
    Tables::open(&transaction, &Clock::system())?.leaders.retain(|_, _| false)?;
    Ok(transaction.commit()?)
}

/// The deepest nesting of a stored document. The JSON decoder accepts 128 levels, and a document that it could not
/// decode must never be written.
const MAX_DEPTH: usize = 120;

/// Encodes a document. Fails with `Refused` when it is nested too deeply. `what` names it in the error.
pub fn encode<T: Serialize>(what: &str, document: &T) -> Result<Vec<u8>, FileFault> {
    let bytes = serde_json::to_vec(document)
        .map_err(|error| FileFault::Refused(SharedError::explained(format!("{what}: {error}"), error)))?;
    match depth(&bytes) {
        deep if deep > MAX_DEPTH => {
            let problem = format!(
                "{what} is nested {deep} levels deep, and at most {MAX_DEPTH} levels can be stored; \
                 flatten the data of the action or channel"
            );
            Err(FileFault::Refused(problem.into()))
        }
        _ => Ok(format::stamp_json(bytes)),
    }
}

/// Decodes a document. `what` names it in the error.
pub fn decode<T: DeserializeOwned>(what: impl FnOnce() -> String, bytes: &[u8]) -> Result<T, FileFault> {
    if let Err(source) = format::check_json(bytes) {
        return Err(FileFault::Newer { what: what(), source });
    }
    serde_json::from_slice(bytes).map_err(|error| FileFault::Damaged { what: what(), source: error.into() })
}

/// Returns the depth of nesting. Up to [`MAX_DEPTH`] it may return a larger number than the true one.
fn depth(json: &[u8]) -> usize {
    // Counts brackets in texts, too. For nearly all documents this upper bound is enough, at a fraction of the work.
    let opened = json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opened <= MAX_DEPTH {
        return opened;
    }
    let (mut deep, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                deep += 1;
                deepest = deepest.max(deep);
            }
            b'}' | b']' if !in_text => deep = deep.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn refuses_what_could_not_be_read_again() {
        let nested = |levels: usize| (0..levels).fold(json!("]]}} \\\""), |inner, _| json!([inner]));
        let bytes = encode("a document", &nested(MAX_DEPTH)).unwrap();
        assert_eq!(decode::<Value>(String::new, &bytes).unwrap(), nested(MAX_DEPTH));
        assert!(matches!(encode("a document", &nested(MAX_DEPTH + 1)), Err(FileFault::Refused(_))));
    }
}
