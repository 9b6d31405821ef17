//! Builds workflows in code. A builder makes the document that a workflow file would have, so hash, events and output
//! equal those of the same workflow in YAML. Programs find the builders in `turnwheel::workflow`.
//!
//! ```
//! use turnwheel_definitions::workflow::builder::{Loop, Pipeline, Stage};
//!
//! let research = Loop::new("research_loop")
//!     .max_iterations(3)
//!     .condition("{reflection} contains 'CONTINUE'")
//!     .inherit(["plan"])
//!     .stage(Stage::new("retrieve", "retrieve_agent").input("{plan}\n{loop.last.retrieve}"))
//!     .stage(Stage::new("reflection", "reflection_agent").input("{retrieve}"));
//! let workflow = Pipeline::new("research")
//!     .stage(Stage::new("plan", "planner_agent").input("{query}"))
//!     .stage(Stage::new("findings", research).input("{plan}"))
//!     .stage(Stage::new("summary", "summary_agent").input("{findings}").condition("{findings}"))
//!     .build()?;
//! assert_eq!(workflow.id(), "research");
//! # Ok::<(), turnwheel_definitions::workflow::read::WorkflowError>(())
//! ```

use super::definition::{LimitsConfig, WorkflowRecord};
use super::read::WorkflowError;
use super::structure;
use base::clock;
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::duration;
use types::model_names::ModelNames;

/// The runnable of a stage: the id of a task agent, workflow or flow, or an inline workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Runnable(Value);

impl From<&str> for Runnable {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for Runnable {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

/// A stage of a workflow.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Stage(Map<String, Value>);

impl Stage {
    /// A stage that runs `runnable` with the workflow's input.
    pub fn new(id: impl Into<String>, runnable: impl Into<Runnable>) -> Self {
        let fields = [("id", id.into().into()), ("runnable", runnable.into().0)];
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Sets the template of the stage's input. An unknown name appears in the input as `[未找到: NAME]`.
    pub fn input(self, template: impl Into<String>) -> Self {
        self.with("input", template.into())
    }

    /// Sets the condition under which the stage runs. Otherwise it is skipped, and its output is empty.
    pub fn condition(self, condition: impl Into<String>) -> Self {
        self.with("condition", condition.into())
    }

    /// Sets the number of attempts, and the delay before the second one. The delay doubles for each further attempt.
    pub fn retry(self, max_attempts: u32, backoff: Duration) -> Self {
        self.with("retry", json!({ "max_attempts": max_attempts, "backoff": duration::format(backoff) }))
    }

    /// Sets the model that the stage's task agent uses instead of its own. In a list, the next model is called if the
    /// one before fails.
    pub fn model(self, names: impl Into<ModelNames>) -> Self {
        self.with("model", json!(names.into()))
    }

    /// Sets the timeout of one attempt.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with("timeout", duration::format(timeout))
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

macro_rules! workflows {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            #[must_use]
            pub struct $name(Map<String, Value>);

            impl $name {
                /// A workflow with this id and without stages.
                pub fn new(id: impl Into<String>) -> Self {
                    Self(Map::from_iter([("type".to_owned(), $kind.into()), ("id".to_owned(), id.into().into())]))
                }

                /// Sets the description for listings.
                pub fn description(self, description: impl Into<String>) -> Self {
                    self.with("description", description.into())
                }

                /// Sets the limits of a run. They have no effect in an inline workflow.
                pub fn limits(self, limits: LimitsConfig) -> Self {
                    self.with("limits", structure::limits(&limits))
                }

                /// Builds the workflow. Fails if it cannot work.
                pub fn build(self) -> Result<WorkflowRecord, WorkflowError> {
                    WorkflowRecord::from_document(Value::Object(self.0), clock::now())
                }

                fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
                    self.0.insert(name.to_owned(), value.into());
                    self
                }
            }

            impl From<$name> for Runnable {
                fn from(workflow: $name) -> Self {
                    Self(Value::Object(workflow.0))
                }
            }
        )*
    };
}

workflows! {
    /// A pipeline: runs its stages one after the other.
    Pipeline = "pipeline";
    /// A loop: repeats its stages while the condition holds.
    Loop = "loop";
    /// A parallel workflow: runs all branches concurrently.
    Parallel = "parallel";
    /// A conditional workflow: runs the first route whose condition holds.
    Conditional = "conditional";
    /// A dynamic workflow: runs a plan that a model makes. It needs its four roles and at least one agent.
    Dynamic = "dynamic";
}

impl Pipeline {
    /// Adds a stage.
    pub fn stage(mut self, stage: Stage) -> Self {
        push(&mut self.0, "stages", stage.0.into());
        self
    }

