//! Executes one node: its attempts with their pauses, its recoveries, its events, and the record of its failures.

use super::done::DoneNodes;
use super::failure::{NodeError, NodeFailure};
use super::recovery::{Failed, Recoveries, Rescue, rescue};
use super::resolved::{ResolvedNode, plain};
use super::round::{Changed, Round};
use super::run::text_of;
use super::scope::GraphRun;
use super::task;
use super::trouble::Trouble;
use super::values::{NodeValues, Sight};
use crate::action::fits;
use crate::journal::{Done, Durability, Label, StepError};
use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage::FAILED_KEY;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use decisions::reference::resolve::value;
use definitions::workflow::graph::GraphNode;
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use types::canonical;

/// The end of a node.
pub(super) enum NodeEnd {
    /// It is done.
    Done {
        output: Arc<Value>,
        /// The node after its changes by recoveries.
        changed: Option<Box<Changed>>,
    },
    /// The graph needs a replan.
    Troubled {
        troubles: Vec<Trouble>,
        /// The node after its changes by recoveries.
        changed: Option<Box<Changed>>,
    },
}

/// One node at its place.
pub(super) struct NodeRun<'n> {
    pub(super) context: &'n StageContext,
    pub(super) scope: &'n GraphRun<'n>,
    pub(super) node: &'n GraphNode,
    /// The node before its changes by recoveries.
    pub(super) original: &'n GraphNode,
    /// The changed node as in the plan; `None` before a change.
    pub(super) fields: Option<&'n Map<String, Value>>,
    /// True for a node of the graph itself, false for a node in a LOOP and for a stand-in.
    pub(super) is_top: bool,
    /// The digest of the first request that the node made in an earlier revision.
    pub(super) first_request: Option<&'n str>,
    pub(super) sight: Sight,
    /// The nodes from which taken edges lead here.
    pub(super) before: &'n [&'n str],
    pub(super) done: Arc<DoneNodes>,
}

/// Executes a node whose turn has come. The context of `node` is its own.
pub(super) async fn run(node: NodeRun<'_>) -> Result<NodeEnd, Failure> {
    let context = node.context;
    context.run().event_buffer.wait_for_room().await;
    context.emit(RunEventType::StageStarted, EventPayload::default());
    let (mut attempts, mut recoveries) = (Attempts::default(), Recoveries::default());
    let (mut round, mut changed, mut again) = (Round::of(node.node), None::<Box<Changed>>, None::<NodeFailure>);
    loop {
        let current = node.changed(changed.as_deref());
        let tried = match again.take() {
            Some(failure) => Err(failure.into()),
            None => current.until_done(&mut attempts, round).await,
        };
        let failure = match tried {
            Ok(output) => {
                current.completed(&output, attempts, None);
                return Ok(NodeEnd::Done { output: Arc::new(output), changed });
            }
            Err(NodeError::Failed(failure)) => failure,
            Err(NodeError::Troubled(troubles)) => return Ok(NodeEnd::Troubled { troubles, changed }),
            Err(NodeError::Journal(error)) => return Err(Failure::Journal(error)),
        };
        let failed = Failed { run: &current, failure, attempts: attempts.count };
        match Box::pin(rescue(&mut recoveries, &failed)).await? {
            Rescue::Again(next, change) => {
                round = next;
                changed = change.or(changed);
            }
            Rescue::Skip(output) => {
                current.completed(&output, attempts, Some(&failed.failure.code));
                return Ok(NodeEnd::Done { output, changed });
            }
            Rescue::FailedAgain(failure) => again = Some(failure),
            Rescue::Replan(trouble) => return Ok(NodeEnd::Troubled { troubles: vec![*trouble], changed }),
        }
    }
}

/// The attempts of a node so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempts {
    pub(super) count: u32,
}

