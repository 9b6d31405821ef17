//! Which decisions a turn carries out.

use decisions::kind::DecisionType;

/// The types of decisions that a turn carries out.
pub(super) const AVAILABLE: [DecisionType; 4] =
    [DecisionType::RequestClarification, DecisionType::SpawnSubagent, DecisionType::Respond, DecisionType::Continue];

/// The errors of a valid decision that no turn carries out; empty for the types that turns carry out.
pub fn unavailable(kind: DecisionType) -> Vec<String> {
    if AVAILABLE.contains(&kind) {
        return Vec::new();
    }
    let known = AVAILABLE.map(|kind| format!("`{kind}`")).join(", ");
    vec![format!("`decision_type` is `{kind}`, which conversations do not carry out yet; give one of {known}")]
}
