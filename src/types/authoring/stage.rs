//! The enums of a dialogue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares an enum whose values have one lower-case name each, everywhere.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$value_doc])* #[serde(rename = $text)] $value,)*
        }

        impl $name {
            /// All values, in the order of their numbers on the wire.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The name in JSON and in the store.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }

            /// The value with this name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names! {
    /// The stage of a dialogue.
    Stage {
        /// Finds out the user's wish.
        #[default]
        Clarification = "clarification",
        /// Agrees on the requirements.
        Negotiation = "negotiation",
        /// Compares the requirements with the catalogue.
        GapAnalysis = "gap_analysis",
        /// Offers alternatives for the gaps.
        AlternativeGeneration = "alternative_generation",
        /// Writes the document.
        WorkflowGeneration = "workflow_generation",
        /// Checks and rehearses the document.
        Debug = "debug",
        /// The document is ready.
        Completed = "completed",
        /// A failure interrupted the dialogue. The next message continues in the stage that was interrupted.
        Error = "error",
    }
}

impl Stage {
    /// True for the stages that need no message of the user.
    pub const fn works_alone(self) -> bool {
        matches!(self, Self::GapAnalysis | Self::WorkflowGeneration | Self::Debug)
    }
}

names! {
    /// The action with which a dialogue begins.
    Origin {
        /// Creates a new artefact.
        #[default]
        Create = "create",
        /// Changes an existing artefact.
        Edit = "edit",
        /// Makes another artefact like an existing one.
        Copy = "copy",
    }
}

names! {
    /// The kind of artefact that a dialogue makes.
    Artifact {
        /// A workflow of the type `graph`.
        #[default]
        Workflow = "workflow",
        /// An agent file.
        Agent = "agent",
    }
}

names! {
    /// Who publishes the result.
    Publish {
        /// The dialogue, after the checks have passed.
        #[default]
        Auto = "auto",
        /// The user, by a separate request.
        Manual = "manual",
    }
}

names! {
    /// The purpose of a clarification.
    Purpose {
        /// Finds out the purpose of a new artefact.
        #[default]
        InitialIntent = "initial_intent",
        /// Finds out the changes of an existing artefact.
        TemplateModification = "template_modification",
        /// Finds an alternative for a gap.
        GapResolution = "gap_resolution",
    }
}

names! {
    /// The subject of a question.
    Category {
        /// The source of the data.
        #[default]
        Input = "input",
        /// The destination of the result.
        Output = "output",
        /// The start of the artefact's work.
        Trigger = "trigger",
        /// The steps between them.
        Logic = "logic",
    }
}

names! {
    /// The amount of work for an alternative.
    Complexity {
        /// Little.
        #[default]
        Simple = "simple",
        /// Some.
        Medium = "medium",
        /// Much.
        Complex = "complex",
    }
}

names! {
    /// The language of the engine's own texts in a dialogue.
    Language {
        /// Chinese.
        #[default]
        Zh = "zh",
        /// English.
        En = "en",
    }
}

names! {
    /// The speaker of a message.
    Speaker {
        /// The user.
        #[default]
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// The engine.
        System = "system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_in_json_and_in_the_code() {
        for stage in Stage::ALL {
            let json = serde_json::to_value(stage).unwrap();
            assert_eq!(json, stage.as_str());
            assert_eq!(serde_json::from_value::<Stage>(json).unwrap(), *stage);
            assert_eq!(Stage::parse(stage.as_str()), Some(*stage));
        }
        assert_eq!(Stage::ALL.len(), 8);
        assert_eq!(Stage::parse("Debug"), None);
        let numbers: Vec<_> = Stage::ALL.iter().map(|stage| *stage as i32).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7], "the numbers of the wire");
    }
}
