//! The document of an agent: the user's sentences as its procedure, and rules by which the offline model can play it.

use super::Author;
use super::needs::{Need, Provider};
use super::slots::{GREETING, KNOWLEDGE, LIMITS, PURPOSE};
use super::words::{around_colon, brief, keywords};
use super::workflow::{ID, MAX_NAME};
use decisions::authoring::answer::Generation;
use serde_json::{Map, Value, json};

/// The largest number of facts of an agent.
const MAX_FACTS: usize = 30;
/// The longest part of an answer that a test looks for, in characters.
const MAX_EXPECTED: usize = 40;

impl Author<'_> {
    pub(super) fn new_agent(&self) -> Generation {
        let needs = self.needs();
        let facts = self.told();
        let actions: Vec<(&Need<'_>, &Value, &str)> = needs.iter().filter_map(|need| self.action(need)).collect();
        let mut document = json!({
            "id": ID,
            "name": brief(self.fact(PURPOSE), MAX_NAME),
            "sop": self.procedure(&facts, &actions),
            "rules": self.rules(&facts, &actions),
        });
        for (field, key) in [("greeting", GREETING), ("constraints", LIMITS)] {
            if !self.fact(key).is_empty() {
                document[field] = json!(self.fact(key));
            }
        }
        for (_, part, kind) in &actions {
            if let Some(list) = document.as_object_mut() {
                let list = list.entry(format!("{kind}s")).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push((*part).clone()));
            }
        }
        let flows: Vec<&str> = needs.iter().filter_map(flow).collect();
        if !flows.is_empty() {
            document["flows"] = json!(flows);
        }
        let tests = self.test(&facts, &actions).into_iter().collect();
        Generation {
            reply: self.described(&facts, actions.len()),
            agent: Some(document),
            tests,
            ..Generation::default()
        }
    }

    /// The facts of the agent: question, and answer in the user's words.
    fn told(&self) -> Vec<(String, String)> {
        let lines = self.fact(KNOWLEDGE).lines().map(str::trim).filter(|line| !line.is_empty());
        let pairs: Vec<(String, String)> = lines
            .take(MAX_FACTS)
            .map(|line| match around_colon(line) {
                Some((question, answer)) if !question.is_empty() && !answer.is_empty() => {
                    (question.to_owned(), answer.to_owned())
                }
                _ => (String::new(), line.to_owned()),
            })
            .collect();
        // Lines without any question form one text about the purpose.
        if pairs.iter().all(|(question, _)| question.is_empty()) && !pairs.is_empty() {
            let text: Vec<_> = pairs.into_iter().map(|(_, answer)| answer).collect();
            return vec![(self.fact(PURPOSE).to_owned(), text.join("\n"))];
        }
        pairs
    }

    /// Returns the tool or skill for a need, and its kind.
    fn action<'n>(&'n self, need: &'n Need<'n>) -> Option<(&'n Need<'n>, &'n Value, &'n str)> {
        let Some(Provider::Item(item)) = &need.provider else { return None };
        let part = self.facts.parts.get(&item.id)?;
        matches!(item.kind.as_str(), "tool" | "skill").then_some((need, part, item.kind.as_str()))
    }

    fn procedure(&self, facts: &[(String, String)], actions: &[(&Need<'_>, &Value, &str)]) -> String {
        let mut lines = vec![self.fact(PURPOSE).to_owned()];
        for (_, part, _) in actions {
            let id = part["id"].as_str().unwrap_or_default();
            lines.push(self.text(&format!("需要时调用 {id}。"), &format!("Call {id} when it is needed.")));
        }
        for (question, answer) in facts {
            lines.push(if question.is_empty() || question == self.fact(PURPOSE) {
                answer.clone()
            } else {
                format!("{question}: {answer}")
            });
        }
        lines.push(self.text("不知道的就说不知道。", "Say so if you do not know something."));
        (1..).zip(lines).map(|(number, line)| format!("{number}. {line}")).collect::<Vec<_>>().join("\n")
    }

    fn rules(&self, facts: &[(String, String)], actions: &[(&Need<'_>, &Value, &str)]) -> Vec<Value> {
        let says =
            |when: Value, text: &str| json!({"when": when, "decide": {"next_status": "typing", "response": text}});
        let mut rules = Vec::new();
        for (need, part, kind) in actions {
            let id = part["id"].as_str().unwrap_or_default();
            rules.push(says(
                json!({"result_of": id, "failed": true}),
                &self.text("抱歉，调用失败：{error}", "Sorry, the call failed: {error}"),
            ));
            rules.push(says(json!({"result_of": id}), "{result}"));
            let params: Map<String, Value> = required(part).map(|name| (name.to_owned(), json!("{message}"))).collect();
            let words = keywords(&format!("{} {}", need.need, self.fact(PURPOSE)));
            if !words.is_empty() {
                let action = json!({"type": kind.to_uppercase(), "target": id, "params": params});
                rules.push(
                    json!({"when": {"contains": words}, "decide": {"next_status": "processing", "action": action}}),
                );
            }
        }
        for (question, answer) in facts {
            let words = keywords(question);
            if !words.is_empty() {
                rules.push(says(json!({"contains": words}), &unfilled(answer)));
            }
        }
        // A single fact is the answer to every message that matches no other rule.
        let otherwise = match facts {
            [(_, answer)] if actions.is_empty() => unfilled(answer),
            _ => {
                let purpose = unfilled(self.fact(PURPOSE));
                self.text(
                    &format!("抱歉，这个我不知道。我负责：{purpose}"),
                    &format!("Sorry, I do not know that. I am here for: {purpose}"),
                )
            }
        };
        rules.push(says(json!({"always": true}), &otherwise));
        rules
    }

    /// A message about the first fact or action, and its answer.
    fn test(&self, facts: &[(String, String)], actions: &[(&Need<'_>, &Value, &str)]) -> Option<Value> {
        let name = self.text("用户的原话", "the user's words");
        if let Some((need, part, _)) = actions.first() {
            let (id, say) = (part["id"].as_str()?, format!("{} {}", need.need, self.fact(PURPOSE)));
            let is_asked = !keywords(&say).is_empty();
            let turn = json!({"say": say, "expect": {"calls": [id]}});
            return is_asked.then(|| json!({"name": name, "turns": [turn], "answers": {id: "ok"}}));
        }
        let (question, answer) = facts.first()?;
        let say = if question.is_empty() { self.fact(PURPOSE) } else { question.as_str() };
        let first = answer.lines().next().unwrap_or_default();
        let expected: String = first.chars().take(MAX_EXPECTED).collect();
        Some(json!({"name": name, "turns": [{"say": say, "expect": {"reply_contains": [expected.trim()]}}]}))
    }

    fn described(&self, facts: &[(String, String)], actions: usize) -> String {
        let zh = format!(
            "已按您的原话写好：{} 项内容，{actions} 个工具。没有语言模型时，它按文件中的规则用原文回答。",
            facts.len()
        );
        let en = format!(
            "Written with your own words: facts: {}, tools: {actions}. Without a language model it answers by the rules in the file, word for word.",
            facts.len()
        );
        self.said(&zh, &en)
    }
}

/// Returns the flow or workflow for a need.
fn flow<'n>(need: &'n Need<'_>) -> Option<&'n str> {
    let Some(Provider::Item(item)) = &need.provider else { return None };
    let is_flow = matches!(item.kind.as_str(), "flow" | "workflow");
    item.id.split_once('.').map(|(_, id)| id).filter(|_| is_flow)
}

fn required(part: &Value) -> impl Iterator<Item = &str> {
    let names = part.get("params").and_then(|params| params.get("required")).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns a text for a rule. Braces around a name are replaced, because a rule reads them as a placeholder.
fn unfilled(text: &str) -> String {
    text.replace('{', "｛").replace('}', "｝")
}
