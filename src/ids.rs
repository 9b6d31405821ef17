//! Identifiers as they may appear in subjects, keys and URLs (CONTRACT.md, "Identifiers").

use thiserror::Error;

/// The longest identifier, in bytes of UTF-8.
pub const MAX_BYTES: usize = 128;

/// Why a text cannot be an identifier.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{field} {problem}; an id has 1 to 128 bytes without whitespace, control characters, `*`, `>`, `/` or `.`, and does not begin with `$`"
)]
pub struct IdError {
    /// Which identifier it was, such as `session_id`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// Checks that `id` is a legal identifier; `field` names it in the error.
pub fn check(field: &'static str, id: &str) -> Result<(), IdError> {
    let problem = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > MAX_BYTES {
        format!("has {} bytes", id.len())
    } else if id.starts_with('$') {
        "begins with `$`".to_owned()
    } else if let Some(bad) = id.chars().find(|c| is_illegal(*c)) {
        format!("contains {bad:?}")
    } else {
        return Ok(());
    };
    Err(IdError { field, problem })
}

/// True when `id` is a legal identifier.
pub fn is_legal(id: &str) -> bool {
    check("id", id).is_ok()
}

fn is_illegal(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '*' | '>' | '/' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_and_ascii_ids_are_legal_and_the_contract_s_exceptions_are_not() {
        for good in ["s1", "会话-1", "a_b:c", &"x".repeat(128)] {
            assert!(is_legal(good), "{good}");
        }
        for bad in ["", "a b", "a.b", "a*", ">", "a/b", "$a", "a\n", "a\u{3000}b", &"x".repeat(129)] {
            assert!(!is_legal(bad), "{bad:?}");
        }
        assert!(check("job_id", "a.b").unwrap_err().to_string().starts_with("job_id contains '.'"));
    }
}
