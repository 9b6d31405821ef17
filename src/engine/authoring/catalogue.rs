//! The catalogue: the installed items that an artefact can use. A capability whose provider is not in the catalogue is
//! a gap.

use super::Workbench;
use crate::admission::WorkersOverview;
use crate::execution::stored;
use crate::knowledge::words::terms;
pub use crate::model::dialogue::{Catalogue, Item};
use decisions::node_type::NodeType;
use definitions::agent::AgentRecord;
use definitions::agent::validate::BUILTINS;
use definitions::workflow::definition::WorkflowRecord;
use moka::sync::Cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use storage::store::StoreError;
use types::canonical;

/// The largest number of items.
pub const MAX_ITEMS: usize = 200;
/// The largest size of all items, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The largest number of characters of a line.
const MAX_LINE: usize = 200;

/// The words of items, by their texts: every step of a dialogue asks for those of all items.
static WORDS: LazyLock<Cache<String, Arc<[String]>>> = LazyLock::new(|| Cache::new(10_000));

/// The catalogue for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listing {
    /// The items.
    pub items: Vec<ListedItem>,
    /// md5 of the canonical JSON of the items.
    pub hash: String,
}

/// An item, for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedItem {
    /// The id, such as `node.HTTP`, `tool.mail.gmail` or `workflow.report`.
    pub id: String,
    /// The part of the id before the first dot.
    pub kind: String,
    /// The rest of the id.
    pub title: String,
    /// The purpose, in one line.
    pub description: String,
}

impl Item {
    fn new(kind: &str, name: &str, line: &str) -> Self {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = line.char_indices().nth(MAX_LINE).map_or(line.len(), |(end, _)| end);
        Self { id: format!("{kind}.{name}"), kind: kind.to_owned(), line: line[..end].to_owned() }
    }

    fn bytes(&self) -> usize {
        self.id.len() + self.kind.len() + self.line.len()
    }
}

impl Catalogue {
    /// Reads the installed items. Beyond [`MAX_ITEMS`] or [`MAX_BYTES`] it keeps the items that are closest to `words`,
    /// such as the requirements.
    pub async fn gather(bench: &Workbench, words: &str) -> Result<Self, StoreError> {
        let store = bench.store.as_ref();
        let (crew, agents, workflows) =
            futures::try_join!(WorkersOverview::from_store(store), stored::agents(store), stored::workflows(store))?;
        let ids = workflows.good.iter().map(|workflow| workflow.id().to_owned());
        let known = crew.checked_with(ids, &bench.known);
        let mut items = basics(&bench.node_types);
        items.extend(BUILTINS.iter().map(|name| Item::new("builtin", name, "A tool of the program: the current time")));
        items.extend(known.functions().iter().map(|id| Item::new("function", id, "A function of this installation")));
        agents.good.iter().for_each(|agent| of_agent(agent, &mut items));
        items.extend(workflows.good.iter().map(of_workflow));
        let flows = if crew.is_empty() { bench.flows.clone() } else { crew.flows() };
        items.extend(flows.iter().map(|id| Item::new("flow", id, "A flow of this installation")));
        let connectors = known.connectors().unwrap_or_default();
        items.extend(connectors.iter().map(|name| Item::new("connector", name, "A database for DATABASE nodes")));
        let mut seen = HashSet::new();
        items.retain(|item| seen.insert(item.id.clone()));
        Ok(Self { items: nearest(items, words) })
    }

    /// The ids of all items.
    pub fn ids(&self) -> HashSet<String> {
        self.items.iter().map(|item| item.id.clone()).collect()
    }

    /// The catalogue for clients.
    pub fn listing(self) -> Listing {
        let listed = |item: Item| {
            let title = item.id.split_once('.').map_or(item.id.as_str(), |(_, title)| title).to_owned();
            ListedItem { id: item.id, kind: item.kind, title, description: item.line }
        };
        let items: Vec<ListedItem> = self.items.into_iter().map(listed).collect();
        let hash = canonical::hash(&json!(items));
        Listing { items, hash }
    }
}

