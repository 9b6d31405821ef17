//! The coordinator: validates a decision, corrects it if that helps, and validates again.

use crate::correct::{Correction, correct};
use crate::kind::Decision;
use crate::payload::Payload;
use crate::report::Validation;
use crate::validate::validate;
use crate::world::World;
use serde_json::{Map, Value};

/// The verdict on a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Judged {
    /// The decision may be carried out.
    Valid {
        /// The payload with its corrections.
        payload: Box<Payload>,
        /// The same as JSON.
        fields: Map<String, Value>,
        /// The corrections; empty if the decision was valid as given.
        corrections: Vec<Correction>,
        /// Probable mistakes.
        warnings: Vec<String>,
    },
    /// The decision must not be carried out.
    Rejected {
        /// The errors of the payload as given. The model reads them.
        errors: Vec<String>,
    },
}

/// A verdict with all details, as the endpoint `decisions/validate` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdicts {
    /// The verdict on the payload as given.
    pub given: Validation,
    /// True if the payload is valid after correction, or as given.
    pub valid_after_correction: bool,
    /// The payload after correction, even if it is not valid.
    pub corrected: Map<String, Value>,
    /// The corrections. Empty if the payload is valid as given.
    pub corrections: Vec<Correction>,
}

/// Judges decisions in one world.
#[derive(Clone, Copy)]
pub struct Coordinator<'w> {
    world: &'w dyn World,
}

impl<'w> Coordinator<'w> {
    /// Judges in this world.
    pub fn new(world: &'w dyn World) -> Self {
        Self { world }
    }

    /// Judges a decision as it is.
    pub fn validate_decision(&self, decision: &Decision) -> Validation {
        validate(decision, self.world)
    }

    /// Judges a decision as given and after correction.
    pub fn verdicts(&self, mut decision: Decision) -> Verdicts {
        let given = self.validate_decision(&decision);
        if given.is_valid {
            let (corrected, corrections) = (decision.payload, Vec::new());
            return Verdicts { given, valid_after_correction: true, corrected, corrections };
        }
        let corrections = correct(decision.decision_type, &mut decision.payload);
        let valid_after_correction = !corrections.is_empty() && self.validate_decision(&decision).is_valid;
        Verdicts { given, valid_after_correction, corrected: decision.payload, corrections }
    }

    /// Judges a decision that is to be carried out.
    pub fn judge(&self, decision: Decision) -> Judged {
        let kind = decision.decision_type;
        let Verdicts { given, valid_after_correction, corrected, corrections } = self.verdicts(decision);
        if !valid_after_correction {
            return Judged::Rejected { errors: given.errors };
        }
        match Payload::read(kind, &corrected) {
            Ok(payload) => {
                let payload = Box::new(payload);
                Judged::Valid { payload, fields: corrected, corrections, warnings: given.warnings }
            }
            // A validated payload can be read; if not, the tables and the types differ.
            Err(error) => Judged::Rejected { errors: vec![format!("`payload` cannot be read: {error}; correct it")] },
        }
    }
}

impl std::fmt::Debug for Coordinator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").finish_non_exhaustive()
    }
}
