//! Checks a workflow beyond its structure: every name in a template or condition must be visible there, and every
//! runnable must exist.

use super::condition::Condition;
use super::definition::{Shape, StageDefinition, Target, Workflow};
use super::reader::join;
use super::runnable_registry::{RunnableRegistry, paths};
use super::scope::{RESERVED, is_or_within};
use super::template::InputMapping;
use super::visible_names::{StageOutput, UsageSite, VisibleNames, check_variable};
use crate::document::Report;
use crate::document::finding::quoted;
use base::config::nearest::question;
use std::collections::BTreeMap;

/// Checks `workflow` against the runnables in `known`.
pub fn check(workflow: &Workflow, known: &RunnableRegistry) -> Report {
    let mut check = WorkflowChecker { known, report: Report::default() };
    check.workflow(workflow, "", None);
    known.check_runnables(workflow, &mut check.report);
    check.report
}

struct WorkflowChecker<'k> {
    known: &'k RunnableRegistry,
    report: Report,
}

impl<'k> WorkflowChecker<'k> {
    /// Checks a workflow. `around` has the names that the enclosing stage sees; `None` for the outermost workflow.
    fn workflow(&mut self, workflow: &'k Workflow, path: &str, around: Option<&VisibleNames<'k>>) {
        match &workflow.shape {
            Shape::Pipeline { stages, inherit_keys, .. } | Shape::Loop { stages, inherit_keys, .. } => {
                let names = self.inherited(workflow, inherit_keys, path, around);
                self.sequence(workflow, stages, path, names);
            }
            Shape::Parallel { branches, merge_template, .. } => {
                let mut names = around.cloned().unwrap_or_default();
                for (at, branch) in paths(&workflow.shape) {
                    let place = UsageSite::Branch { own: &branch.id, branches };
                    self.stage(branch, &join(path, &at), &names, place);
                }
                let known = self.known;
                names
                    .outputs
                    .extend(branches.iter().flat_map(|branch| branch.own_ids(&|id| known.workflow(id).cloned())));
                if let Some(template) = merge_template {
                    self.template(template, &join(path, "merge_template"), &names, UsageSite::Whole);
                }
            }
            Shape::Conditional { routes, .. } => {
                let names = around.cloned().unwrap_or_default();
                let stages = workflow.shape.stages();
                for (at, route) in routes.iter().enumerate() {
                    let path = join(path, &format!("routes[{at}].condition"));
                    self.condition(&route.condition, &path, &names, UsageSite::Route { stages: &stages });
                }
                for (at, stage) in paths(&workflow.shape) {
                    self.stage(stage, &join(path, &at), &names, UsageSite::Route { stages: &stages });
                }
            }
            // The validator has checked the references, and RUNNABLE nodes name their runnables by id.
            Shape::Graph(_) => {}
            // The runnable of a step sees only the step's question.
            Shape::Dynamic(_) => {
                for (at, agent) in paths(&workflow.shape) {
                    if let Target::Inline(within) = &agent.runnable {
                        self.workflow(within, &join(&join(path, &at), "runnable"), Some(&VisibleNames::default()));
                    }
                }
            }
        }
    }

