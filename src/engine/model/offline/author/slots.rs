//! The facts of a wish, and how the user's own words fill them. A value is always a part of a message.

use super::Author;
use super::words::{
    FROM, INPUT, OUTPUT, SCHEDULE, WHEN, ZH_FROM, ZH_INPUT, ZH_OUTPUT, ZH_WHEN, around_colon, first, group, key_value,
    trimmed, wish,
};
use std::collections::BTreeMap;
use types::authoring::{Category, ClarificationQuestion};

/// The facts of a wish, by key.
pub(super) type Slots = BTreeMap<&'static str, String>;

/// A fact that must be known.
#[derive(Debug)]
pub(super) struct Slot {
    /// The key of the fact, and of its question.
    pub(super) key: &'static str,
    /// The names in a line `key: value`, in Chinese and English. The first of each is shown.
    pub(super) zh: &'static [&'static str],
    pub(super) en: &'static [&'static str],
    /// The question for it, in Chinese and English.
    question: [&'static str; 2],
    category: Category,
}

pub(super) const TRIGGER: &str = "trigger_type";
pub(super) const INPUT_SOURCE: &str = "input_source";
pub(super) const LOGIC: &str = "processing_logic";
pub(super) const DESTINATION: &str = "output_destination";
pub(super) const PURPOSE: &str = "purpose";
pub(super) const KNOWLEDGE: &str = "facts";
pub(super) const GREETING: &str = "greeting";
pub(super) const LIMITS: &str = "limits";

/// The slots of a workflow.
static WORKFLOW: [Slot; 4] = [
    Slot {
        key: LOGIC,
        zh: &["处理", "逻辑", "步骤", "做什么"],
        en: &["logic", "task", "steps", "do"],
        question: ["这个工作流要做什么？请用一句话说明。", "What should the workflow do? One sentence is enough."],
        category: Category::Logic,
    },
    Slot {
        key: TRIGGER,
        zh: &["启动", "触发", "触发方式", "何时启动"],
        en: &["trigger", "start", "when"],
        question: ["它由什么启动？", "What starts it?"],
        category: Category::Trigger,
    },
    Slot {
        key: INPUT_SOURCE,
        zh: &["输入", "来源"],
        en: &["input", "source", "from"],
        question: ["它处理的内容从哪里来？", "Where does its input come from?"],
        category: Category::Input,
    },
    Slot {
        key: DESTINATION,
        zh: &["输出", "结果", "结果去向", "去向"],
        en: &["output", "result", "destination", "to"],
        question: ["结果要发到哪里？", "Where should the result go?"],
        category: Category::Output,
    },
];

/// The slots of an agent.
static AGENT: [Slot; 4] = [
    Slot {
        key: PURPOSE,
        zh: &["用途", "目的"],
        en: &["purpose"],
        question: ["这个智能体要做什么？请用一句话说明。", "What should the agent do? One sentence is enough."],
        category: Category::Logic,
    },
    Slot {
        key: KNOWLEDGE,
        zh: &["内容", "事实", "回答"],
        en: &["facts", "answers", "answer"],
        question: [
            "它可以告诉用户哪些内容？请写出原文；几项内容请每行一项，写成“问题：答案”。",
            "What may it tell the user? Please write the text itself; several things one to a line, as \"question: answer\".",
        ],
        category: Category::Input,
    },
    Slot {
        key: GREETING,
        zh: &["问候语", "问候", "开场白"],
        en: &["greeting"],
        question: ["它怎样问候用户？", "How does it greet the user?"],
        category: Category::Output,
    },
    Slot {
        key: LIMITS,
        zh: &["限制", "规则", "约束"],
        en: &["limits", "constraints", "rules"],
        question: ["它不可以做什么？", "What must it not do?"],
        category: Category::Logic,
    },
];

