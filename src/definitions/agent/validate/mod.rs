//! Checks an agent beyond the types of its fields. An error means that the agent cannot work, a warning is a probable
//! mistake.
//!
//! This file checks the agent itself; [`fields`] finds unknown fields, [`call`] checks HTTP calls and parameters,
//! [`coordinator`] checks the fields that only coordinators have, [`knowledge`] the patterns of knowledge files, and
//! [`rule`] the rules of the offline model.

mod call;
mod coordinator;
mod fields;
mod knowledge;
mod rule;

use crate::document::{Finding, Report};

use super::AgentRecord;
use super::load::AgentError;
use crate::document::finding::quoted;
use base::config::Settings;
use base::config::nearest::question;
use base::http_client::private::Guard;
pub(crate) use coordinator::unknown_connector;
pub(crate) use knowledge::{INSIDE, PatternProblem, check_pattern};
use serde_json::Value;
use std::collections::BTreeSet;
use types::action::{Action, ActionKind};
use types::agent::coordinator::Mode;
use types::agent::{AgentConfig, normalized};
use types::allowed_secrets::{AllowedSecrets, SecretRefusal};
use types::budget::Budget;
use types::ids;
use types::model_names::ModelNames;
use types::timer::{MAX_TIMER_BYTES, MAX_TIMERS};

/// The built-in functions that a tool may name in `builtin`.
pub const BUILTINS: &[&str] = &["now"];

/// The largest legal value of `max_iterations`.
const MAX_ITERATIONS: u32 = 100;

/// The names that an agent may refer to: models, flows, functions, secrets and connectors.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    flows: Vec<String>,
    secrets: AllowedSecrets,
    models: Vec<String>,
    functions: Vec<String>,
    private: Option<Guard>,
    connectors: Option<Vec<String>>,
}

impl KnownNames {
    /// The names in `settings`, and these flows.
    pub fn new(settings: &Settings, flows: Vec<String>) -> Self {
        let models = settings.models.keys().cloned().collect();
        let (secrets, functions) = (settings.secrets.allowed(), Vec::new());
        let connectors = Some(settings.connectors.keys().cloned().collect());
        Self { flows, secrets, models, functions, private: None, connectors }
    }

    /// The models that agents may name in addition to `default` and `offline`.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// The flows, workflows included.
    pub fn flows(&self) -> &[String] {
        &self.flows
    }

    /// The functions that are registered in Rust.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// The connectors; `None` if they are unknown.
    pub fn connectors(&self) -> Option<&[String]> {
        self.connectors.as_deref()
    }

    /// Sets the connectors. Agents and workflows that name others get a warning.
    pub fn with_connectors(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { connectors: Some(names.into_iter().collect()), ..self }
    }

    /// Adds models that are registered in Rust.
    pub fn with_models(mut self, models: impl IntoIterator<Item = String>) -> Self {
        self.models.extend(models);
        self
    }

    /// Adds functions that are registered in Rust for tools and skills.
    pub fn with_functions(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        self.functions.extend(ids);
        self
    }

    /// Adds flows, such as workflows.
    pub fn with_flows(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        self.flows.extend(ids);
        self
    }

    /// The secrets that agents and workflows may send.
    pub fn secrets(&self) -> &AllowedSecrets {
        &self.secrets
    }

    /// Adds secrets that agents may send: entries as in the setting `secrets.allow`. A bare name is for all hosts,
    /// because the process that has announced it runs with `secrets.unbound`.
    pub fn with_secrets(mut self, entries: impl IntoIterator<Item = String>) -> Self {
        let entries: Vec<String> = entries.into_iter().collect();
        self.secrets.extend(AllowedSecrets::read(&entries, true).0);
        self
    }

    /// Sets the private hosts that workers may call. Agents that call other private hosts get a warning. Invalid
    /// entries are ignored.
    pub fn with_private(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        let hosts: Vec<String> =
            hosts.into_iter().filter(|host| Guard::new(std::slice::from_ref(host)).is_ok()).collect();
        self.private = Guard::new(&hosts).ok();
        self
    }

