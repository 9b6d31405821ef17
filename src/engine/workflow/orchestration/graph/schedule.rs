//! Runs the nodes of one level: the graph itself, or the body of a LOOP. A node starts as soon as all nodes before it have
//! ended, whatever slower siblings do.

use super::node::{self, GraphRun, NodeEnd};
use super::values::Sight;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use definitions::workflow::graph::condition::EdgeCondition;
use definitions::workflow::graph::{GraphEdge, GraphLevel};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

use super::values::NodeValues;

/// The end of a level.
pub(super) struct Ended {
    /// The sight with the outputs of all nodes.
    pub(super) sight: Sight,
    /// For each node whether it ran. The others were skipped.
    pub(super) ran: Vec<bool>,
    /// The nodes that ran and after which none ran, in order.
    pub(super) last: Vec<usize>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nodes before it have not ended.
    Waits,
    /// It has started.
    Runs,
    /// It has an output.
    Done,
    /// No edge that leads to it was taken.
    Skipped,
}

impl State {
    const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

/// The result of a node that has run.
type Ran = (usize, Result<NodeEnd, Failure>);

/// Runs a level until all its nodes have ended. The first failure stops the others.
pub(super) async fn run(
    context: &StageContext,
    scope: &GraphRun<'_>,
    level: &GraphLevel,
    sight: Sight,
) -> Result<Ended, Failure> {
    let mut schedule = Schedule::new(context, scope, level, sight);
    let (mut running, mut failed) = (FuturesUnordered::new(), None);
    loop {
        schedule.find_ready();
        while failed.is_none()
            && running.len() < scope.most
            && let Some(at) = schedule.ready.pop_front()
        {
            running.push(schedule.start(at));
        }
        let Some((at, ended)) = running.next().await else { break };
        match ended {
            Ok(end) => schedule.end(at, end),
            // Lets the other nodes end: after a halt their steps in flight must still be recorded, and a timeline needs
            // the state of every node.
            Err(failure) if context.run().notes.is_some() || context.journal().is_halted() => {
                failed.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    failed.map_or_else(|| Ok(schedule.ended()), Err)
}

/// The progress of a level.
struct Schedule<'s> {
    context: &'s StageContext,
    scope: &'s GraphRun<'s>,
    level: &'s GraphLevel,
    sight: Sight,
    states: Vec<State>,
    /// Nodes that can start, in the order in which they became ready.
    ready: VecDeque<usize>,
}

impl<'s> Schedule<'s> {
    fn new(context: &'s StageContext, scope: &'s GraphRun<'s>, level: &'s GraphLevel, sight: Sight) -> Self {
        let states = vec![State::Waits; level.nodes.len()];
        Self { context, scope, level, sight, states, ready: VecDeque::new() }
    }

    /// Finds the nodes that can start, and skips those to which no taken edge leads.
    fn find_ready(&mut self) {
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for at in 0..self.states.len() {
                if self.states[at] != State::Waits {
                    continue;
                }
                let incoming: Vec<&GraphEdge> = self.level.edges.iter().filter(|edge| edge.target == at).collect();
                if incoming.iter().any(|edge| !self.states[edge.source].has_ended()) {
                    continue;
                }
                if incoming.is_empty() || incoming.iter().any(|edge| self.is_taken(edge)) {
                    self.states[at] = State::Runs;
                    self.ready.push_back(at);
                } else {
                    self.skip(at);
                    changed = true;
                }
            }
        }
    }

    /// True if the node before the edge ran and the edge's condition holds.
    fn is_taken(&self, edge: &GraphEdge) -> bool {
        self.states[edge.source] == State::Done
            && match &edge.condition {
                None => true,
                Some(EdgeCondition::Branch(branch)) => {
                    let source = self.level.nodes[edge.source].id();
                    let output = self.sight.outputs.get(source);
                    output.is_some_and(|output| output["result"] == Value::Bool(*branch))
                }
                Some(EdgeCondition::Holds(condition)) => condition.holds(&NodeValues::of(&self.sight)),
            }
    }

    fn skip(&mut self, at: usize) {
        self.states[at] = State::Skipped;
        self.sight.add(self.level.nodes[at].id(), Arc::new(Value::Null));
    }

    fn start(&self, at: usize) -> BoxFuture<'s, Ran> {
        let node = &self.level.nodes[at];
        let before: Vec<&str> = self
            .level
            .edges
            .iter()
            .filter(|edge| edge.target == at && self.is_taken(edge))
            .map(|edge| self.level.nodes[edge.source].id())
            .collect();
        let (context, scope, sight) = (self.context.stage(node.id()), self.scope, self.sight.clone());
        Box::pin(async move { (at, node::run(&context, scope, node, sight, &before).await) })
    }

    /// Notes the end of a node.
    fn end(&mut self, at: usize, end: NodeEnd) {
        let NodeEnd::Output(output) = end;
        self.states[at] = State::Done;
        self.sight.add(self.level.nodes[at].id(), output);
    }

    fn ended(self) -> Ended {
        let ran: Vec<bool> = self.states.iter().map(|state| *state == State::Done).collect();
        let leads = |at: usize| self.level.edges.iter().any(|edge| edge.source == at && ran[edge.target]);
        let last = (0..ran.len()).filter(|at| ran[*at] && !leads(*at)).collect();
        Ended { sight: self.sight, ran, last }
    }
}