    /// The names that the stages of a pipeline or loop see before the first stage has run. Reports illegal
    /// `inherit_keys`.
    fn inherited(
        &mut self,
        workflow: &'k Workflow,
        keys: &'k [String],
        path: &str,
        around: Option<&VisibleNames<'k>>,
    ) -> VisibleNames<'k> {
        for (at, key) in keys.iter().enumerate() {
            let path = join(path, &format!("inherit_keys[{at}]"));
            if RESERVED.contains(&key.as_str()) {
                let hint = "the stage that runs it can pass it in its `input`";
                self.report.error(path, format!("every workflow has a `{key}` of its own"), hint);
            } else if let Some(around) = around.filter(|around| !around.outputs.contains(key.as_str())) {
                let names = || around.outputs.iter().map(String::as_str);
                let problem =
                    format!("the enclosing workflow has no `{key}` at this point; it has {}", quoted(names().take(10)));
                self.report.error(path, problem, question(key, names()));
            } else if around.is_none() {
                let problem = format!("no workflow encloses this one, so `{key}` is always empty");
                self.report.warn(path, problem, "a workflow that is named by its id sees only its input; remove it");
            }
        }
        let outer = around.map(|around| around.outputs.union(&around.outer).cloned().collect()).unwrap_or_default();
        let within = around.into_iter().flat_map(|around| &around.outputs);
        let within = within.filter(|name| keys.iter().any(|key| is_or_within(name, key)));
        let outputs = keys.iter().chain(within).cloned().collect();
        VisibleNames { outputs, outer, of_loop: None, sequence: Some(workflow) }
    }

    fn sequence(
        &mut self,
        workflow: &'k Workflow,
        stages: &'k [StageDefinition],
        path: &str,
        mut names: VisibleNames<'k>,
    ) {
        let left: Vec<StageOutput> =
            stages.iter().enumerate().flat_map(|(by, stage)| self.stage_outputs(by, stage)).collect();
        self.collisions(&left, path, &names);
        if matches!(workflow.shape, Shape::Loop { .. }) {
            names.of_loop = Some(left.iter().map(|left| left.id.clone()).collect());
        }
        let mut coming = left.iter().peekable();
        for (at, stage) in stages.iter().enumerate() {
            let place = UsageSite::Sequence { at, left: &left };
            self.stage(stage, &join(path, &format!("stages[{at}]")), &names, place);
            while let Some(left) = coming.next_if(|left| left.by == at) {
                names.outputs.insert(left.id.clone());
            }
        }
        if let Shape::Loop { condition, .. } = &workflow.shape {
            self.condition(condition, &join(path, "condition"), &names, UsageSite::Whole);
        }
        if let Some(template) = workflow.shape.output() {
            self.output(template, &join(path, "output"), &names);
        }
    }

    /// Checks the output template of a pipeline or loop. It sees all stages.
    fn output(&mut self, template: &InputMapping, path: &str, names: &VisibleNames<'_>) {
        self.template(template, path, names, UsageSite::Whole);
        if template.variables().next().is_none() {
            let text = template.template().trim();
            let hint = match names.outputs.contains(text) {
                true => format!("write `{{{text}}}`"),
                false => "a stage's output is written in braces: `{stage}`".to_owned(),
            };
            self.report.warn(path, "names no stage, so every run has the same output", hint);
        }
    }

    /// The outputs of a stage in a pipeline or loop; for a parallel workflow also the outputs of its branches.
    fn stage_outputs(&self, by: usize, stage: &'k StageDefinition) -> Vec<StageOutput> {
        let ids = stage.output_ids(&|id| self.known.workflow(id).cloned());
        let left = ids.into_iter().enumerate();
        left.map(|(at, id)| StageOutput { by, is_branch: at > 0 && !id.contains('.'), id }).collect()
    }

    /// Reports names that stand for two outputs. The reader reports two stages with the same id.
    fn collisions(&mut self, left: &[StageOutput], path: &str, names: &VisibleNames<'k>) {
        let mut first: BTreeMap<&str, &StageOutput> = BTreeMap::new();
        // Outputs of inner stages have a path that begins with the stage's own name, so they cannot collide.
        for one in left.iter().filter(|one| !one.id.contains('.')) {
            let other = match first.get(one.id.as_str()) {
                _ if names.outputs.contains(&one.id) => Some("one of `inherit_keys`".to_owned()),
                Some(other) if one.is_branch || other.is_branch => Some(format!("an output of `stages[{}]`", other.by)),
                _ => None,
            };
            if let Some(other) = other {
                let (what, field) = if one.is_branch { ("branch", "runnable") } else { ("stage", "id") };
                let problem = format!("the {what} `{}` has the same name as {other}", one.id);
                let hint =
                    "give one of them another id: once a parallel has ended, its branches' outputs go by their ids";
                self.report.error(join(path, &format!("stages[{}].{field}", one.by)), problem, hint);
            }
            first.entry(&one.id).or_insert(one);
        }
    }

    fn stage(&mut self, stage: &'k StageDefinition, path: &str, names: &VisibleNames<'k>, place: UsageSite<'_>) {
        self.template(&stage.input, &join(path, "input"), names, place);
        if let Some(condition) = &stage.condition {
            self.condition(condition, &join(path, "condition"), names, place);
        }
        if let Target::Inline(workflow) = &stage.runnable {
            self.workflow(workflow, &join(path, "runnable"), Some(names));
        }
    }

    fn template(&mut self, template: &InputMapping, path: &str, names: &VisibleNames<'_>, place: UsageSite<'_>) {
        self.variables(&template.get_dependencies(), path, names, place);
        for (whole, name) in template.nearly() {
            if check_variable(names, place, name).is_ok() {
                let problem = format!("`{whole}` is plain text, not a variable");
                self.report.warn(path, problem, format!("write `{{{name}}}`"));
            }
        }
    }

    fn condition(&mut self, condition: &Condition, path: &str, names: &VisibleNames<'_>, place: UsageSite<'_>) {
        self.variables(&condition.get_dependencies(), path, names, place);
    }

    fn variables(&mut self, variables: &[String], path: &str, names: &VisibleNames<'_>, place: UsageSite<'_>) {
        for variable in variables {
            match check_variable(names, place, variable) {
                Ok(None) => {}
                Ok(Some((problem, hint))) => self.report.warn(path, problem, hint),
                Err((problem, hint)) => self.report.error(path, problem, hint),
            }
        }
    }
}

#[cfg(test)]
mod tests;
