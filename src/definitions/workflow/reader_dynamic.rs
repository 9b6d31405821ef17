//! Parses workflows with `type: dynamic`.

use super::definition::{DynamicDefinition, RoleDefinition, StageDefinition, SubAgentDefinition};
use super::fields;
use super::reader::{MAX_ITERATIONS, Reader, Table};
use super::template::InputMapping;

/// Node activations of the longest run with one retry.
const LONGEST: u32 = 7;

impl Reader {
    pub(super) fn dynamic(&mut self, table: Table<'_>) -> Option<DynamicDefinition> {
        let roles = ["plan", "replan", "review", "summary"].map(|name| self.role(table, name));
        let agents = self.sub_agents(table);
        let max_iterations = self.count(table, "max_iterations", 1).unwrap_or(MAX_ITERATIONS);
        if max_iterations < LONGEST {
            let problem = format!("is less than the {LONGEST} nodes of a run that tries again");
            self.report.warn(table.at("max_iterations"), problem, "such a run ends with its results so far");
        }
        let max_concurrency = self.count(table, "max_concurrency", 1);
        let [plan, replan, review, summary] = roles;
        Some(DynamicDefinition {
            plan: plan?,
            replan: replan?,
            review: review?,
            summary: summary?,
            agents,
            max_iterations,
            max_concurrency,
        })
    }

    fn role(&mut self, table: Table<'_>, name: &str) -> Option<RoleDefinition> {
        let hint = "write `{agent: some_agent}`, with `model: name` to override its model";
        let path = table.at(name);
        let Some(value) = table.get(name) else {
            self.missing(table, name, hint);
            return None;
        };
        let role = self.table(value, &path, hint)?;
        fields::check(role.fields, &path, "role", &mut self.report);
        let agent = self.text(role, "agent");
        match agent {
            Some(agent) => self.legal(&role.at("agent"), agent),
            None if role.get("agent").is_none() => self.missing(role, "agent", "name a task agent"),
            None => {}
        }
        let model = self.model(role);
        Some(RoleDefinition { agent: agent?.to_owned(), model })
    }

    fn sub_agents(&mut self, table: Table<'_>) -> Vec<SubAgentDefinition> {
        let (mut agents, mut names) = (Vec::new(), Vec::new());
        for (path, value) in self.list(table, "agents", "one agent") {
            let hint = "an agent is a table with `name`, `runnable` and `description`";
            let Some(agent) = self.table(value, &path, hint) else { continue };
            fields::check(agent.fields, &path, "sub_agent", &mut self.report);
            let name = self.text(agent, "name");
            match name {
                Some(name) => self.stage_id(&agent.at("name"), name),
                None if agent.get("name").is_none() => self.missing(agent, "name", "plans name it so"),
                None => {}
            }
            let description = self.text(agent, "description").unwrap_or_default().to_owned();
            if agent.get("description").is_none() {
                let hint = "describe what it can find out; the planner decides by it";
                self.report.warn(agent.at("description"), "is missing", hint);
            }
            let (runnable, retry) = (self.runnable(agent), self.retry(agent));
            let (timeout, model) = (self.duration(agent, "timeout"), self.model(agent));
            let (Some(name), Some(runnable)) = (name, runnable) else { continue };
            names.push((path.clone(), name.to_owned()));
            let input = InputMapping::default();
            let stage =
                StageDefinition { id: name.to_owned(), runnable, input, condition: None, retry, timeout, model };
            agents.push(SubAgentDefinition { stage, description });
        }
        self.unique(&names, "name");
        agents
    }
}

#[cfg(test)]
mod tests {
    use crate::workflow::builder::{Dynamic, Role, SubAgent};
    use crate::workflow::read;
    use crate::workflow::runnable_registry::RunnableRegistry;
    use std::path::Path;
    use std::time::Duration;

    const AGENTS: &str = "agents: [{name: a, runnable: x, description: z}]";

    fn with(roles: &str, rest: &str) -> String {
        format!("id: w\ntype: dynamic\n{roles}\nreview: {{agent: v, model: fast}}\nsummary: {{agent: s}}\n{rest}\n")
    }