    /// Sets the template of the output. Without one, the output is that of the last stage.
    pub fn output(self, template: impl Into<String>) -> Self {
        self.with("output", template.into())
    }

    /// Sets the outputs of the enclosing workflow that the stages see.
    pub fn inherit(self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with("inherit_keys", keys.into_iter().map(Into::into).collect::<Vec<String>>())
    }
}

impl Loop {
    /// Adds a stage.
    pub fn stage(mut self, stage: Stage) -> Self {
        push(&mut self.0, "stages", stage.0.into());
        self
    }

    /// Sets the condition that is checked after each iteration: if it holds, another iteration follows.
    pub fn condition(self, condition: impl Into<String>) -> Self {
        self.with("condition", condition.into())
    }

    /// Sets the largest number of iterations, at least 1; 10 unless given.
    pub fn max_iterations(self, most: u32) -> Self {
        self.with("max_iterations", most)
    }

    /// Sets the template that makes the output from the outputs of the last iteration. Without one, the output is that
    /// of the last stage.
    pub fn output(self, template: impl Into<String>) -> Self {
        self.with("output", template.into())
    }

    /// Sets the outputs of the enclosing workflow that the stages see.
    pub fn inherit(self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with("inherit_keys", keys.into_iter().map(Into::into).collect::<Vec<String>>())
    }
}

impl Parallel {
    /// Adds a branch.
    pub fn branch(mut self, branch: Stage) -> Self {
        push(&mut self.0, "branches", branch.0.into());
        self
    }

    /// Sets the template that makes the output from the outputs of the branches.
    pub fn merge_template(self, template: impl Into<String>) -> Self {
        self.with("merge_template", template.into())
    }

    /// Sets how many branches run concurrently.
    pub fn max_concurrency(self, most: u32) -> Self {
        self.with("max_concurrency", most)
    }
}

impl Conditional {
    /// Adds a route. Its stage runs if its condition holds and no condition of an earlier route does.
    pub fn route(mut self, condition: impl Into<String>, stage: Stage) -> Self {
        let route = Stage(Map::new()).with("condition", condition.into()).with("stage", stage.0);
        push(&mut self.0, "routes", route.0.into());
        self
    }

    /// Sets the stage that runs if no route's condition holds.
    pub fn default(self, stage: Stage) -> Self {
        self.with("default", stage.0)
    }
}

/// The task agent in a role of a [`Dynamic`] workflow.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Role(Map<String, Value>);

impl Role {
    /// A task agent with its own model.
    pub fn new(agent: impl Into<String>) -> Self {
        Self(Map::from_iter([("agent".to_owned(), agent.into().into())]))
    }

    /// Sets the model that the agent uses instead of its own. In a list, the next model is called if the one before
    /// fails.
    pub fn model(mut self, names: impl Into<ModelNames>) -> Self {
        self.0.insert("model".into(), json!(names.into()));
        self
    }
}

impl From<&str> for Role {
    fn from(agent: &str) -> Self {
        Self::new(agent)
    }
}

/// An agent that the steps of a plan may name.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct SubAgent(Map<String, Value>);

impl SubAgent {
    /// An agent with this name. The planner reads the description of its abilities.
    pub fn new(name: impl Into<String>, runnable: impl Into<Runnable>, description: impl Into<String>) -> Self {
        let fields =
            [("name", name.into().into()), ("runnable", runnable.into().0), ("description", description.into().into())];
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Sets attempts and delay, see [`Stage::retry`].
    pub fn retry(self, max_attempts: u32, backoff: Duration) -> Self {
        Self(Stage(self.0).retry(max_attempts, backoff).0)
    }

    /// Sets the timeout of one attempt, see [`Stage::timeout`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(Stage(self.0).timeout(timeout).0)
    }