/// The triggers, and the types of nodes.
fn basics(node_types: &[NodeType]) -> Vec<Item> {
    let triggers = [
        ("message", "Begins with a user's message"),
        ("api", "Begins with a call of the HTTP API, which another system can make"),
        ("timer", "Agents: acts some time after the last message"),
    ];
    let triggers = triggers.iter().map(|(name, line)| Item::new("trigger", name, line));
    triggers.chain(node_types.iter().map(|kind| Item::new("node", kind.as_str(), node_line(*kind)))).collect()
}

const fn node_line(kind: NodeType) -> &'static str {
    match kind {
        NodeType::Llm => "Asks a model, which answers with a text or with JSON",
        NodeType::Http => "Calls an HTTP API",
        NodeType::Python => "Runs a Python script in a sandbox",
        NodeType::Database => "Runs one SQL statement on a connector",
        NodeType::Condition => "Chooses between the branches `true` and `false`",
        NodeType::Loop => "Repeats nodes for each item of a list, or while a condition holds",
        NodeType::Start => "Marks the beginning",
        NodeType::End => "Makes the output",
        NodeType::Runnable => "Runs a task agent, a workflow or a flow",
        NodeType::Ask => "Asks a person and waits for the answer",
        NodeType::Wait => "Waits for a duration or until a time",
    }
}

/// Adds a task agent itself, and the actions of any agent.
fn of_agent(agent: &Arc<AgentRecord>, items: &mut Vec<Item>) {
    let config = &agent.config;
    if let Some(prompt) = &config.system_prompt {
        let line = if config.name.is_empty() { prompt } else { &format!("{}: {prompt}", config.name) };
        items.push(Item::new("agent", &config.id, line));
    }
    let named = |id: &str| format!("{}.{id}", config.id);
    items.extend(config.tools.iter().map(|tool| Item::new("tool", &named(&tool.id), &tool.description)));
    items.extend(config.skills.iter().map(|skill| Item::new("skill", &named(&skill.id), &skill.description)));
}

fn of_workflow(workflow: &Arc<WorkflowRecord>) -> Item {
    let name = workflow.document.get("name").and_then(|name| name.as_str()).unwrap_or_default();
    let description = workflow.workflow.description.as_str();
    let line = [name, description].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    Item::new("workflow", workflow.id(), &line)
}

/// The words of an item's id and line.
fn words_of(item: &Item) -> Arc<[String]> {
    let text = format!("{} {}", item.id.replace(['.', '_', '-'], " "), item.line);
    WORDS.get_with_by_ref(&text, || terms(&text).into())
}

/// Returns the items, within the limits, that share the most and the rarest words with `words`. Keeps their order, and
/// all triggers and nodes.
fn nearest(items: Vec<Item>, words: &str) -> Vec<Item> {
    if items.len() <= MAX_ITEMS && items.iter().map(Item::bytes).sum::<usize>() <= MAX_BYTES {
        return items;
    }
    let wanted: HashSet<String> = terms(words).into_iter().collect();
    let shared =
        |item: &Item| words_of(item).iter().filter(|word| wanted.contains(*word)).cloned().collect::<Vec<String>>();
    let shared: Vec<Vec<String>> = items.iter().map(shared).collect();
    let mut having: HashMap<&str, u64> = HashMap::new();
    shared.iter().flatten().for_each(|word| *having.entry(word).or_default() += 1);
    // A word of only one item counts as much as a word of all items, times the number of items.
    let weight = |word: &String| items.len() as u64 / having.get(word.as_str()).copied().unwrap_or(1).max(1);
    let is_basic = |item: &Item| matches!(item.kind.as_str(), "trigger" | "node" | "builtin");
    let mut order: Vec<(usize, bool, u64)> =
        items.iter().enumerate().map(|(at, item)| (at, is_basic(item), shared[at].iter().map(weight).sum())).collect();
    order.sort_by_key(|(at, basic, score)| (!basic, Reverse(*score), *at));
    let (mut bytes, mut kept) = (0, HashSet::new());
    for (at, ..) in order.into_iter().take(MAX_ITEMS) {
        bytes += items[at].bytes();
        if bytes > MAX_BYTES {
            break;
        }
        kept.insert(at);
    }
    items.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, item)| item).collect()
}
