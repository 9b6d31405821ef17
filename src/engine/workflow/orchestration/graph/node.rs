//! Executes one node: its attempts with their pauses, its events, and the record of its failures.

use super::failure::{NodeError, NodeFailure};
use super::resolved::{ResolvedNode, plain};
use super::run::text_of;
use super::task;
use super::values::{NodeValues, Sight};
use crate::action::fits;
use crate::journal::{Done, Durability, Label, StepError};
use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage::FAILED_KEY;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use decisions::reference::resolve::value;
use definitions::agent::AgentRecord;
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use types::agent::coordinator::CoordinatorConfig;
use types::host_pattern::HostPattern;
use url::Url;

/// The pause between two attempts unless `retry_delay` is given.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The graph that runs.
pub(super) struct GraphRun<'g> {
    pub(super) graph: &'g GraphDefinition,
    /// How many nodes of a level run concurrently.
    pub(super) most: usize,
}

impl GraphRun<'_> {
    /// The agent that the graph names as its coordinator.
    pub(super) fn coordinator(&self, here: &StageContext) -> Option<Arc<AgentRecord>> {
        here.run().resolved.agent(self.graph.coordinator.as_deref()?).cloned()
    }

    /// True if the name stands for a secret that the node may send. The nodes of a graph without a coordinator are the
    /// operator's own, and may use what the operator allows. A coordinator may change nodes, so its graph has the secrets of
    /// the agent file only, each for its hosts.
    pub(super) fn is_secret(&self, here: &StageContext, node: &GraphNode, name: &str) -> bool {
        let allowed = match &self.graph.coordinator {
            None => true,
            Some(_) => self.coordinator(here).is_some_and(|agent| {
                let url = node.spec.config.get("url").and_then(Value::as_str).unwrap_or_default();
                agent.config.coordinator.as_ref().is_some_and(|limits| covers(limits, name, url))
            }),
        };
        allowed && here.services().http.secret(name).is_ok()
    }
}

/// True if the agent file gives the secret to the host of the URL.
fn covers(limits: &CoordinatorConfig, name: &str, url: &str) -> bool {
    let secret = limits.secrets.iter().find(|secret| secret.name == name);
    let host = Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
    secret.zip(host).is_some_and(|(secret, host)| {
        secret.hosts.iter().filter_map(|pattern| HostPattern::parse(pattern).ok()).any(|pattern| pattern.covers(&host))
    })
}

/// The end of a node.
pub(super) enum NodeEnd {
    /// Its output.
    Output(Arc<Value>),
}

/// One node at its place.
pub(super) struct NodeRun<'n> {
    pub(super) context: &'n StageContext,
    pub(super) scope: &'n GraphRun<'n>,
    pub(super) node: &'n GraphNode,
    pub(super) sight: Sight,
    /// The nodes from which taken edges lead here.
    pub(super) before: &'n [&'n str],
}

/// Executes a node whose turn has come. `context` is the node's own.
pub(super) async fn run(
    context: &StageContext,
    scope: &GraphRun<'_>,
    node: &GraphNode,
    sight: Sight,
    before: &[&str],
) -> Result<NodeEnd, Failure> {
    context.run().event_buffer.wait_for_room().await;
    context.emit(RunEventType::StageStarted, EventPayload::default());
    let node = NodeRun { context, scope, node, sight, before };
    let mut attempts = Attempts { count: 0, last: None };
    match node.until_done(&mut attempts).await {
        Ok(output) => {
            let text = text_of(&output);
            let kind = node.node.kind().as_str();
            let data =
                [("output", Value::from(&*text)), ("node_type", kind.into()), ("attempts", attempts.count.into())];
            context.emit(RunEventType::StageCompleted, EventPayload::data(data));
            Ok(NodeEnd::Output(Arc::new(output)))
        }
        Err(NodeError::Journal(error)) => Err(Failure::Journal(error)),
        Err(NodeError::Failed(failure)) => Err(failure.of_run(context, attempts.count)),
    }
}

/// The attempts of a node so far.
struct Attempts {
    count: u32,
    last: Option<NodeFailure>,
}