impl NodeRun<'_> {
    /// The same node with its changes by recoveries.
    fn changed<'c>(&'c self, changed: Option<&'c Changed>) -> NodeRun<'c> {
        let node = changed.map_or(self.node, |changed| &changed.node);
        let fields = changed.map(|changed| &changed.fields).or(self.fields);
        let (sight, done) = (self.sight.clone(), Arc::clone(&self.done));
        NodeRun { node, fields, sight, done, ..*self }
    }

    /// Queues the event of the node's end. `skipped` is the code of the failure for which a recovery has skipped it.
    fn completed(&self, output: &Value, attempts: Attempts, skipped: Option<&str>) {
        let (text, kind) = (text_of(output), self.node.kind().as_str());
        let data = [("output", Value::from(&*text)), ("node_type", kind.into()), ("attempts", attempts.count.into())];
        let mut payload = EventPayload::data(data);
        if let Some(data) = payload.data.as_mut().filter(|_| skipped.is_some()) {
            data.insert("skipped".into(), true.into());
        }
        self.context.emit(RunEventType::StageCompleted, payload);
        if self.is_top && self.context.depth() == 0 {
            self.context.run().progress.completed(self.context, self.node, attempts.count, skipped);
        }
    }

    /// Tries until the node is done, or until the attempts of the round are used up.
    pub(super) async fn until_done(&self, attempts: &mut Attempts, round: Round) -> Result<Value, NodeError> {
        let most = attempts.count.saturating_add(round.most);
        loop {
            attempts.count += 1;
            let failure = match self.attempt_and_note(attempts.count).await {
                Err(NodeError::Failed(failure)) => failure,
                ended => return ended,
            };
            if !failure.transient || failure.fatal || attempts.count >= most {
                return Err(failure.into());
            }
            self.pause(attempts.count, round.pause).await;
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
        let failed = context.attempt(attempt).journal().record_of(FAILED_KEY);
        let begun = failed.map_or_else(|| context.journal().clock().now(), |failed| failed.at);
        context.wait_until(begun.plus(pause)).await;
    }

    /// `node`, this one or a form of it, with its references replaced.
    pub(super) fn resolve(&self, node: &GraphNode) -> Result<ResolvedNode, NodeFailure> {
        ResolvedNode::new(&node.spec, &self.sight, &|name| self.scope.is_secret(self.context, node, name))
    }

    /// Executes one attempt, and notes it if the run is replayed for a timeline.
    async fn attempt_and_note(&self, attempt: u32) -> Result<Value, NodeError> {
        let here = self.context.attempt(attempt);
        let resolved = self.resolve(self.node);
        let Some(notes) = self.context.run().notes.as_ref() else {
            return self.attempt(&here, resolved).await;
        };
        let input = resolved.as_ref().map(|resolved| resolved.recorded().to_string()).unwrap_or_default();
        let place = notes.start_attempt(&here, self.node.runnable(), attempt, &input);
        let ended = self.attempt(&here, resolved).await;
        match &ended {
            Ok(output) => notes.end(place, Ok(&text_of(output))),
            Err(NodeError::Failed(failure)) => notes.end(place, Err(&failure.of_run(&here, attempt))),
            Err(NodeError::Troubled(troubles)) => {
                let failures = troubles.iter().map(|trouble| trouble.failure.of_run(&here, trouble.attempts));
                failures.take(1).for_each(|failure| notes.end(place, Err(&failure)));
            }
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

    /// The idempotency key of the node's request. All attempts with the same request have the same key, and a request that
    /// a recovery or a replan has changed has one of its own.
    pub(super) fn idempotency_key(&self, key: &str, resolved: &ResolvedNode) -> String {
        // The same request has the same key in all revisions.
        let place = if self.is_top { self.scope.home.stage(self.node.id()) } else { self.context.clone() };
        let (first, digest) = (place.journal().idempotency_key(key), digest(resolved));
        let is_first = match self.first_request {
            Some(first) => first == digest,
            None => self.fields.is_none() || self.original_request().is_some_and(|original| original == digest),
        };
        if is_first { first } else { format!("{first}/{digest:.16}") }
    }

    /// The digest of the node's request before its changes.
    pub(super) fn original_request(&self) -> Option<String> {
        self.resolve(self.original).ok().map(|resolved| digest(&resolved))
    }

    /// The outputs of the nodes from which taken edges lead here, by node; that of a single one as it is.
    pub(super) fn reaching(&self) -> Value {
        reaching(&self.sight, self.before)
    }
}

/// The outputs of these nodes, by node; that of a single one as it is.
pub(super) fn reaching(sight: &Sight, before: &[&str]) -> Value {
    let output = |id: &str| sight.outputs.get(id).map_or(Value::Null, |output| output.as_ref().clone());
    match before {
        [] => Value::Null,
        [only] => output(only),
        several => several.iter().map(|id| ((*id).to_owned(), output(id))).collect(),
    }
}

/// The digest of a request.
fn digest(resolved: &ResolvedNode) -> String {
    canonical::hash(&resolved.recorded())
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
