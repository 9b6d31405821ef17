//! The running workers, and the models, flows, functions, secrets, private hosts and connectors that all of them have.
//!
//! Workers announce themselves by [`Store::announce`]. A command may run with other settings than the workers. If it
//! validated an agent against its own settings, it could store an agent that no worker can run, or refuse one that
//! every worker can run.

use base::config::Settings;
use definitions::agent::validate::KnownNames;
use std::collections::BTreeSet;
use std::time::Duration;
use storage::store::{Process, Result, Store};
use types::timestamp::Timestamp;

/// Selects a list of names in an announcement.
type ListSelector = fn(&Process) -> &[String];

/// The running workers.
#[derive(Clone, Debug, Default)]
pub struct WorkersOverview {
    workers: Vec<Process>,
}

impl WorkersOverview {
    /// Reads the announced workers from the store.
    pub async fn from_store(store: &dyn Store) -> Result<Self> {
        Ok(Self::new(store.processes().await?))
    }

    /// Selects the workers among these processes.
    pub fn new(processes: Vec<Process>) -> Self {
        Self { workers: processes.into_iter().filter(Process::is_worker).collect() }
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// True when no worker runs.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// The number of workers that have left a job to newer workers within `span`, and the highest format that these read;
    /// `None` if no worker has.
    pub fn leaving_to_newer(&self, now: Timestamp, span: Duration) -> Option<(usize, u32)> {
        let lately = |worker: &&Process| worker.newer_at.is_some_and(|at| at.until(now) < span);
        let leaving: Vec<&Process> = self.workers.iter().filter(lately).collect();
        Some((leaving.len(), leaving.iter().map(|worker| worker.format).max()?))
    }

    /// The highest format of jobs and documents that a worker reads.
    pub fn highest_format(&self) -> u32 {
        self.workers.iter().map(|worker| worker.format).max().unwrap_or_default()
    }

    /// The names that are in this list of every worker.
    fn common(&self, list: impl Fn(&Process) -> &[String]) -> BTreeSet<String> {
        common(self.workers.iter(), list)
    }

    /// The private hosts that every worker may call. `*` stands for all hosts.
    fn private(&self) -> BTreeSet<String> {
        let is_open = |worker: &&Process| worker.allow_private.iter().any(|host| host == "*");
        let (open, bound): (Vec<&Process>, Vec<&Process>) = self.workers.iter().partition(is_open);
        let crew = if bound.is_empty() { open } else { bound };
        common(crew.into_iter(), |worker| &worker.allow_private)
    }

    /// The names of models that every worker has in its settings.
    pub fn models(&self) -> Vec<String> {
        self.common(|worker| &worker.models).into_iter().collect()
    }

    /// The flows that are registered in Rust with every worker.
    pub fn flows(&self) -> Vec<String> {
        self.common(|worker| &worker.flows).into_iter().collect()
    }

    /// The names that agents may use with these workers and workflows.
    fn known(&self, workflows: impl IntoIterator<Item = String>) -> KnownNames {
        KnownNames::default()
            .with_models(self.models())
            .with_flows(self.flows().into_iter().chain(workflows))
            .with_functions(self.common(|worker| &worker.functions))
            .with_secrets(self.common(|worker| &worker.secrets))
            .with_private(self.private())
            .with_connectors(self.common(|worker| &worker.connectors))
    }

    /// Describes the differences between the workers.
    pub fn differences(&self) -> Vec<String> {
        let lists: [(&str, ListSelector); 6] = [
            ("models", |worker| &worker.models),
            ("flows", |worker| &worker.flows),
            ("functions", |worker| &worker.functions),
            ("secrets.allow", |worker| &worker.secrets),
            ("http.allow_private", |worker| &worker.allow_private),
            ("connectors", |worker| &worker.connectors),
        ];
        let mut found = Vec::new();
        for (name, list) in lists {
            let all: BTreeSet<String> = self.workers.iter().flat_map(|worker| list(worker).iter().cloned()).collect();
            let partial = &all - &self.common(list);
            if !partial.is_empty() {
                found.push(format!("{name}: only some have {}", quoted(&partial)));
            }
        }
        let versions: BTreeSet<&str> = self.workers.iter().map(|worker| worker.version.as_str()).collect();
        if versions.len() > 1 {
            found.push(format!("versions: {}", versions.into_iter().collect::<Vec<_>>().join(", ")));
        }
        found
    }

    /// Describes the differences between these settings and those of the workers.
    pub fn differing(&self, settings: &Settings) -> Vec<String> {
        let pairs = [
            ("models", settings.models.keys().cloned().collect::<BTreeSet<_>>(), self.common(|worker| &worker.models)),
            (
                "secrets.allow",
                settings.secrets.allowed().entries().into_iter().collect(),
                self.common(|worker| &worker.secrets),
            ),
            ("connectors", settings.connectors.keys().cloned().collect(), self.common(|worker| &worker.connectors)),
        ];
        let mut found = Vec::new();
        for (name, here, there) in pairs {
            let (only_here, only_there) = (&here - &there, &there - &here);
            if !only_here.is_empty() {
                found.push(format!("{name}: {} only here", quoted(&only_here)));
            }
            if !only_there.is_empty() {
                found.push(format!("{name}: {} only with the workers", quoted(&only_there)));
            }
        }
        found
    }

    /// Returns the names that agents may use: those of all workers and of the stored workflows. When no worker runs,
    /// the names `here` replace those of the workers.
    pub async fn check_against(&self, store: &dyn Store, here: &KnownNames) -> Result<KnownNames> {
        let stored = store.workflows().await?;
        let workflows = stored
            .good
            .iter()
            .map(|workflow| workflow.id().to_owned())
            .chain(crate::execution::stored::builtin_workflows());
        Ok(self.checked_with(workflows, here))
    }

    /// Like [`Self::check_against`], with these workflows.
    pub fn checked_with(&self, workflows: impl IntoIterator<Item = String>, here: &KnownNames) -> KnownNames {
        match self.is_empty() {
            true => here.clone().with_flows(workflows),
            false => self.known(workflows),
        }
    }
}

fn common<'p>(processes: impl Iterator<Item = &'p Process>, list: impl Fn(&Process) -> &[String]) -> BTreeSet<String> {
    let mut lists = processes.map(|process| list(process).iter().cloned().collect::<BTreeSet<_>>());
    let first = lists.next().unwrap_or_default();
    lists.fold(first, |common, list| &common & &list)
}