    fn errors(content: &str) -> String {
        read::text(Path::new("w.yaml"), content).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_work_is_told_with_place_and_remedy() {
        let roles = "plan: {agent: p}\nreplan: {agent: r}";
        for (content, message) in [
            (
                with("plan: {agent: p}", AGENTS),
                "line 1, column 1: replan: is missing; write `{agent: some_agent}`, with `model: name` to override its model",
            ),
            (
                with("plan: p\nreplan: {agent: r}", AGENTS),
                "line 3, column 7: plan: found a text; write `{agent: some_agent}`, with `model: name` to override its model",
            ),
            (
                with("plan: {model: m}\nreplan: {agent: r}", AGENTS),
                "line 3, column 7: plan.agent: is missing; name a task agent",
            ),
            (with(roles, "agents: []"), "line 7, column 9: agents: is empty; it needs at least one agent"),
            (
                with(roles, "agents: [{runnable: x, description: z}]"),
                "line 7, column 10: agents[0].name: is missing; plans name it so",
            ),
            (
                with(roles, "agents: [{name: a b, runnable: x, description: z}]"),
                "line 7, column 17: agents[0].name: `a b` cannot be named in a template; an id has letters, digits, `_` and `-`, and at most 128 bytes",
            ),
            (
                with(roles, "agents: [{name: a, runnable: x, description: z}, {name: a, runnable: z, description: z}]"),
                "line 7, column 57: agents[1].name: `a` is the name of `agents[0]` too; give it another: a stage's output goes by its id",
            ),
            (
                with(roles, &format!("{AGENTS}\nmax_iterations: 0")),
                "line 8, column 17: max_iterations: found 0; expected a whole number of at least 1",
            ),
        ] {
            assert_eq!(errors(&content), message, "{content}");
        }
    }

    #[test]
    fn references_are_checked_and_a_role_needs_a_task_agent() {
        let known = RunnableRegistry::new(["x".to_owned()]).with_builtin();
        let checked = |content: &str| known.check(read::text(Path::new("w.yaml"), content).unwrap());
        let shipped = "id: w\ntype: dynamic\nplan: {agent: ops_plan_agent}\nreplan: {agent: ops_replan_agent}\n\
                       review: {agent: ops_review_agent}\nsummary: {agent: ops_summary_agent}\nagents: [{name: a, runnable: x, description: z}]\n";
        assert_eq!(checked(shipped).unwrap().1, []);
        let warned = checked(&format!("{}max_iterations: 5\n", shipped.replace(", description: z", ""))).unwrap().1;
        let paths: Vec<_> = warned.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["agents[0].description", "max_iterations"]);
        for (from, to, message) in [
            (
                "ops_plan_agent",
                "ops_pln_agent",
                "plan.agent: Runnable not found: ops_pln_agent; did you mean `ops_plan_agent`?",
            ),
            (
                "ops_review_agent",
                "smart_router",
                "review.agent: `smart_router` is a workflow; a role needs a task agent",
            ),
            (
                "ops_summary_agent",
                "sales",
                "summary.agent: Runnable not found: sales; `sales` is an agent that takes chats",
            ),
            ("runnable: x", "runnable: nobody", "agents[0].runnable: Runnable not found: nobody"),
            ("runnable: x", "runnable: w", "agents[0].runnable: a workflow cannot run itself"),
        ] {
            let error = checked(&shipped.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn what_is_built_is_what_the_file_says() {
        let file = "{type: dynamic, id: w, plan: {agent: p}, replan: {agent: r}, review: {agent: v, model: fast}, summary: {agent: s}, \
                    max_iterations: 8, max_concurrency: 2, agents: [{name: a, runnable: x, description: z, timeout: 5s, \
                    retry: {max_attempts: 2, backoff: 1s}}]}";
        let file = read::text(Path::new("w.yaml"), file).unwrap();
        let agent = SubAgent::new("a", "x", "z").timeout(Duration::from_secs(5)).retry(2, Duration::from_secs(1));
        let roles = Dynamic::new("w").plan("p").replan("r").review(Role::new("v").model("fast")).summary("s");
        let built = roles.agent(agent).max_iterations(8).max_concurrency(2).build().unwrap();
        assert_eq!((&built.document, &built.hash, &built.workflow), (&file.document, &file.hash, &file.workflow));
    }
}
