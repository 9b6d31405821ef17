//! Fills the slots from the user's words, and asks for the empty ones.

use super::alternatives::LEAVE_OUT;
use super::edits::Edits;
use super::needs::{ADDRESS_OF, address};
use super::slots::Slots;
use super::words::{NUMBERED, brief, group, is_no, wish};
use super::{Author, CHANGE};
use decisions::authoring::MAX_QUESTIONS;
use decisions::authoring::answer::{Clarification, Fact};
use types::authoring::state::ALTERNATIVE;
use types::authoring::{Category, ClarificationQuestion};

/// The longest summary of a wish, in characters.
const MAX_SUMMARY: usize = 300;

impl Author<'_> {
    pub(super) fn clarify(&self) -> Clarification {
        let message = self.message();
        let mut collected: Vec<Fact> = Vec::new();
        let mut slots = self.known();
        let mut open: Vec<ClarificationQuestion> = Vec::new();
        for (question, answer) in self.answers(message) {
            let is_slot = self.slots().iter().find(|slot| slot.key == question.id);
            match (answer, is_slot) {
                (Some(answer), Some(slot)) => self.answered(slot.key, &answer, &mut slots),
                (Some(answer), None) if question.id.starts_with(ADDRESS_OF) => match address(&answer) {
                    Some(address) => collected.push(Fact { key: question.id, value: address.to_owned() }),
                    None if is_no(&answer) => collected.push(self.left_out(&question.id)),
                    None => open.push(question),
                },
                (None, None) if question.id.starts_with(ADDRESS_OF) => open.push(question),
                _ => {}
            }
        }
        if let Some(base) = self.base() {
            match Edits::read(message, base) {
                Ok(_) => collected.push(Fact { key: CHANGE.into(), value: message.to_owned() }),
                Err(problem) => open.push(self.change_question(&problem)),
            }
        } else {
            if self.stored.questions.is_empty() {
                self.fill(message, &mut slots);
            }
            open.extend(self.missing(&slots).into_iter().map(|slot| self.question(slot)));
        }
        open.truncate(MAX_QUESTIONS);
        let known = self.known();
        let is_new = |(key, value): &(&&'static str, &String)| known.get(**key) != Some(*value);
        collected
            .extend(slots.iter().filter(is_new).map(|(key, value)| Fact { key: (*key).into(), value: value.clone() }));
        let ready = open.is_empty();
        Clarification {
            reply: self.clarifying(ready),
            intent_summary: self.summary(message),
            collected_info: collected,
            questions: open,
            ready,
        }
    }

    /// Returns the answer to each open question: the line with its number or name, the option that was chosen, or, for
    /// the first question, the whole message.
    fn answers(&self, message: &str) -> Vec<(ClarificationQuestion, Option<String>)> {
        let questions = &self.stored.questions;
        let numbered: Vec<(usize, &str)> = message.lines().filter_map(numbered).collect();
        let named = self.named_slots(message);
        let is_list = questions.len() > 1 && !numbered.is_empty();
        let answer = |(at, question): (usize, &ClarificationQuestion)| {
            let line = numbered.iter().find(|(number, _)| *number == at + 1).map(|(_, value)| *value);
            let value = match named.get(question.id.as_str()) {
                Some(value) => Some(value.clone()),
                None if is_list => line.map(|line| option(question, line)),
                None => (at == 0 && named.is_empty() && !message.is_empty()).then(|| option(question, message)),
            };
            (question.clone(), value)
        };
        questions.iter().enumerate().map(answer).collect()
    }

    /// Stores an answer as the value of its slot. The answer about the wish may also fill other slots.
    fn answered(&self, key: &'static str, answer: &str, slots: &mut Slots) {
        if key == self.slots()[0].key {
            self.fill(answer, slots);
            if !wish(answer).is_empty() {
                slots.entry(key).or_insert_with(|| answer.to_owned());
            }
        } else {
            slots.insert(key, answer.to_owned());
        }
    }

    /// Returns the fact that leaves a need out, because the user has no address for it.
    fn left_out(&self, question: &str) -> Fact {
        let need = question.strip_prefix(ADDRESS_OF).unwrap_or(question);
        let title = self.text(&format!("不包含“{need}”"), &format!("Leave \"{need}\" out"));
        Fact { key: format!("{ALTERNATIVE}{need}"), value: format!("{title}: {LEAVE_OUT}") }
    }

    fn change_question(&self, problem: &super::edits::Unclear) -> ClarificationQuestion {
        let [zh, en] = problem.question(self.is_agent());
        ClarificationQuestion {
            id: CHANGE.to_owned(),
            question: self.said(&zh, &en),
            category: Category::Logic,
            is_required: true,
            options: Vec::new(),
        }
    }

    fn clarifying(&self, ready: bool) -> String {
        let first = if self.is_first() {
            let zh = "当前没有语言模型：我按固定规则整理您的原话，不作推测。要换成语言模型，请在设置中配置 [models.default]。";
            let en = "There is no language model: I sort your own words by fixed rules, and guess nothing. For a language model, set [models.default] in the settings. ";
            self.text(zh, en)
        } else {
            String::new()
        };
        let (zh, en) = if ready {
            ("已记下您的原话。", "I have noted your words.")
        } else {
            ("还需要您回答：", "I still need to know:")
        };
        self.said(&format!("{first}{zh}"), &format!("{first}{en}"))
    }

    /// The first wish in the user's own words.
    fn summary(&self, message: &str) -> String {
        let known = self.stored.state.intent_summary.as_str();
        let said = wish(message);
        if known.is_empty() && !said.is_empty() { brief(message, MAX_SUMMARY) } else { known.to_owned() }
    }
}

/// Returns the option that an answer chooses, by its number or its text; otherwise the answer.
fn option(question: &ClarificationQuestion, answer: &str) -> String {
    let by_number = answer.trim().parse::<usize>().ok().and_then(|number| question.options.get(number.checked_sub(1)?));
    let by_text = || question.options.iter().find(|option| option.eq_ignore_ascii_case(answer.trim()));
    by_number.or_else(by_text).map_or_else(|| answer.trim().to_owned(), Clone::clone)
}

fn numbered(line: &str) -> Option<(usize, &str)> {
    Some((group(&NUMBERED, "number", line)?.parse().ok()?, group(&NUMBERED, "value", line)?))
}
