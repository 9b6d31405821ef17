//! Identifiers: their legal form in subjects, keys and URLs.

use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use thiserror::Error;

/// The largest length of an identifier, in bytes of UTF-8.
pub const MAX_BYTES: usize = 128;

/// Why a text is not a legal identifier.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{field} {problem}; an id has 1 to 128 bytes without whitespace, control characters, `*`, `>`, `/` or `.` (allowed in `job_id`, `message_id`, `turn_id` and `user_id`), and does not begin with `$`"
)]
pub struct IdError {
    /// The field that has the identifier, such as `session_id`.
    pub field: &'static str,
    /// The violated rule.
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
    } else if let Some(bad) = id.chars().find(|c| is_illegal(*c) && !(*c == '.' && takes_dots(field))) {
        format!("contains {bad:?}")
    } else if id.chars().all(|c| c == '.') {
        // URLs and file paths interpret these as relative segments.
        "has nothing but dots".to_owned()
    } else {
        return Ok(());
    };
    Err(IdError { field, problem })
}

/// True if `id` is legal in every field.
pub fn is_legal(id: &str) -> bool {
    check("id", id).is_ok()
}

/// True if `id` is a legal `job_id`, which may contain dots.
pub fn is_legal_job(id: &str) -> bool {
    check("job_id", id).is_ok()
}

/// True for the ids of messages and users: platforms use dots in them (`1699999999.000100`, `li@example.com`), and they
/// are not tokens of a subject.
fn takes_dots(field: &str) -> bool {
    matches!(field, "job_id" | "message_id" | "turn_id" | "user_id")
}

/// The id of a turn whose job repeats the `id` of an earlier job that the session no longer remembers: `id` followed by
/// `@` and the time at which the stream stored the job.
pub fn repeated_id(id: &str, at: Timestamp) -> String {
    let ending = format!("@{}", at.as_millis());
    let kept = id.floor_char_boundary(MAX_BYTES.saturating_sub(ending.len()));
    format!("{}{ending}", &id[..kept])
}

/// True if [`repeated_id`] made `turn_id` from `id`.
pub fn is_repeated_id(turn_id: &str, id: &str) -> bool {
    let since = turn_id.rsplit_once('@').and_then(|(_, at)| at.parse().ok());
    since.is_some_and(|at| repeated_id(id, Timestamp::from_millis(at)) == turn_id)
}

fn is_illegal(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '*' | '>' | '/' | '.')
}

/// An identifier in schemas. [`check`] enforces the rules where ids are used.
#[derive(JsonSchema)]
#[schemars(
    with = "String",
    description = "1 to 128 bytes without whitespace, control characters, `*`, `>`, `/` or `.`; not beginning with `$`",
    extend("minLength" = 1, "maxLength" = MAX_BYTES),
    extend("pattern" = r"^[^$\s\x00-\x1f\x7f-\x9f*>/.][^\s\x00-\x1f\x7f-\x9f*>/.]*$")
)]
pub enum Id {}

/// An identifier that may contain dots, in schemas: `job_id`, `message_id`, `turn_id`, `user_id`.
#[derive(JsonSchema)]
#[schemars(
    with = "String",
    description = "1 to 128 bytes without whitespace, control characters, `*`, `>` or `/`; not beginning with `$`, not only dots",
    extend("minLength" = 1, "maxLength" = MAX_BYTES),
    extend("pattern" = r"^\.*[^$\s\x00-\x1f\x7f-\x9f*>/.][^\s\x00-\x1f\x7f-\x9f*>/]*$")
)]
pub enum DottedId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_and_ascii_ids_are_legal_and_the_contract_s_exceptions_are_not() {
        for good in ["s1", "会话-1", "a_b:c", &"x".repeat(128)] {
            assert!(check("id", good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a.b", "a*", ">", "a/b", "$a", "a\n", "a\u{3000}b", &"x".repeat(129)] {
            assert!(check("id", bad).is_err(), "{bad:?}");
        }
        assert!(check("session_id", "a.b").unwrap_err().to_string().starts_with("session_id contains '.'"));
        for field in ["job_id", "message_id", "turn_id", "user_id"] {
            for good in ["1699999999.000100", "wamid.HBgN=", "a.b@mail.example.com", "a:b=c", "..a"] {
                assert_eq!(check(field, good), Ok(()), "{field}");
            }
            for bad in [".", "..", "$abc", "a.>", "a/b", "a b"] {
                assert!(check(field, bad).is_err(), "{field} {bad}");
            }
        }
        let at = Timestamp::from_millis(1_767_322_984_005);
        assert_eq!(repeated_id("m-1", at), "m-1@1767322984005");
        assert!(
            is_repeated_id("m-1@1767322984005", "m-1")
                && !is_repeated_id("m-1", "m-1")
                && !is_repeated_id("m-2@1767322984005", "m-1")
        );
        assert!(
            is_legal_job(&repeated_id(&"会".repeat(42), at))
                && repeated_id(&"会".repeat(42), at).ends_with("@1767322984005")
        );
    }
}
