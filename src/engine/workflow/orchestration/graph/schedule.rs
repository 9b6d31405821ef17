//! Runs the nodes of one level: the graph itself, or the body of a LOOP. A node starts as soon as all nodes before it have
//! ended, whatever slower siblings do.

use super::done::DoneNodes;
use super::node::{self, NodeEnd, NodeRun};
use super::progress::GraphProgress;
use super::reuse::{Carried, DoneNode, signature};
use super::round::Changed;
use super::scope::GraphRun;
use super::trouble::Trouble;
use super::values::{NodeValues, Sight};
use crate::journal::JournalError;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::node_type::NodeType;
use definitions::workflow::graph::condition::EdgeCondition;
use definitions::workflow::graph::{GraphEdge, GraphLevel, GraphNode};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The end of a level.
pub(super) enum LevelEnd {
    /// All nodes have ended.
    Ended(Ended),
    /// Nodes need a replan, and everything else that can run has ended.
    Quiet(Quiet),
}

/// A level whose nodes have all ended.
pub(super) struct Ended {
    /// The sight with the outputs of all nodes.
    pub(super) sight: Sight,
    /// For each node whether it ran. The others were skipped.
    pub(super) ran: Vec<bool>,
    /// The nodes that ran and after which none ran, in order.
    pub(super) last: Vec<usize>,
}

/// A level at its quiet point. It does not depend on the order in which nodes have ended.
pub(super) struct Quiet {
    /// The nodes that need a replan, in the order of the graph.
    pub(super) troubles: Vec<Trouble>,
    /// The nodes that recoveries have changed, as in the plan.
    pub(super) changed: Vec<(String, Map<String, Value>)>,
    /// The results for the next revision.
    pub(super) carried: Carried,
    pub(super) sight: Sight,
}

/// A level that is to run.
pub(super) struct LevelRun<'l> {
    pub(super) context: &'l StageContext,
    pub(super) scope: &'l GraphRun<'l>,
    pub(super) level: &'l GraphLevel,
    pub(super) sight: Sight,
    /// The results of the revision before; `None` for the body of a LOOP.
    pub(super) carried: Option<&'l Carried>,
    /// The nodes that are done, for running nodes.
    pub(super) done: Arc<DoneNodes>,
}

impl LevelRun<'_> {
    /// The states of the level's nodes, for the graph that is the outermost workflow.
    fn progress(&self) -> Option<&GraphProgress> {
        let is_root = self.carried.is_some() && self.context.depth() == 0;
        is_root.then(|| self.context.run().progress.as_ref())
    }

    /// A node of the level at `context`.
    fn node<'r>(
        &'r self,
        node: &'r GraphNode,
        context: &'r StageContext,
        sight: Sight,
        before: &'r [&'r str],
    ) -> NodeRun<'r> {
        let carried = self.carried;
        NodeRun {
            context,
            scope: self.scope,
            node,
            original: node,
            fields: None,
            is_top: carried.is_some(),
            first_request: carried.and_then(|carried| carried.first_requests.get(node.id())).map(String::as_str),
            sight,
            before,
            done: Arc::clone(&self.done),
        }
    }
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
    /// It needs a replan. The nodes behind it wait.
    Troubled,
}

