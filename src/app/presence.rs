//! Announces this process in the store: its roles, and the names of its models, flows, functions and secrets.

use super::Engine;
use base::clock;
use base::metrics::metrics;
use base::tasks::OnPanic;
use std::sync::{Arc, Mutex, PoisonError};
use storage::store::{ANNOUNCE_INTERVAL, Process, Store};
use tokio::sync::Notify;
use tracing::debug;
use types::format;
use types::timestamp::Timestamp;

/// The announcement of one process. A task renews it from the first role on.
#[derive(Default)]
pub(super) struct Presence {
    announced: Mutex<Option<Process>>,
    changed: Notify,
}

impl Presence {
    fn process(&self) -> Option<Process> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a role. Returns true for the first one.
    fn add(&self, role: &str, fresh: impl FnOnce() -> Process) -> bool {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let first = announced.is_none();
        let process = announced.get_or_insert_with(fresh);
        if !process.roles.iter().any(|known| known == role) {
            process.roles.push(role.to_owned());
        }
        drop(announced);
        self.changed.notify_one();
        first
    }

    async fn keep_up(&self, store: &dyn Store) {
        while let Some(mut process) = self.process() {
            process.newer_at = Some(metrics().newer_at.get())
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Timestamp::from_millis(seconds * 1_000));
            if let Err(error) = store.announce(process).await {
                debug!("cannot announce this process in the store, retrying: {error}");
            }
            let _ = tokio::time::timeout(ANNOUNCE_INTERVAL, self.changed.notified()).await;
        }
    }
}

impl Engine {
    /// Announces this process with one more role, until [`Engine::stop`].
    pub(super) fn announce(&self, role: &str) {
        if !self.presence.add(role, || self.process()) {
            return;
        }
        let (presence, store) = (Arc::clone(&self.presence), Arc::clone(&self.store));
        let stop = self.roles.stop_token();
        self.roles.spawn("presence", OnPanic::Log, async move {
            stop.run_until_cancelled(presence.keep_up(store.as_ref())).await;
            if let Some(process) = presence.process()
                && let Err(error) = store.depart(&process.process_id).await
            {
                debug!("cannot remove this process's announcement, it will expire: {error}");
            }
        });
    }

    fn process(&self) -> Process {
        let settings = &self.settings;
        let added = self.models.iter().map(|(name, _)| name.clone());
        Process {
            process_id: uuid::Uuid::new_v4().simple().to_string(),
            roles: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            models: settings.models.keys().cloned().chain(added).collect(),
            flows: self.flows.ids(),
            functions: self.tools.ids(),
            secrets: settings.secrets.allowed().entries(),
            allow_private: settings.http.allow_private.clone(),
            connectors: settings.connectors.keys().cloned().collect(),
            format: format::current(),
            newer_at: None,
            started_at: Some(clock::now()),
        }
    }
}