fn quoted(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(models: &[&str], allow_private: &[&str]) -> Process {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let roles = names(&["worker"]);
        Process { roles, models: names(models), allow_private: names(allow_private), ..Process::default() }
    }

    #[test]
    fn only_what_every_worker_has_counts() {
        let scheduler = Process { roles: vec!["scheduler".into()], ..Process::default() };
        let crew =
            WorkersOverview::new(vec![worker(&["default", "writer"], &["*"]), scheduler, worker(&["default"], &["*"])]);
        assert_eq!((crew.len(), crew.models()), (2, vec!["default".to_owned()]));
        assert_eq!(crew.differences(), ["models: only some have `writer`"]);
        let mut settings = Settings::default();
        settings.secrets.allow.push("KEY@api.example.com".into());
        assert_eq!(
            crew.differing(&settings),
            ["models: `default` only with the workers", "secrets.allow: `KEY@api.example.com` only here"]
        );
        let private =
            |hosts: [&[&str]; 2]| WorkersOverview::new(hosts.map(|hosts| worker(&[], hosts)).to_vec()).private();
        assert_eq!(private([&["*"], &["127.0.0.1"]]), BTreeSet::from(["127.0.0.1".to_owned()]));
        assert_eq!(private([&["*"], &["*", "10.0.0.1"]]), BTreeSet::from(["*".to_owned()]));
        assert_eq!(private([&["127.0.0.1"], &[]]), BTreeSet::new());
        assert!(WorkersOverview::new(Vec::new()).is_empty() && WorkersOverview::default().models().is_empty());
    }
}