impl NodeRun<'_> {
    /// Tries until the node is done, or until its attempts are used up.
    async fn until_done(&self, attempts: &mut Attempts) -> Result<Value, NodeError> {
        let retry = self.node.spec.retry_config.as_ref();
        let retries = retry.and_then(|retry| retry.max_retries).unwrap_or(0).clamp(0, 100);
        let most = 1 + u32::try_from(retries).unwrap_or(0);
        let pause = retry.and_then(|retry| Duration::try_from_secs_f64(retry.retry_delay?).ok()).unwrap_or(RETRY_DELAY);
        loop {
            attempts.count += 1;
            let failure = match self.attempt_and_note(attempts.count).await {
                Err(NodeError::Failed(failure)) => failure,
                ended => return ended,
            };
            if !failure.transient || failure.fatal || attempts.count >= most {
                return Err(failure.into());
            }
            attempts.last = Some(failure);
            self.pause(attempts.count, pause).await;
        }
    }

    /// Waits for the rest of the pause after an attempt. A repeated run counts from the recorded failure, so it does not
    /// wait a second time.
    async fn pause(&self, attempt: u32, pause: Duration) {
        let context = self.context;
        let is_tried = !context.attempt(attempt + 1).journal().recorded().is_empty();
        if context.run().notes.is_some() || is_tried {
            return;
        }
        let clock = context.journal().clock().clone();
        let failed = context.attempt(attempt).journal().record_of(FAILED_KEY);
        let rest = failed.map_or(pause, |failed| pause.saturating_sub(failed.at.until(clock.now())));
        clock.sleep(rest).await;
    }

    /// Executes one attempt, and notes it if the run is replayed for a timeline.
    async fn attempt_and_note(&self, attempt: u32) -> Result<Value, NodeError> {
        let here = self.context.attempt(attempt);
        let resolved =
            ResolvedNode::new(&self.node.spec, &self.sight, &|name| self.scope.is_secret(&here, self.node, name));
        let Some(notes) = self.context.run().notes.as_ref() else {
            return self.attempt(&here, resolved).await;
        };
        let input = resolved.as_ref().map(|resolved| resolved.recorded().to_string()).unwrap_or_default();
        let place = notes.start(&here, self.node.runnable(), attempt, &input);
        let ended = self.attempt(&here, resolved).await;
        match &ended {
            Ok(output) => notes.end(place, Ok(&text_of(output))),
            Err(NodeError::Failed(failure)) => notes.end(place, Err(&failure.of_run(&here, attempt))),
            Err(NodeError::Journal(_)) => {}
        }
        ended
    }

    /// Executes one attempt. Its failure is recorded, so that a repeated run continues in the same way.
    async fn attempt(
        &self,
        here: &StageContext,
        resolved: Result<ResolvedNode, NodeFailure>,
    ) -> Result<Value, NodeError> {
        if here.journal().is_recorded(FAILED_KEY) {
            return Err(record_failure(here, None).await);
        }
        here.run().counters.count_stage(here.depth()).map_err(|limit| NodeFailure::fatal("LIMIT", limit))?;
        let ended = match resolved {
            Ok(resolved) => self.perform(here, &resolved).await,
            Err(failure) => Err(failure.into()),
        };
        match ended {
            Err(NodeError::Failed(failure)) if !failure.fatal => Err(record_failure(here, Some(failure)).await),
            ended => ended,
        }
    }

    async fn perform(&self, here: &StageContext, resolved: &ResolvedNode) -> Result<Value, NodeError> {
        let work = task::perform(self, here, resolved);
        let raw = match task::timeout(self.node.kind(), resolved) {
            None => work.await?,
            Some(limit) => here.journal().clock().timeout(limit, work).await.ok_or_else(|| {
                let limit = types::duration::format(limit);
                NodeFailure::transient("TIMEOUT", format!("the node took longer than {limit}; raise its `timeout`"))
            })??,
        };
        let output = self.mapped(raw, resolved)?;
        if !fits(&output, task::MAX_OUTPUT_BYTES) {
            let message = format!("the output has more than {} bytes; return less", task::MAX_OUTPUT_BYTES);
            return Err(NodeFailure::permanent("OUTPUT_TOO_LARGE", message).into());
        }
        Ok(output)
    }

    /// The output after `output_mapping`.
    fn mapped(&self, raw: Value, resolved: &ResolvedNode) -> Result<Value, NodeFailure> {
        let Some(mapping) = self.node.spec.output_mapping.as_ref().filter(|mapping| !mapping.is_empty()) else {
            return Ok(raw);
        };
        let values = NodeValues { own: Some(&raw), mapping: &resolved.mapping, ..NodeValues::of(&self.sight) };
        let fields = mapping.iter().map(|(name, written)| Ok((name.clone(), plain(value(written, &values)?))));
        Ok(Value::Object(fields.collect::<Result<Map<_, _>, NodeFailure>>()?))
    }

    /// The idempotency key of a step, which is the same in all attempts.
    pub(super) fn idempotency_key(&self, key: &str) -> String {
        self.context.journal().idempotency_key(key)
    }

    /// The outputs of the nodes from which taken edges lead here, by node; that of a single one as it is.
    pub(super) fn reaching(&self) -> Value {
        let output = |id: &str| self.sight.outputs.get(id).map_or(Value::Null, |output| output.as_ref().clone());
        match self.before {
            [] => Value::Null,
            [only] => output(only),
            several => several.iter().map(|id| ((*id).to_owned(), output(id))).collect(),
        }
    }
}

/// Records the failure of an attempt, or returns the recorded one.
async fn record_failure(context: &StageContext, failure: Option<NodeFailure>) -> NodeError {
    let (journal, label) = (context.journal(), Label { kind: "stage", target: context.path() });
    let unknown = || NodeFailure::permanent("FAILED", "the node failed");
    let step = journal.step(FAILED_KEY, label, Durability::OnReturn, FAILED_KEY, |_| async {
        Ok::<_, Infallible>(Done { ok: false, ..Done::ok(failure.unwrap_or_else(unknown)) })
    });
    match Box::pin(step).await {
        Ok(stepped) => NodeError::Failed(stepped.output),
        Err(StepError::Journal(error)) => error.into(),
        Err(StepError::Operation(never)) => match never {},
    }
}