    /// Sets the model, see [`Stage::model`].
    pub fn model(self, names: impl Into<ModelNames>) -> Self {
        Self(Stage(self.0).model(names).0)
    }
}

impl Dynamic {
    /// Sets the agent that makes the plan, asks the user back or rejects the question.
    pub fn plan(self, role: impl Into<Role>) -> Self {
        self.with("plan", role.into().0)
    }

    /// Sets the agent that decides how to continue after an incomplete review.
    pub fn replan(self, role: impl Into<Role>) -> Self {
        self.with("replan", role.into().0)
    }

    /// Sets the agent that judges whether the results are complete.
    pub fn review(self, role: impl Into<Role>) -> Self {
        self.with("review", role.into().0)
    }

    /// Sets the agent that writes the answer.
    pub fn summary(self, role: impl Into<Role>) -> Self {
        self.with("summary", role.into().0)
    }

    /// Adds an agent that the steps of a plan may name.
    pub fn agent(mut self, agent: SubAgent) -> Self {
        push(&mut self.0, "agents", agent.0.into());
        self
    }

    /// Sets the largest number of node activations; 10 unless given.
    pub fn max_iterations(self, most: u32) -> Self {
        self.with("max_iterations", most)
    }

    /// Sets how many steps of a plan run concurrently.
    pub fn max_concurrency(self, most: u32) -> Self {
        self.with("max_concurrency", most)
    }
}

fn push(fields: &mut Map<String, Value>, name: &str, item: Value) {
    if let Value::Array(items) = fields.entry(name).or_insert_with(|| json!([])) {
        items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::read;
    use std::path::Path;

    #[test]
    fn what_is_built_is_what_the_file_says() {
        let yaml = "
type: pipeline
id: w
description: 例子
limits: {max_stages: 5, timeout: 2m}
output: '{b}'
stages:
  - {id: a, runnable: x, input: '{query}', condition: 'not {query}', retry: {max_attempts: 2, backoff: 500ms}, timeout: 1m, model: fast}
  - id: b
    input: '{a}'
    runnable:
      type: parallel
      id: p
      merge_template: '{l}{c}'
      max_concurrency: 2
      branches:
        - id: l
          runnable: {type: loop, id: l, condition: '{s}', max_iterations: 3, output: '{s}', inherit_keys: [a], stages: [{id: s, runnable: x}]}
        - id: c
          runnable:
            type: conditional
            id: c
            routes: [{condition: '{a}', stage: {id: one, runnable: x}}]
            default: {id: other, runnable: {type: pipeline, id: within, inherit_keys: [a], stages: [{id: last, runnable: x, input: '{a}'}]}}
";
        let file = read::text(Path::new("w.yaml"), yaml).unwrap();
        let looped =
            Loop::new("l").condition("{s}").max_iterations(3).output("{s}").inherit(["a"]).stage(Stage::new("s", "x"));
        let nested = Pipeline::new("within").inherit(["a"]).stage(Stage::new("last", "x").input("{a}"));
        let choice = Conditional::new("c").route("{a}", Stage::new("one", "x")).default(Stage::new("other", nested));
        let parallel = Parallel::new("p").merge_template("{l}{c}").max_concurrency(2);
        let limits =
            LimitsConfig { max_stages: Some(5), timeout: Some(Duration::from_secs(120)), ..LimitsConfig::default() };
        let first = Stage::new("a", "x")
            .input("{query}")
            .condition("not {query}")
            .retry(2, Duration::from_millis(500))
            .timeout(Duration::from_secs(60))
            .model("fast");
        let both = parallel.branch(Stage::new("l", looped)).branch(Stage::new("c", choice));
        let pipeline = Pipeline::new("w").description("例子").limits(limits).output("{b}");
        let built = pipeline.stage(first).stage(Stage::new("b", both).input("{a}")).build().unwrap();
        assert_eq!((&built.document, &built.hash, &built.workflow), (&file.document, &file.hash, &file.workflow));
    }

    #[test]
    fn what_cannot_work_is_an_error_and_a_name_that_leads_nowhere_is_not() {
        let error = Pipeline::new("w").build().unwrap_err().to_string();
        assert_eq!(error, "stages: is missing; it needs at least one stage");
        assert!(Pipeline::new("w").stage(Stage::new("a", "x").input("{never}")).build().is_ok());
    }
}
