//! Which events of all sessions a reader sees: those that it asks for, of sessions in its scope.

use super::GatewayState;
use super::event_frames::SharedEvent;
use commands::access::{SessionAddress, address_of};
use commands::error::CommandError;
use moka::future::Cache;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use types::access::Scope;
use types::event::EventType;

/// How long the channel and the agent of a session are remembered. A session may move to another agent or channel.
const REMEMBERED: Duration = Duration::from_secs(5);
/// The most sessions that are remembered.
const MAX_SESSIONS: u64 = 50_000;

/// The channels and agents of sessions, shared by all readers. Cheap to clone.
#[derive(Clone)]
pub(super) struct Addresses(Cache<String, Option<Arc<SessionAddress>>>);

impl Addresses {
    pub(super) fn new() -> Self {
        Self(Cache::builder().max_capacity(MAX_SESSIONS).time_to_live(REMEMBERED).build())
    }

    async fn find(
        &self,
        queue: &dyn Queue,
        store: &dyn Store,
        session_id: &str,
    ) -> Result<Option<Arc<SessionAddress>>, Arc<CommandError>> {
        let load = async { Ok(address_of(queue, store, session_id).await?.map(Arc::new)) };
        self.0.try_get_with_by_ref(session_id, load).await
    }

    /// The agent of a session that another reader has looked up.
    async fn known_agent(&self, session_id: &str) -> Option<Arc<str>> {
        self.0.get(session_id).await.flatten().map(|address| address.agent_id.as_str().into())
    }
}

/// The events that a reader asks for. All conditions apply.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) types: Option<Vec<EventType>>,
    pub(super) session_id: Option<String>,
    pub(super) agent_id: Option<String>,
    pub(super) channel: Option<String>,
}

/// What one reader sees.
pub(super) struct Sight {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    addresses: Addresses,
    scope: Scope,
    selection: Selection,
}

impl Sight {
    pub(super) fn new(state: &GatewayState, scope: Scope, selection: Selection) -> Self {
        let (queue, store) = (Arc::clone(&state.queue), Arc::clone(&state.store));
        Self { queue, store, addresses: state.addresses.clone(), scope, selection }
    }

    /// Returns `Some` for an event that the reader sees, with the agent if it is known. Fails if the session cannot be
    /// looked up.
    pub(super) async fn shows(&self, event: &SharedEvent) -> Result<Option<Option<Arc<str>>>, Arc<CommandError>> {
        let (event, named) = (&event.logged, event.named_agent.clone());
        let Selection { types, session_id, agent_id, channel } = &self.selection;
        let asked = types.as_ref().is_none_or(|types| types.contains(&event.event_type))
            && session_id.as_ref().is_none_or(|asked| *asked == event.session_id)
            && channel.as_ref().is_none_or(|asked| *asked == event.channel);
        if !asked || !self.scope.covers_id(&event.session_id) {
            return Ok(None);
        }
        let is_limited = !self.scope.channels.is_empty() || !self.scope.agents.is_empty();
        if !is_limited && (agent_id.is_none() || named.is_some()) {
            let agent = match named {
                Some(named) => Some(named),
                None => self.addresses.known_agent(&event.session_id).await,
            };
            let wanted = agent_id.is_none() || agent_id.as_deref() == agent.as_deref();
            return Ok(wanted.then_some(agent));
        }
        let found = self.addresses.find(self.queue.as_ref(), self.store.as_ref(), &event.session_id).await?;
        let Some(address) = found else { return Ok(None) };
        // As for one session: its present channel and agent count.
        let covered = !is_limited || self.scope.covers(&event.session_id, &address.channel, &address.agent_id);
        let agent = named.unwrap_or_else(|| address.agent_id.as_str().into());
        let wanted = agent_id.as_ref().is_none_or(|asked| **asked == *agent);
        Ok((covered && wanted).then_some(Some(agent)))
    }
}
