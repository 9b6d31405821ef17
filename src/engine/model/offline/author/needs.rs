//! The needs of the slots, and the catalogue items that cover them. An external system is covered only by an item that
//! names it.

use super::Author;
use super::alternatives::{LEAVE_OUT, approach};
use super::slots::{DESTINATION, INPUT_SOURCE, KNOWLEDGE, LOGIC, PURPOSE, Slots, TRIGGER};
use super::words::{
    ACTION, ADDRESS, JOINT, OUTPUT, SCHEDULE, TEXT_WORK, ZH_OUTPUT, brief, first, has, is_mail, names, trimmed,
};
use crate::knowledge::words::terms;
use crate::model::dialogue::Item;
use types::authoring::state::ALTERNATIVE;

/// The longest name of a need, in characters. The name is a part of the key of a fact.
pub(super) const MAX_NEED: usize = 60;
/// Prefix of the key of the fact that contains the address for a need.
pub(super) const ADDRESS_OF: &str = "address:";
/// The item for work on texts.
pub(super) const LLM: &str = "node.LLM";
/// The item for calls of an address.
pub(super) const HTTP: &str = "node.HTTP";

/// The place of a need in the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Starts the work.
    Start,
    /// Supplies the input.
    Input,
    /// Is a part of the work.
    Work,
    /// Is work on a text.
    Text,
    /// Receives the result.
    Output,
}

/// What covers a need.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Provider<'a> {
    /// An item of the catalogue.
    Item(&'a Item),
    /// A call of the user's address; empty until the user has given it.
    Address(&'a str),
}

impl Provider<'_> {
    /// The id in the catalogue.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Item(item) => &item.id,
            Self::Address(_) => HTTP,
        }
    }
}

/// A need of the artefact.
#[derive(Clone, Debug)]
pub(super) struct Need<'a> {
    /// The name: a part of the user's words.
    pub(super) need: String,
    /// The place in the work.
    pub(super) role: Role,
    /// What covers it; `None` for a gap.
    pub(super) provider: Option<Provider<'a>>,
}

