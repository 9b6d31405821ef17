//! Lists the facts. Accepts a yes, a changed slot, or a changed text.

use super::edits::{Edits, replacement};
use super::needs::ADDRESS_OF;
use super::slots::{DESTINATION, Slots, TRIGGER};
use super::words::is_yes;
use super::{Author, CHANGE};
use decisions::authoring::answer::{Fact, Negotiation};
use types::authoring::state::ALTERNATIVE;
use types::authoring::{Category, ClarificationQuestion, Stage};

impl Author<'_> {
    pub(super) fn negotiate(&self) -> Negotiation {
        let message = self.message();
        if !self.is_unanswered() {
            // The clarification of this turn has already used the message.
            return self.list(&self.known(), self.fact(CHANGE), Vec::new());
        }
        if is_yes(message) || self.has_chosen() {
            return self.agree();
        }
        if let Some(base) = self.base() {
            return self.change(message, base);
        }
        let mut slots = self.known();
        let named = self.named_slots(message);
        if !named.is_empty() {
            slots.extend(named);
            return self.list(&slots, "", Vec::new());
        }
        if let Some((old, new)) = replacement(message)
            && slots.values().any(|value| value.contains(old))
        {
            slots.values_mut().for_each(|value| *value = value.replace(old, new));
            return self.list(&slots, "", Vec::new());
        }
        let zh = "我没有认出这句话要改什么。同意请回复“好”；要修改请写一行，例如“";
        let en = "I do not recognise a change in this. Write \"yes\" to agree, or a line with a change, such as \"";
        let slot = &self.slots()[0];
        let example = format!("{}{}", self.label(slot), self.text("：……”", ": …\""));
        Negotiation {
            reply: self.said(
                &format!("{zh}{example}，或“把 A 改成 B”。"),
                &format!("{en}{example}, or \"replace A with B\"."),
            ),
            requirements: self.lines(&slots, ""),
            ..Negotiation::default()
        }
    }

    /// True if the message has chosen an alternative.
    fn has_chosen(&self) -> bool {
        let chosen = |gap: &String| !self.fact(&format!("{ALTERNATIVE}{gap}")).is_empty();
        self.stored.previous_stage == Stage::AlternativeGeneration && self.stored.state.gaps.iter().any(chosen)
    }

    /// The user agrees. If facts are missing, the author asks for them first.
    fn agree(&self) -> Negotiation {
        let slots = self.known();
        let requirements = self.lines(&slots, self.fact(CHANGE));
        let mut questions: Vec<_> = match self.base() {
            Some(_) => Vec::new(),
            None => self.missing(&slots).into_iter().map(|slot| self.question(slot)).collect(),
        };
        questions.extend(self.without_address().iter().map(|need| self.address_question(&need.need)));
        questions.truncate(decisions::authoring::MAX_QUESTIONS);
        let (zh, en) = if questions.is_empty() {
            ("好，按这些要求对照现有能力。", "Good. Comparing this with what is installed.")
        } else {
            ("还需要您回答：", "I still need to know:")
        };
        let agreed = questions.is_empty();
        Negotiation { reply: self.said(zh, en), requirements, questions, agreed, ..Negotiation::default() }
    }

    fn address_question(&self, need: &str) -> ClarificationQuestion {
        let zh = format!("“{need}”的接口地址是什么？请写完整，例如 https://…；没有就写“跳过”。");
        let en = format!(
            "What is the address of the API for \"{need}\"? Please write it in full, such as https://…, or write \"skip\" to leave the part out."
        );
        ClarificationQuestion {
            id: format!("{ADDRESS_OF}{need}"),
            question: self.said(&zh, &en),
            category: Category::Logic,
            is_required: true,
            options: Vec::new(),
        }
    }

    /// Applies a change to the source document.
    fn change(&self, message: &str, base: &serde_json::Value) -> Negotiation {
        match Edits::read(message, base) {
            Ok(_) => {
                // After a publication, the next change starts from the published document.
                let hash = |draft: &types::authoring::Draft| draft.hash.clone();
                let is_published = self.stored.published.as_ref().map(|published| published.hash.clone())
                    == self.stored.draft.as_ref().map(hash);
                let is_done = self.stored.previous_stage == Stage::Completed && is_published;
                let before = if is_done { "" } else { self.fact(CHANGE) };
                let lines =
                    [before, message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
                let fact = Fact { key: CHANGE.into(), value: lines.clone() };
                self.list(&Slots::new(), &lines, vec![fact])
            }
            Err(problem) => {
                let [zh, en] = problem.question(self.is_agent());
                let requirements = self.lines(&Slots::new(), self.fact(CHANGE));
                Negotiation { reply: self.said(&zh, &en), requirements, ..Negotiation::default() }
            }
        }
    }

    /// The requirements, with the question whether they are right.
    fn list(&self, slots: &Slots, change: &str, mut collected_info: Vec<Fact>) -> Negotiation {
        let known = self.known();
        let is_new = |(key, value): &(&&'static str, &String)| known.get(**key) != Some(*value);
        collected_info
            .extend(slots.iter().filter(is_new).map(|(key, value)| Fact { key: (*key).into(), value: value.clone() }));
        let requirements = self.lines(slots, change);
        let list = requirements.iter().map(|line| format!("\n- {line}")).collect::<String>();
        let zh = format!("整理如下，都是您的原话：{list}\n对吗？同意请回复“好”，要改请写出那一行。");
        let en = format!(
            "This is what you said, in your words:{list}\nIs it right? Write \"yes\", or the line that is to change."
        );
        Negotiation { reply: self.said(&zh, &en), collected_info, requirements, ..Negotiation::default() }
    }

    /// The requirements, one line for each.
    fn lines(&self, slots: &Slots, change: &str) -> Vec<String> {
        let colon = self.text("：", ": ");
        if self.base().is_some() {
            let label = self.text("修改", "change");
            let lines = change.lines().filter(|line| !line.trim().is_empty());
            return lines.map(|line| format!("{label}{colon}{line}")).collect();
        }
        let mut lines = Vec::new();
        for slot in self.slots() {
            let unsaid = match slot.key {
                TRIGGER => self.text("（您没有说）由接口调用或消息启动", "(not said) a call of the API or a message"),
                DESTINATION => self.text("（您没有说）作为运行的结果返回", "(not said) the result of the run"),
                _ => String::new(),
            };
            let value = slots.get(slot.key).cloned().unwrap_or(unsaid);
            if !value.is_empty() {
                lines.push(format!("{}{colon}{value}", self.label(slot)));
            }
        }
        let chosen = self.stored.state.clarification_context.collected_info.iter();
        for (key, value) in chosen {
            if let Some(gap) = key.strip_prefix(ALTERNATIVE) {
                lines.push(format!(
                    "{gap}{colon}{}",
                    value.rsplit_once(": ").map_or(value.as_str(), |(title, _)| title)
                ));
            }
        }
        lines
    }
}