impl Author<'_> {
    /// The slots of this kind of artefact.
    pub(super) fn slots(&self) -> &'static [Slot; 4] {
        if self.is_agent() { &AGENT } else { &WORKFLOW }
    }

    /// The name of a slot for people.
    pub(super) fn label(&self, slot: &Slot) -> String {
        self.text(slot.zh[0], slot.en[0])
    }

    /// The slots that are filled.
    pub(super) fn known(&self) -> Slots {
        let filled = self.slots().iter().map(|slot| (slot.key, self.fact(slot.key)));
        filled.filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key, value.to_owned())).collect()
    }

    /// Returns the slot with this name.
    pub(super) fn slot_named(&self, word: &str) -> Option<&'static Slot> {
        let word = word.trim().to_lowercase();
        let is_named = |slot: &&Slot| slot.key == word || slot.zh.iter().chain(slot.en).any(|name| *name == word);
        self.slots().iter().find(is_named)
    }

    /// Returns the slots that the lines `key: value` of a message fill.
    pub(super) fn named_slots(&self, message: &str) -> Slots {
        let pairs = message.lines().filter_map(key_value);
        pairs.filter_map(|(key, value)| Some((self.slot_named(key)?.key, value.to_owned()))).collect()
    }

    /// Fills the empty slots from the message.
    pub(super) fn fill(&self, message: &str, slots: &mut Slots) {
        let named = self.named_slots(message);
        let is_list = !named.is_empty();
        slots.extend(named);
        if is_list {
            return;
        }
        let wish = wish(message);
        let found = if self.is_agent() { agent_slots(&wish) } else { workflow_slots(&wish) };
        for (key, value) in found {
            slots.entry(key).or_insert(value);
        }
    }

    /// Returns the empty slots without which no document can be written.
    pub(super) fn missing(&self, slots: &Slots) -> Vec<&'static Slot> {
        let known = |key: &str| slots.contains_key(key);
        let is_missing = |slot: &&Slot| match slot.key {
            LOGIC | PURPOSE => !known(slot.key),
            KNOWLEDGE => known(PURPOSE) && !known(KNOWLEDGE) && self.agent_needs(slots).is_empty(),
            // A run that a schedule starts has no user who supplies a text or reads the result.
            INPUT_SOURCE => {
                known(LOGIC)
                    && !known(INPUT_SOURCE)
                    && slots.get(TRIGGER).is_some_and(|when| first(&SCHEDULE, when).is_some())
            }
            DESTINATION => known(LOGIC) && known(TRIGGER) && !known(DESTINATION),
            _ => false,
        };
        self.slots().iter().filter(is_missing).collect()
    }

    /// The question for a slot.
    pub(super) fn question(&self, slot: &Slot) -> ClarificationQuestion {
        let [zh, en] = slot.question;
        ClarificationQuestion {
            id: slot.key.to_owned(),
            question: self.said(zh, en),
            category: slot.category,
            is_required: true,
            options: self.options(slot),
        }
    }

    /// Suggested answers: items of the catalogue.
    fn options(&self, slot: &Slot) -> Vec<String> {
        if !matches!(slot.key, INPUT_SOURCE | DESTINATION) {
            return Vec::new();
        }
        let own = (slot.key == DESTINATION).then(|| self.text("作为运行的结果返回", "the result of the run"));
        let items = self.facts.catalogue.items.iter().filter(|item| self.facts.parts.contains_key(&item.id));
        own.into_iter().chain(items.take(3).map(|item| item.id.clone())).collect()
    }
}

fn workflow_slots(wish: &str) -> Slots {
    let mut slots = Slots::new();
    let when = [&ZH_WHEN, &WHEN]
        .into_iter()
        .find_map(|pattern| Some((group(pattern, "trigger", wish)?, group(pattern, "rest", wish)?)));
    let mut logic = wish;
    if let Some((trigger, rest)) = when {
        slots.insert(TRIGGER, trigger.to_owned());
        logic = rest;
    } else if let Some(schedule) = first(&SCHEDULE, wish) {
        slots.insert(TRIGGER, trimmed(schedule).to_owned());
        let at = wish.find(schedule).unwrap_or_default();
        let (before, after) = (trimmed(&wish[..at]), trimmed(&wish[at + schedule.len()..]));
        logic = if after.is_empty() { before } else { after };
    }
    let mut add = |key, patterns: [&'static std::sync::LazyLock<Option<regex::Regex>>; 2], name| {
        let found = patterns.into_iter().find_map(|pattern| group(pattern, name, logic));
        found.map(|found| slots.insert(key, found.to_owned()));
    };
    add(DESTINATION, [&ZH_OUTPUT, &OUTPUT], "output");
    add(INPUT_SOURCE, [&ZH_FROM, &FROM], "input");
    if !logic.is_empty() {
        slots.insert(LOGIC, trimmed(logic).to_owned());
    }
    if !slots.contains_key(INPUT_SOURCE)
        && let Some(found) = [&ZH_INPUT, &INPUT].into_iter().find_map(|pattern| group(pattern, "input", logic))
    {
        slots.insert(INPUT_SOURCE, found.to_owned());
    }
    slots
}

fn agent_slots(wish: &str) -> Slots {
    let mut slots = Slots::new();
    let (purpose, knowledge) = around_colon(wish).unwrap_or((wish, ""));
    if !trimmed(purpose).is_empty() {
        slots.insert(PURPOSE, trimmed(purpose).to_owned());
    }
    if !knowledge.is_empty() {
        slots.insert(KNOWLEDGE, knowledge.trim().to_owned());
    }
    slots
}
