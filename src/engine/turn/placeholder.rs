//! Detection of placeholders: texts that a model has copied from its prompt or schema instead of writing its own.
//! They must not reach a user.

/// Names of fields and types, and the words for a missing value in programming languages.
const PLACEHOLDER_NAMES: [&str; 13] = [
    "string",
    "text",
    "greeting",
    "response",
    "message",
    "name",
    "tone",
    "sop",
    "null",
    "none",
    "nil",
    "undefined",
    "n/a",
];
/// The tag around the user's message in the prompts. A reply with this tag was copied from the prompt.
const MESSAGE_TAG: &str = "<user_message>";

/// True for a text that consists of a placeholder only: dots (`…`), a name in brackets (`<greeting>`, `{{ greeting
/// }}`) or one of [`PLACEHOLDER_NAMES`]. Also true for a text that contains the prompt's message tag.
pub(crate) fn is_placeholder(text: &str) -> bool {
    let text = text.trim().trim_matches(['"', '`']).trim();
    if text.is_empty() {
        return false;
    }
    let is_dots = text.chars().all(|c| matches!(c, '…' | '⋯' | '.' | '_') || c.is_whitespace());
    let is_name = PLACEHOLDER_NAMES.iter().any(|name| text.eq_ignore_ascii_case(name));
    is_dots || is_name || is_bracketed(text) || text.contains(MESSAGE_TAG)
}

fn is_bracketed(text: &str) -> bool {
    let inner = match (text.chars().next(), text.chars().next_back()) {
        (Some('<'), Some('>')) => text.trim_start_matches('<').trim_end_matches('>'),
        (Some('{'), Some('}')) => text.trim_start_matches('{').trim_end_matches('}'),
        _ => return false,
    };
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ' | '…' | '.');
    !inner.is_empty() && inner.len() <= 60 && inner.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_told_from_texts() {
        for text in [
            "…",
            "...",
            " \"…\" ",
            "……",
            "___",
            "<greeting>",
            "<the reply>",
            "{{ greeting }}",
            "{response}",
            "string",
            "Null",
            "None",
            "n/a",
            "<user_message> is no JSON object",
            "`text`",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in [
            "",
            "  ",
            "好",
            "?",
            "！",
            "👍",
            "您好…",
            "1. …",
            "…好的",
            "<b>好</b>",
            "<html><p>",
            "{\"a\":1}",
            "None.",
            "<user> 您好",
            "Text me.",
            "Name?",
            "message sent",
        ] {
            assert!(!is_placeholder(text), "{text}");
        }
    }
}
