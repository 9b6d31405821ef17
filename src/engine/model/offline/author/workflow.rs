//! The document of a workflow: a graph with one node for each need, in the order of the work.

use super::edits::Edits;
use super::http_node::http_node;
use super::needs::{LLM, MAX_NEED, Need, Provider, Role, own_work};
use super::slots::{LOGIC, TRIGGER};
use super::words::{brief, literal};
use super::{Author, CHANGE};
use decisions::authoring::answer::Generation;
use serde_json::{Map, Value, json};

/// The id in a document. The engine sets its own.
pub(super) const ID: &str = "new";
/// The longest name of a document, in characters.
pub(super) const MAX_NAME: usize = 60;
/// The name of the text among several inputs.
const TEXT_INPUT: &str = "text";

/// The nodes so far, and a reference to the last output.
struct Graph {
    nodes: Vec<Value>,
    edges: Vec<Value>,
    inputs: Vec<(String, String)>,
    answers: Map<String, Value>,
    /// The text that the next node gets.
    text: String,
}

impl Author<'_> {
    pub(super) fn generate(&self) -> Generation {
        if let Some(base) = self.base() {
            return self.edited(base);
        }
        if self.is_agent() { self.new_agent() } else { self.new_workflow() }
    }

    /// The document with the user's changes. Its tests are the engine's.
    fn edited(&self, base: &Value) -> Generation {
        let changed = Edits::read(self.fact(CHANGE), base).and_then(|edits| edits.apply(base));
        let document = Some(changed.unwrap_or_else(|_| base.clone()));
        let reply = self.said("已逐条修改，其余部分原样保留。", "I made each change; the rest stays as it is.");
        let (workflow, agent) = if self.is_agent() { (None, document) } else { (document, None) };
        Generation { reply, workflow, agent, ..Generation::default() }
    }

    fn new_workflow(&self) -> Generation {
        let needs = self.needs();
        let mut graph = Graph::new(&needs, self);
        for need in &needs {
            self.add(&mut graph, need);
        }
        if graph.nodes.is_empty() {
            let output = json!({"output": graph.text});
            graph.push("END", &self.text("返回收到的文字", "Return the text"), &output, None);
        }
        let steps: Vec<String> =
            graph.nodes.iter().filter_map(|node| node["name"].as_str().map(str::to_owned)).collect();
        graph.drop_unused_inputs();
        let tests = vec![graph.test(self)];
        Generation {
            reply: self.written(&steps, graph.nodes.iter().any(|node| node["type"] == "LLM")),
            workflow: Some(graph.document(self)),
            tests,
            ..Generation::default()
        }
    }

    fn add(&self, graph: &mut Graph, need: &Need<'_>) {
        let name = brief(&need.need, MAX_NAME);
        let (data, answer) = ("output.data", |role: Role| if role == Role::Output { "ok" } else { "sample" });
        match &need.provider {
            Some(Provider::Item(item)) if item.id == LLM => {
                let prompt = format!("{}\n\n{}", literal(&self.work(need)), graph.text);
                graph.push("LLM", &name, &json!({"prompt": prompt}), Some(json!({"text": "sample", "data": null})));
                graph.follow("output.text");
            }
            Some(Provider::Item(item)) if matches!(item.kind.as_str(), "tool" | "skill") => {
                let Some(part) = self.facts.parts.get(&item.id) else { return };
                let node = http_node(part, &graph.text);
                graph.inputs.extend(node.inputs);
                graph.push("HTTP", &name, &node.config, Some(json!({"status": 200, "data": answer(need.role)})));
                graph.follow(data);
            }
            Some(Provider::Item(item)) if matches!(item.kind.as_str(), "agent" | "workflow" | "flow") => {
                let runnable = item.id.split_once('.').map_or("", |(_, id)| id);
                let config = json!({"runnable": runnable, "input": graph.text});
                graph.push("RUNNABLE", &name, &config, Some(json!({"text": answer(need.role)})));
                graph.follow("output.text");
            }
            Some(Provider::Address(url)) => {
                // An address that supplies the input gets a GET request, any other address a POST request.
                let config = match need.role {
                    Role::Start | Role::Input => json!({"url": url, "method": "GET"}),
                    _ => json!({"url": url, "method": "POST", "body": {"text": graph.text}}),
                };
                graph.push("HTTP", &name, &config, Some(json!({"status": 200, "data": answer(need.role)})));
                graph.follow(data);
            }
            Some(Provider::Item(_)) | None => {}
        }
    }

    /// Returns the model's work in the user's own words. The name of a need may be cut.
    fn work(&self, need: &Need<'_>) -> String {
        let logic = own_work(self.fact(LOGIC));
        if brief(logic, MAX_NEED) == need.need { logic.to_owned() } else { need.need.clone() }
    }

    /// Describes the document, and its limits.
    fn written(&self, steps: &[String], is_asking: bool) -> String {
        let list = steps.iter().map(|step| format!("\n- {step}")).collect::<String>();
        let trigger = self.fact(TRIGGER);
        let watching = if trigger.is_empty() {
            String::new()
        } else {
            self.text(
                &format!("\n注意：引擎不会自己等待“{trigger}”；请在那时调用它的接口。"),
                &format!("\nNote that the engine does not wait for \"{trigger}\" itself: call its API at that time."),
            )
        };
        let repeats = if is_asking {
            self.text(
                "\n没有语言模型时，LLM 步骤只会重复收到的文字。",
                "\nWithout a language model an LLM step only repeats its text.",
            )
        } else {
            String::new()
        };
        let zh = format!("已按您的原话写成这些步骤：{list}{watching}{repeats}");
        let en = format!("Written with your own words, in these steps:{list}{watching}{repeats}");
        self.said(&zh, &en)
    }
}

