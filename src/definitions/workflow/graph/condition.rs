//! Conditions of edges, CONDITION nodes and LOOPs: the grammar of workflow files, with references `${…}` as operands.

use crate::workflow::condition::{Condition, ConditionError};
use crate::workflow::scope::Scope;
use decisions::reference::as_condition;
use decisions::reference::resolve::{Found, Values, as_text};
use std::sync::Arc;
use thiserror::Error;

/// Why a text is not a valid condition of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}`: {source}")]
pub struct GraphConditionError {
    /// The text.
    pub text: String,
    /// The problem, in which `{r0}` is the first reference.
    #[source]
    pub source: ConditionError,
}

/// A condition whose operands are references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphCondition {
    /// The condition as written.
    text: String,
    /// The condition with the variable `{r0}` for the first reference, and so on.
    condition: Condition,
}

impl GraphCondition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, GraphConditionError> {
        let (written, _) = as_condition(text);
        let condition =
            Condition::parse(&written).map_err(|source| GraphConditionError { text: text.to_owned(), source })?;
        Ok(Self { text: text.to_owned(), condition })
    }

    /// The condition as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Evaluates the condition. A reference that leads nowhere, or to null, counts as empty text.
    pub fn holds(&self, values: &dyn Values) -> bool {
        let (_, references) = as_condition(&self.text);
        let outputs = references.into_iter().enumerate().map(|(at, reference)| {
            let text = match values.find(reference) {
                Found::Value(value) if !value.is_null() => Some(Arc::from(as_text(&value))),
                Found::Value(_) | Found::Secret(_) | Found::Missing => None,
            };
            (format!("r{at}"), text)
        });
        self.condition.holds(&Scope::root("", None).with(outputs))
    }
}

/// The condition of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeCondition {
    /// The branch of a CONDITION node.
    Branch(bool),
    /// Any other condition.
    Holds(GraphCondition),
}

impl EdgeCondition {
    /// Parses the condition of an edge. On an edge that leaves a CONDITION node, `true` and `false` name its branch.
    pub fn parse(text: &str, of_condition: bool) -> Result<Self, GraphConditionError> {
        match text.trim().to_lowercase().as_str() {
            "true" if of_condition => Ok(Self::Branch(true)),
            "false" if of_condition => Ok(Self::Branch(false)),
            _ => GraphCondition::parse(text).map(Self::Holds),
        }
    }

    /// The condition as written, in words for a label.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Branch(true) => "true",
            Self::Branch(false) => "false",
            Self::Holds(condition) => condition.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decisions::reference::{Reference, Target};
    use serde_json::{Value, json};
    use std::borrow::Cow;

    struct Outputs(Value);

    impl Values for Outputs {
        fn find<'a>(&'a self, reference: Reference<'a>) -> Found<'a> {
            let Target::Node { id, path } = reference.target() else { return Found::Missing };
            let found = self.0.get(id).and_then(|output| decisions::reference::resolve::descend(output, path));
            found.map_or(Found::Missing, |value| Found::Value(Cow::Borrowed(value)))
        }
    }

    #[test]
    fn references_are_operands_and_missing_values_are_empty() {
        let values = Outputs(json!({"a": {"n": 3, "text": "无异常 {r0} ${x}", "ok": true, "none": null}}));
        let holds = |text: &str| GraphCondition::parse(text).unwrap().holds(&values);
        assert!(holds("${a.output.n} > 2.5") && !holds("${a.output.n} > 5"));
        assert!(holds("${a.output.text} contains '异常'") && holds("${a.output.n} == '3'"));
        assert!(holds("${a.output.ok}") && holds("not ${a.output.none}") && holds("not ${b.output.x}"));
        assert!(holds("true") && !holds("false"));
        let error = GraphCondition::parse("${a.output.n} >= 5").unwrap_err().to_string();
        assert!(error.starts_with("`${a.output.n} >= 5`: "), "{error}");
    }

    #[test]
    fn true_and_false_name_branches_only_after_a_condition_node() {
        assert_eq!(EdgeCondition::parse(" True", true), Ok(EdgeCondition::Branch(true)));
        assert_eq!(EdgeCondition::parse("false", false).unwrap().as_str(), "false");
        assert!(matches!(EdgeCondition::parse("true", false), Ok(EdgeCondition::Holds(_))));
    }
}