    /// Checks an agent. Returns it with its warnings, or the errors that keep it from working.
    pub fn check(&self, agent: AgentRecord) -> Result<(AgentRecord, Vec<Finding>), AgentError> {
        let context = Context {
            known_flows: Some(&self.flows),
            secrets: Some(&self.secrets),
            models: &self.models,
            functions: &self.functions,
            private: self.private.as_ref(),
            connectors: self.connectors(),
        };
        let mut report = validate(&agent.config, &agent.document, context);
        if let Some(text) = &agent.source {
            report.find(text);
        }
        if report.is_ok() { Ok((agent, report.warnings)) } else { Err(AgentError::Invalid(report.errors)) }
    }
}

/// The names that an agent is checked against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The existing flows; `None` if they are unknown.
    pub known_flows: Option<&'a [String]>,
    /// The setting `secrets.allow`; `None` allows no secret.
    pub secrets: Option<&'a AllowedSecrets>,
    /// Names of the models in the settings.
    pub models: &'a [String],
    /// Ids of the registered functions.
    pub functions: &'a [String],
    /// The private hosts that workers may call; `None` if they are unknown.
    pub private: Option<&'a Guard>,
    /// The connectors of the settings; `None` if they are unknown.
    pub connectors: Option<&'a [String]>,
}

/// Checks `config` against `context`. `document` is the file that it was parsed from.
pub fn validate(config: &AgentConfig, document: &Value, context: Context<'_>) -> Report {
    let mut check = AgentChecker { config, context, report: Report::default() };
    fields::check(document, &mut check.report);
    check.agent();
    check.model();
    check.skills();
    check.tools();
    check.unique_ids();
    check.flows();
    check.timers();
    check.handoff();
    check.coordinator();
    for (at, rule) in config.rules.iter().enumerate() {
        rule::check(&mut check, &format!("rules[{at}]"), rule);
    }
    check.report
}

/// Checks that every name is a model: `default`, `offline` or one of `known`.
pub(crate) fn models(names: &ModelNames, path: &str, known: &[String], report: &mut Report) {
    let known: Vec<&str> = ["default", "offline"].into_iter().chain(known.iter().map(String::as_str)).collect();
    let mut seen = BTreeSet::new();
    for (at, model) in names.iter().enumerate() {
        let path = names.place(path, at);
        if !known.contains(&model) {
            let problem = format!("there is no model `{model}`; known are {}", quoted(known.iter().copied()));
            let close = question(model, known.iter().copied());
            let hint = format!("{close} Add [models.{model}] to the settings, or name another");
            report.error(path, problem, hint.trim());
        } else if !seen.insert(model) {
            report.warn(
                path,
                format!("`{model}` is named twice"),
                "after it fails, it would be called a second time; remove it",
            );
        }
    }
}

struct AgentChecker<'a> {
    config: &'a AgentConfig,
    context: Context<'a>,
    report: Report,
}