impl Graph {
    /// An empty graph. Its text is the query of a run, or an input if the run needs others, too.
    fn new(needs: &[Need<'_>], author: &Author<'_>) -> Self {
        let parts = needs.iter().filter_map(|need| author.facts.parts.get(need.provider.as_ref()?.id()));
        let has_inputs = parts.into_iter().any(|part| !http_node(part, "").inputs.is_empty());
        let (text, inputs) = if has_inputs {
            (format!("${{input.{TEXT_INPUT}}}"), vec![(TEXT_INPUT.to_owned(), "string".to_owned())])
        } else {
            ("${query}".to_owned(), Vec::new())
        };
        Self { nodes: Vec::new(), edges: Vec::new(), inputs, answers: Map::new(), text }
    }

    /// Adds a node after the last one, with its answer in a test.
    fn push(&mut self, kind: &str, name: &str, config: &Value, answer: Option<Value>) {
        let id = format!("step_{}", self.nodes.len() + 1);
        if let Some(last) = self.nodes.last() {
            self.edges.push(json!({"source": last["node_id"], "target": id}));
        }
        self.nodes.push(json!({"node_id": id, "type": kind, "name": name, "config": config}));
        self.answers.extend(answer.map(|answer| (id, answer)));
    }

    /// The next node reads this output of the last one.
    fn follow(&mut self, output: &str) {
        self.text = format!("${{step_{}.{output}}}", self.nodes.len());
    }

    /// Keeps each input that a node uses, once.
    fn drop_unused_inputs(&mut self) {
        let used = format!("{}{}", json!(self.nodes), self.text);
        let mut seen = Vec::new();
        self.inputs.retain(|(name, _)| {
            let is_new = used.contains(&format!("${{input.{name}}}")) && !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
    }

    fn document(self, author: &Author<'_>) -> Value {
        let summary = author.stored.state.intent_summary.as_str();
        let inputs: Vec<Value> =
            self.inputs.iter().map(|(name, kind)| json!({"name": name, "type": kind, "required": true})).collect();
        let mut global = json!({"output": self.text});
        if !inputs.is_empty() {
            global["inputs"] = json!(inputs);
        }
        json!({
            "type": "graph",
            "id": ID,
            "name": brief(summary, MAX_NAME),
            "description": summary,
            "nodes": self.nodes,
            "edges": self.edges,
            "global_config": global,
        })
    }

    /// Returns a test: a run with the user's own words, in which each node has an answer.
    fn test(&self, author: &Author<'_>) -> Value {
        let text = author.stored.state.intent_summary.as_str();
        let input = if self.inputs.is_empty() {
            json!(text)
        } else {
            let sample = |kind: &str| match kind {
                "number" => json!(1),
                "boolean" => json!(true),
                "object" => json!({}),
                "array" => json!([]),
                _ => json!(text),
            };
            Value::Object(self.inputs.iter().map(|(name, kind)| (name.clone(), sample(kind))).collect())
        };
        let last = self.nodes.last().and_then(|node| self.answers.get(node["node_id"].as_str()?));
        let output = last
            .and_then(|answer| [answer.get("text"), answer.get("data")].into_iter().flatten().find_map(Value::as_str));
        json!({
            "name": author.text("用户的原话", "the user's words"),
            "input": input,
            "expect": {"output_contains": [output.unwrap_or(text)]},
            "answers": self.answers,
        })
    }
}