impl<'a> Author<'a> {
    /// Returns the needs, in the order of the work.
    pub(super) fn needs(&self) -> Vec<Need<'a>> {
        if self.base().is_some() {
            // The document to change already contains everything that it needs.
            return Vec::new();
        }
        let mut found = if self.is_agent() { self.agent_needs(&self.known()) } else { self.workflow_needs() };
        found.retain(|need| self.chosen(&need.need).is_none_or(|chosen| chosen != LEAVE_OUT));
        for need in &mut found {
            if let Some(chosen) = self.chosen(&need.need) {
                need.provider = self.replacement(&need.need, chosen);
                if need.provider.as_ref().is_some_and(|provider| provider.id() == LLM) {
                    need.role = Role::Text;
                }
            }
        }
        found.sort_by_key(|need| need.role);
        found
    }

    fn workflow_needs(&self) -> Vec<Need<'a>> {
        let mut found: Vec<Need<'a>> = Vec::new();
        let places =
            [(TRIGGER, Role::Start), (INPUT_SOURCE, Role::Input), (DESTINATION, Role::Output), (LOGIC, Role::Work)];
        for (key, role) in places {
            let value = self.fact(key);
            if let Some(item) = self.item(value) {
                found.push(self.need(value, role, Some(item)));
                continue;
            }
            let before = found.len();
            for name in names(value, key == LOGIC) {
                let item = self.named(&name, value);
                if !is_known(&found, &name, item) {
                    found.push(self.need(&name, role, item));
                }
            }
            let has_names =
                found.len() > before || (key == LOGIC && found.iter().any(|need| need.role == Role::Output));
            match key {
                TRIGGER if !has_names => found.push(self.start(value)),
                LOGIC if has(&TEXT_WORK, value) => found.push(self.need(own_work(value), Role::Text, self.item(LLM))),
                LOGIC if !has_names && !value.is_empty() => {
                    found.push(self.need(value, Role::Work, self.nearest(value).first().copied()))
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the need for the start of a workflow. Calls start it; the engine watches no clock and no mailbox for it.
    fn start(&self, value: &str) -> Need<'a> {
        if value.is_empty() {
            return self.need(&self.text("启动", "start"), Role::Start, self.item("trigger.api"));
        }
        let lower = value.to_lowercase();
        let is_message = ["用户", "客户", "消息", "user", "customer", "message", "api", "调用"]
            .iter()
            .any(|word| lower.contains(word));
        let id = if is_message && first(&SCHEDULE, value).is_none() { "trigger.message" } else { "" };
        self.need(value, Role::Start, self.item(id).or_else(|| self.nearest(value).first().copied()))
    }

    /// Returns the needs of an agent besides its text: the tools for a purpose that is more than answering.
    pub(super) fn agent_needs(&self, slots: &Slots) -> Vec<Need<'a>> {
        let purpose = slots.get(PURPOSE).map_or("", String::as_str);
        if !has(&ACTION, purpose) {
            return Vec::new();
        }
        let named = names(purpose, true);
        if named.is_empty() {
            let found = self.nearest(purpose).first().copied();
            // An agent with facts can answer without a tool.
            let is_needed = found.is_some() || !slots.contains_key(KNOWLEDGE);
            return is_needed.then(|| self.need(purpose, Role::Work, found)).into_iter().collect();
        }
        named.iter().map(|name| self.need(name, Role::Work, self.named(name, purpose))).collect()
    }

    fn need(&self, need: &str, role: Role, item: Option<&'a Item>) -> Need<'a> {
        Need { need: brief(need, MAX_NEED), role, provider: item.map(Provider::Item) }
    }

    /// Returns the approach of the alternative that was chosen for a need.
    fn chosen(&self, need: &str) -> Option<&'a str> {
        let chosen = self.fact(&format!("{ALTERNATIVE}{need}"));
        (!chosen.is_empty()).then(|| approach(chosen))
    }

    fn replacement(&self, need: &str, chosen: &str) -> Option<Provider<'a>> {
        if chosen == HTTP {
            return Some(Provider::Address(self.fact(&format!("{ADDRESS_OF}{need}"))));
        }
        self.item(chosen).map(Provider::Item)
    }

    /// Returns the needs that an address covers and whose address is not known yet.
    pub(super) fn without_address(&self) -> Vec<Need<'a>> {
        let is_open = |need: &Need<'_>| need.provider == Some(Provider::Address(""));
        self.needs().into_iter().filter(is_open).collect()
    }

    /// The item with this id.
    pub(super) fn item(&self, id: &str) -> Option<&'a Item> {
        self.facts.catalogue.items.iter().find(|item| !id.is_empty() && item.id == id)
    }

    /// Returns the usable item that names a system, preferably the one closest to the words around it.
    fn named(&self, name: &str, around: &str) -> Option<&'a Item> {
        let names_it = |item: &&Item| contains_word(&shown(item).to_lowercase(), &name.to_lowercase());
        let wanted = terms(around);
        let shared = |item: &Item| terms(&shown(item)).iter().filter(|word| wanted.contains(word)).count();
        self.usable()
            .filter(names_it)
            .fold(None, |best: Option<(&Item, usize)>, item| match best {
                Some((_, most)) if most >= shared(item) => best,
                _ => Some((item, shared(item))),
            })
            .map(|(item, _)| item)
    }

    /// Returns the usable items that share words with a text, those with the most shared words first.
    pub(super) fn nearest(&self, text: &str) -> Vec<&'a Item> {
        let wanted = terms(text);
        let shared = |item: &Item| terms(&shown(item)).iter().filter(|word| wanted.contains(word)).count();
        let mut found: Vec<_> =
            self.usable().map(|item| (shared(item), item)).filter(|(shared, _)| *shared > 0).collect();
        found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
        found.into_iter().map(|(_, item)| item).collect()
    }

    /// Returns the items from which a step can be written.
    fn usable(&self) -> impl Iterator<Item = &'a Item> {
        self.facts.catalogue.items.iter().filter(|item| match item.kind.as_str() {
            "tool" | "skill" if self.is_agent() => self.facts.parts.contains_key(&item.id),
            "tool" | "skill" => self.facts.parts.get(&item.id).is_some_and(super::http_node::can_be_node),
            "workflow" | "flow" => true,
            "agent" => !self.is_agent(),
            _ => false,
        })
    }
}

/// Returns true if a system is among the needs, under its own name, by the same item, or, for mail, as the source.
fn is_known(found: &[Need<'_>], name: &str, item: Option<&Item>) -> bool {
    let is_source = |need: &Need<'_>| matches!(need.role, Role::Start | Role::Input);
    found.iter().any(|need| {
        let is_same = need.need.eq_ignore_ascii_case(name);
        let shares_item =
            need.provider.as_ref().is_some_and(|provider| item.is_some_and(|item| provider.id() == item.id));
        is_same || shares_item || (is_mail(name) && is_source(need))
    })
}

/// The work on a text without a last part that only sends the result, such as “，然后发布到…”.
pub(super) fn own_work(logic: &str) -> &str {
    let tail = JOINT.as_ref().into_iter().flat_map(|joint| joint.find_iter(logic)).find(|joint| {
        let rest = &logic[joint.end()..];
        !has(&TEXT_WORK, rest) && (has(&ZH_OUTPUT, rest) || has(&OUTPUT, rest))
    });
    tail.map(|joint| trimmed(&logic[..joint.start()])).filter(|work| has(&TEXT_WORK, work)).unwrap_or(logic)
}

/// Returns the words by which an item is found.
fn shown(item: &Item) -> String {
    format!("{} {}", item.id.replace(['.', '_', '-'], " "), item.line)
}

/// Returns true if a text contains a word. A word in Latin letters must match as a whole word.
fn contains_word(text: &str, word: &str) -> bool {
    let is_latin = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.match_indices(word).any(|(at, found)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
        !word.is_ascii() || (!is_latin(before) && !is_latin(after))
    })
}

/// Returns the complete address in a message, if there is one that can be called.
pub(super) fn address(message: &str) -> Option<&str> {
    let found = first(&ADDRESS, message)?;
    let is_plain = !found.contains(['{', '}', '$']) && decisions::hosts::host(found).is_ok();
    is_plain.then_some(found)
}
