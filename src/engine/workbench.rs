//! The parts of a process that authoring uses: the store, the names that documents may use, and rehearsals.

use crate::definition_files::DefinitionFiles;
use crate::rehearsal::Rehearse;
use base::clock::Clock;
use base::config::{PythonRunner, Quotas, Settings};
use decisions::node_type::NodeType;
use definitions::agent::validate::KnownNames;
use grpc::Author;
use std::sync::Arc;
use storage::store::Store;

/// The parts of a process that authoring uses. A worker has one in its services; a gateway creates its own.
#[derive(Clone)]
pub struct Workbench {
    /// Holds agents, workflows, drafts and states.
    pub store: Arc<dyn Store>,
    /// The names of this process. They are used only if no worker is running.
    pub known: KnownNames,
    /// The flows that are registered in Rust with this process.
    pub flows: Vec<String>,
    /// The types of nodes that can run here.
    pub node_types: Vec<NodeType>,
    /// The limits on stored versions.
    pub quotas: Quotas,
    /// Rehearses drafts. Without it no test runs, so no draft passes.
    pub rehearsal: Option<Arc<dyn Rehearse>>,
    /// The authoring agent on another server that leads the dialogues of workers, if the settings name one.
    pub author: Option<Arc<dyn Author>>,
    /// The files that follow the store; `None` except in `dev`.
    pub files: Option<Arc<DefinitionFiles>>,
    /// Source of all timestamps and timeouts.
    pub clock: Clock,
}

impl Workbench {
    /// Creates a workbench without rehearsals. `known` has the names of this process, `flows` its flows in Rust.
    pub fn new(
        store: Arc<dyn Store>,
        settings: &Settings,
        known: KnownNames,
        flows: Vec<String>,
        clock: Clock,
    ) -> Self {
        let has_python = settings.python.runner != PythonRunner::Off;
        let has_database = !settings.connectors.is_empty();
        let node_types = NodeType::ALL.into_iter().filter(|kind| match kind {
            NodeType::Python => has_python,
            NodeType::Database => has_database,
            _ => true,
        });
        let (node_types, quotas) = (node_types.collect(), settings.quotas);
        Self { store, known, flows, node_types, quotas, rehearsal: None, author: None, files: None, clock }
    }

    /// Creates a workbench with the names of the settings and without rehearsals.
    pub fn of_settings(store: Arc<dyn Store>, settings: &Settings, flows: Vec<String>, clock: Clock) -> Self {
        Self::new(store, settings, KnownNames::new(settings, flows.clone()), flows, clock)
    }

    /// Adds rehearsals of drafts.
    #[must_use]
    pub fn with_rehearsal(self, rehearsal: Arc<dyn Rehearse>) -> Self {
        Self { rehearsal: Some(rehearsal), ..self }
    }

    /// Has dialogues led by an authoring agent on another server.
    #[must_use]
    pub fn with_author(self, author: Arc<dyn Author>) -> Self {
        Self { author: Some(author), ..self }
    }

    /// Writes published drafts into their files.
    #[must_use]
    pub fn with_files(self, files: Option<Arc<DefinitionFiles>>) -> Self {
        Self { files, ..self }
    }
}
