//! Checks the patterns of `knowledge.files`.

use std::path::Path;

/// Problem and remedy of a pattern.
pub(crate) type PatternProblem = (String, &'static str);

/// The remedy of a pattern that leaves the folder.
pub(crate) const INSIDE: &str = "copy the file into the folder of the agent's file, and name it relative to that";

/// Checks that a pattern stays in the folder of the agent's file, so that an agent file from elsewhere cannot make this
/// machine's own files known to users.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), PatternProblem> {
    let has_drive = pattern.as_bytes().get(1) == Some(&b':');
    if pattern.starts_with(['/', '\\']) || has_drive || Path::new(pattern).is_absolute() {
        return Err((format!("`{pattern}` is an absolute path"), INSIDE));
    }
    if pattern.split(['/', '\\']).any(|part| part == "..") {
        return Err((format!("`{pattern}` leaves the folder of the agent's file"), INSIDE));
    }
    Ok(())
}