impl State {
    const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

/// The result of a node that has run.
type Ran = (usize, Result<NodeEnd, Failure>);

/// Runs a level until everything that can run has ended. The first failure of the run stops the others.
pub(super) async fn run(level: LevelRun<'_>) -> Result<LevelEnd, Failure> {
    let context = level.context;
    let mut schedule = Schedule::new(&level);
    if let Some(progress) = level.progress() {
        progress.begin(level.level);
    }
    let (mut running, mut working, mut failed) = (FuturesUnordered::new(), 0, None);
    loop {
        schedule.find_ready();
        while failed.is_none()
            && let Some(at) = schedule.next_ready(working)
        {
            working += usize::from(!schedule.only_waits(at));
            running.push(schedule.start(at));
        }
        let Some((at, ended)) = running.next().await else { break };
        working -= usize::from(!schedule.only_waits(at));
        schedule.note_failure(at, &ended);
        match ended {
            Ok(end) => schedule.end(at, end),
            // Lets the other nodes end: after a halt their steps in flight must still be recorded, and a timeline needs
            // the state of every node.
            Err(Failure::Journal(error)) if context.journal().is_halted() => {
                // Nodes that wait for a pause do not end. The turn ends with this error when all others have ended.
                context.run().pauses.note_failure(error);
                failed.get_or_insert(Failure::Journal(JournalError::Halted));
            }
            Err(failure) if context.run().notes.is_some() || context.journal().is_halted() => {
                failed.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    drop(running);
    failed.map_or_else(|| Ok(schedule.level_end()), Err)
}

/// The progress of a level.
struct Schedule<'s> {
    run: &'s LevelRun<'s>,
    level: &'s GraphLevel,
    sight: Sight,
    states: Vec<State>,
    /// The nodes that recoveries have changed, by place.
    changed: BTreeMap<usize, Box<Changed>>,
    troubles: BTreeMap<usize, Vec<Trouble>>,
    /// Nodes that can start, in the order in which they became ready.
    ready: VecDeque<usize>,
}

impl<'s> Schedule<'s> {
    fn new(run: &'s LevelRun<'s>) -> Self {
        let states = vec![State::Waits; run.level.nodes.len()];
        let (level, sight) = (run.level, run.sight.clone());
        let (changed, troubles, ready) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { run, level, sight, states, changed, troubles, ready }
    }

    /// Finds the nodes that can start. Skips those to which no taken edge leads, and takes over results of the revision
    /// before.
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
                if !incoming.is_empty() && !incoming.iter().any(|edge| self.is_taken(edge)) {
                    self.skip(at);
                    changed = true;
                } else if let Some(output) = self.kept(at) {
                    self.set_done(at, output);
                    changed = true;
                } else {
                    self.states[at] = State::Runs;
                    self.ready.push_back(at);
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
        let id = self.level.nodes[at].id();
        if let Some(progress) = self.run.progress() {
            progress.skipped(id);
        }
        self.sight.add(id, Arc::new(Value::Null));
        if let Some(notes) = self.run.context.run().notes.as_ref() {
            notes.skipped(&self.run.context.stage(id), self.level.nodes[at].runnable());
        }
    }

    /// The ids of the nodes from which taken edges lead to this one.
    fn before(&self, at: usize) -> Vec<&'s str> {
        let taken = self.level.edges.iter().filter(|edge| edge.target == at && self.is_taken(edge));
        taken.map(|edge| self.level.nodes[edge.source].id()).collect()
    }

    /// The output of the node in the revision before, if nothing has changed on which it depends.
    fn kept(&self, at: usize) -> Option<Arc<Value>> {
        let node = &self.level.nodes[at];
        let known = self.run.carried?.done.get(node.id())?;
        (self.signature(at, node)? == known.signature).then(|| Arc::clone(&known.output))
    }

    fn signature(&self, at: usize, node: &GraphNode) -> Option<Value> {
        let resolved = self.run.node(node, self.run.context, self.sight.clone(), &[]).resolve(node).ok()?;
        Some(signature(node, &resolved, &self.sight, &self.before(at)))
    }

    /// The next node that can start, while `working` nodes do more than wait.
    fn next_ready(&mut self, working: usize) -> Option<usize> {
        let has_place = working < self.run.scope.most;
        let place = self.ready.iter().position(|at| has_place || self.only_waits(*at))?;
        self.ready.remove(place)
    }

    /// True for a node that takes none of the places for concurrent nodes.
    fn only_waits(&self, at: usize) -> bool {
        matches!(self.level.nodes[at].kind(), NodeType::Wait | NodeType::Ask)
    }

    fn start(&self, at: usize) -> BoxFuture<'s, Ran> {
        let (run, node, sight, before) = (self.run, &self.level.nodes[at], self.sight.clone(), self.before(at));
        let revision = if run.carried.is_some() { run.scope.revision } else { 0 };
        let context = run.context.stage(node.id()).revised(revision);
        if let Some(progress) = run.progress() {
            progress.started(node.id());
        }
        Box::pin(async move { (at, node::run(run.node(node, &context, sight, &before)).await) })
    }

    /// Notes a failure that has ended the run, or needs a replan.
    fn note_failure(&self, at: usize, ended: &Result<NodeEnd, Failure>) {
        let (node, Some(progress)) = (&self.level.nodes[at], self.run.progress()) else { return };
        let context = self.run.context.stage(node.id()).revised(self.run.scope.revision);
        match ended {
            Ok(NodeEnd::Done { .. }) => {}
            Ok(NodeEnd::Troubled { troubles, .. }) => {
                let code = troubles.first().map(|trouble| trouble.failure.code.clone());
                let attempts = troubles.first().map_or(0, |trouble| trouble.attempts);
                progress.failed(&context, node, attempts, code);
            }
            Err(failure) => progress.ended_run(&context, node, failure),
        }
    }

    /// Notes the end of a node.
    fn end(&mut self, at: usize, end: NodeEnd) {
        let changed = match end {
            NodeEnd::Done { output, changed } => {
                self.set_done(at, output);
                changed
            }
            NodeEnd::Troubled { troubles, changed } => {
                self.states[at] = State::Troubled;
                self.troubles.insert(at, troubles);
                changed
            }
        };
        if let Some(changed) = changed {
            self.changed.insert(at, changed);
        }
    }

    fn set_done(&mut self, at: usize, output: Arc<Value>) {
        let id = self.level.nodes[at].id();
        self.states[at] = State::Done;
        self.run.done.add(id, Arc::clone(&output));
        self.sight.add(id, output);
    }

    fn level_end(self) -> LevelEnd {
        if !self.troubles.is_empty() {
            return LevelEnd::Quiet(self.quiet());
        }
        let ran: Vec<bool> = self.states.iter().map(|state| *state == State::Done).collect();
        let leads = |at: usize| self.level.edges.iter().any(|edge| edge.source == at && ran[edge.target]);
        let last = (0..ran.len()).filter(|at| ran[*at] && !leads(*at)).collect();
        LevelEnd::Ended(Ended { sight: self.sight, ran, last })
    }

    fn quiet(self) -> Quiet {
        let carried = if self.run.carried.is_some() { self.carried() } else { Carried::default() };
        let changed =
            self.changed.iter().map(|(at, changed)| (self.level.nodes[*at].id().to_owned(), changed.fields.clone()));
        let changed = changed.collect();
        let troubles = self.troubles.into_values().flatten().collect();
        Quiet { troubles, changed, carried, sight: self.sight }
    }

    /// The results for the next revision.
    fn carried(&self) -> Carried {
        let mut carried = Carried::default();
        carried.first_requests.extend(self.run.carried.into_iter().flat_map(|earlier| earlier.first_requests.clone()));
        for (at, original) in self.level.nodes.iter().enumerate() {
            let (id, state) = (original.id().to_owned(), self.states[at]);
            let node = self.changed.get(&at).map_or(original, |changed| &changed.node);
            if state == State::Done
                && let (Some(signature), Some(output)) = (self.signature(at, node), self.sight.outputs.get(&id))
            {
                carried.done.insert(id.clone(), DoneNode { signature, output: Arc::clone(output) });
            }
            if matches!(state, State::Done | State::Troubled)
                && !carried.first_requests.contains_key(&id)
                && let Some(first) =
                    self.run.node(original, self.run.context, self.sight.clone(), &[]).original_request()
            {
                carried.first_requests.insert(id, first);
            }
        }
        carried
    }
}
