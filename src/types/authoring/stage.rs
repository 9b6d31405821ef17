//! The closed sets of names of a dialogue.

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
    /// Where a dialogue stands.
    Stage {
        /// Finds out what the user wants.
        #[default]
        Clarification = "clarification",
        /// Agrees on the requirements.
        Negotiation = "negotiation",
        /// Compares the requirements with what is installed.
        GapAnalysis = "gap_analysis",
        /// Offers ways around what is missing.
        AlternativeGeneration = "alternative_generation",
        /// Writes the document.
        WorkflowGeneration = "workflow_generation",
        /// Checks the document and tries it out.
        Debug = "debug",
        /// The document is ready.
        Completed = "completed",
        /// A fault interrupted the dialogue. The next message goes on in the stage that it interrupted.
        Error = "error",
    }
}

impl Stage {
    /// True for the stages that work without the user, until they end.
    pub const fn works_alone(self) -> bool {
        matches!(self, Self::GapAnalysis | Self::WorkflowGeneration | Self::Debug)
    }
}

names! {
    /// How a dialogue begins.
    Origin {
        /// With nothing.
        #[default]
        Create = "create",
        /// With something that exists, to change it.
        Edit = "edit",
        /// With something that exists, to make another like it.
        Copy = "copy",
    }
}

names! {
    /// What a dialogue makes.
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
        /// The dialogue itself, once the checks pass.
        #[default]
        Auto = "auto",
        /// The user, by a separate request.
        Manual = "manual",
    }
}

names! {
    /// What a clarification is for.
    Purpose {
        /// To find out what a new artefact is to do.
        #[default]
        InitialIntent = "initial_intent",
        /// To find out how an existing one is to change.
        TemplateModification = "template_modification",
        /// To find a way around something that is missing.
        GapResolution = "gap_resolution",
    }
}

names! {
    /// What a question is about.
    Category {
        /// Where the data comes from.
        #[default]
        Input = "input",
        /// Where the result goes.
        Output = "output",
        /// What starts it.
        Trigger = "trigger",
        /// What happens in between.
        Logic = "logic",
    }
}

names! {
    /// How much work an alternative is.
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
    /// Who says something in a dialogue.
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