impl AgentChecker<'_> {
    /// Checks that a secret may be sent to `host`; without a host, that it may be sent at all.
    fn secret(&self, name: &str, host: Option<&str>) -> Result<(), SecretRefusal> {
        self.context.secrets.unwrap_or(&AllowedSecrets::default()).check(name, host)
    }

    fn id(&mut self, path: &str, id: &str) {
        if let Err(error) = ids::check("id", id) {
            self.report.error(path, error.to_string(), "");
        }
    }

    fn agent(&mut self) {
        let config = self.config;
        self.id("id", &config.id);
        let blank_prompt = config.system_prompt.as_deref().is_some_and(|prompt| prompt.trim().is_empty());
        if blank_prompt {
            self.report.error("system_prompt", "is empty", "describe the task of the agent's stage");
        }
        if config.sop.trim().is_empty() && config.system_prompt.is_none() {
            let hint = "describe in `sop` how it serves its users, or give a task agent a `system_prompt`";
            self.report.error("sop", "is missing or empty", hint);
        }
        if !config.sop.trim().is_empty() && config.system_prompt.is_some() {
            self.report.warn(
                "sop",
                "is not used",
                "an agent with `system_prompt` serves workflows and has no procedure",
            );
        }
        self.without_effect();
        if config.greeting.as_deref().is_some_and(|greeting| greeting.trim().is_empty()) {
            self.report.warn("greeting", "is empty", "remove it if the agent does not greet");
        }
        if !(1..=MAX_ITERATIONS).contains(&config.max_iterations) {
            let problem = format!("found {}; allowed is 1 to {MAX_ITERATIONS}", config.max_iterations);
            self.report.error("max_iterations", problem, "");
        }
        for (at, file) in config.knowledge.iter().flat_map(|knowledge| &knowledge.files).enumerate() {
            if file.trim().is_empty() {
                self.report.error(
                    format!("knowledge.files[{at}]"),
                    "is empty",
                    "write a path or a pattern such as `kb/*.md`",
                );
            } else if let Err((problem, hint)) = check_pattern(file) {
                self.report.error(format!("knowledge.files[{at}]"), problem, hint);
            }
        }
    }

    /// Warns of fields of chat agents in a task agent.
    fn without_effect(&mut self) {
        let config = self.config;
        if !config.is_task_agent() {
            return;
        }
        let given = [
            ("greeting", config.greeting.is_some()),
            ("skills", !config.skills.is_empty()),
            ("flows", !config.flows.is_empty()),
            ("timers", !config.timers.is_empty()),
            ("knowledge", config.knowledge.is_some()),
            ("mode", config.mode != Mode::Actions),
            ("handoff", config.handoff != types::agent::HandoffConfig::default()),
        ];
        for (field, _) in given.into_iter().filter(|(_, given)| *given) {
            let hint =
                "it is for agents that take chats; remove it, or give the agent an `sop` in place of `system_prompt`";
            self.report.warn(field, "has no effect in a task agent", hint);
        }
    }

    fn model(&mut self) {
        models(&self.config.model, "model", self.context.models, &mut self.report);
        let Budget { turn, session, .. } = self.config.budget;
        for (name, _) in [("turn", turn), ("session", session)].into_iter().filter(|(_, most)| most.is_some()) {
            if self.config.is_task_agent() {
                let hint =
                    "a workflow has `limits.max_tokens`; the chat agent whose turn it is has a budget of its own";
                self.report.warn(format!("budget.{name}"), "has no effect in a task agent", hint);
            }
        }
    }

    fn skills(&mut self) {
        for (at, skill) in self.config.skills.iter().enumerate() {
            let path = format!("skills[{at}]");
            self.id(&format!("{path}.id"), &skill.id);
            call::params(self, &format!("{path}.params"), &skill.params);
            match &skill.http {
                Some(http) => call::http(self, &format!("{path}.http"), http, Some(&skill.params)),
                None => self.registered(&path, &skill.id),
            }
        }
    }

    fn tools(&mut self) {
        for (at, tool) in self.config.tools.iter().enumerate() {
            let path = format!("tools[{at}]");
            self.id(&format!("{path}.id"), &tool.id);
            call::params(self, &format!("{path}.params"), &tool.params);
            if let Some(http) = &tool.http {
                call::http(self, &format!("{path}.http"), http, Some(&tool.params));
            }
            match (&tool.http, &tool.builtin) {
                (Some(_), Some(_)) => self.report.error(&path, "has both `http` and `builtin`", "remove one"),
                (None, None) => self.registered(&path, &tool.id),
                (None, Some(name)) if !BUILTINS.contains(&name.as_str()) => {
                    let problem =
                        format!("there is no builtin `{name}`; known are {}", quoted(BUILTINS.iter().copied()));
                    self.report.error(format!("{path}.builtin"), problem, question(name, BUILTINS.iter().copied()));
                }
                (None, Some(_)) | (Some(_), None) => {}
            }
        }
    }

    fn registered(&mut self, path: &str, id: &str) {
        if self.context.functions.iter().any(|known| known == id) {
            return;
        }
        let hint = format!("it works only where a function is registered in Rust as `{id}`");
        self.report.warn(path, "has no `http`", hint);
    }

    /// Checks that no skill or tool has the id of another: `result_of` of a rule names its target without its kind.
    fn unique_ids(&mut self) {
        let mut seen = BTreeSet::new();
        let skills = self.config.skills.iter().enumerate().map(|(at, skill)| (format!("skills[{at}].id"), &skill.id));
        let tools = self.config.tools.iter().enumerate().map(|(at, tool)| (format!("tools[{at}].id"), &tool.id));
        for (path, id) in skills.chain(tools) {
            if !seen.insert(id) {
                let problem = format!("`{id}` is the id of another skill or tool");
                self.report.error(path, problem, "give it another");
            }
        }
    }

    fn flows(&mut self) {
        for (at, flow) in self.config.flows.iter().enumerate() {
            let path = format!("flows[{at}]");
            self.id(&path, flow);
            if let Some(known) = self.context.known_flows
                && !known.contains(flow)
            {
                let names = known.iter().map(String::as_str);
                let problem = format!("there is no flow `{flow}`; known are {}", quoted(names.clone()));
                self.report.error(path, problem, question(flow, names));
            }
        }
        if self.config.flow_timeout().is_zero() {
            self.report.error("flow_timeout", "is zero", "write how long a flow waits for its answer, such as `24h`");
        }
        for (at, word) in self.config.cancel_words.iter().enumerate() {
            if normalized(word).is_empty() {
                let hint = "write the word, such as `取消`; an empty list has none";
                self.report.error(format!("cancel_words[{at}]"), "has no letter", hint);
            }
        }
    }

    fn timers(&mut self) {
        if self.config.timers.len() > MAX_TIMERS {
            let problem = format!("has {} timers, at most {MAX_TIMERS} are allowed", self.config.timers.len());
            self.report.error("timers", problem, "remove some");
        }
        for (at, timer) in self.config.timers.iter().enumerate() {
            let path = format!("timers[{at}]");
            let bytes = serde_json::json!(timer).to_string().len();
            if bytes > MAX_TIMER_BYTES {
                let problem = format!("has {bytes} bytes, at most {MAX_TIMER_BYTES} are allowed");
                self.report.error(&path, problem, "shorten its `message` or `params`");
            }
            if timer.delay.is_zero() {
                self.report.error(format!("{path}.delay"), "is zero", "write when it fires, such as `30m`");
            }
            let speaks = timer.message.as_deref().is_some_and(|message| !message.trim().is_empty());
            if !speaks && timer.action.is_none() {
                self.report.error(&path, "has neither `message` nor `action`", "it would do nothing; give it one");
            }
            if let Some(action) = &timer.action {
                self.action(&format!("{path}.action"), action);
            }
        }
    }

    fn handoff(&mut self) {
        if let Some(http) = &self.config.handoff.http {
            call::http(self, "handoff.http", http, None);
        }
        if self.config.handoff.timeout().is_zero() {
            self.report.error("handoff.timeout", "is zero", "write how long a human has, such as `24h`");
        }
        if self.config.handoff.claim_timeout().is_zero() {
            let hint =
                "write how long a person who has the conversation may leave the user without an answer, such as `10m`";
            self.report.error("handoff.claim_timeout", "is zero", hint);
        }
    }

    /// Checks that the target of an action exists, and that its required parameters are given.
    fn action(&mut self, path: &str, action: &Action) {
        let target = action.target.as_str();
        let known = self.config.targets(action.kind);
        if !known.contains(&target) {
            let kind = action.kind.as_str();
            let problem = format!("this agent has no {kind} `{target}`; known are {}", quoted(known.iter().copied()));
            self.report.error(format!("{path}.target"), problem, question(target, known));
        }
        let params = match action.kind {
            ActionKind::Skill => self.config.skills.iter().find(|skill| skill.id == target).map(|skill| &skill.params),
            ActionKind::Tool => self.config.tools.iter().find(|tool| tool.id == target).map(|tool| &tool.params),
            ActionKind::Flow | ActionKind::System => None,
        };
        for name in params.into_iter().flat_map(call::required) {
            if !action.params.contains_key(name) {
                self.report.warn(
                    format!("{path}.params"),
                    format!("`{name}` is missing, which `{target}` requires"),
                    "add it",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
