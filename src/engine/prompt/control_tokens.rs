//! Neutralises control tokens of chat templates. A server that interprets one inside a message takes the text after it
//! for the words of another role, so a user or an API could inject a system message.

use std::borrow::Cow;
use std::sync::LazyLock;

/// Returns the text with a space after the first character of each control token.
pub(crate) fn defused(text: &str) -> Cow<'_, str> {
    let begins = |at: &usize| is_control_token(&text.as_bytes()[*at..]);
    let mut found = memchr::memchr2_iter(b'<', b'[', text.as_bytes()).filter(begins).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let (mut safe, mut done) = (String::with_capacity(text.len() + 8), 0);
    for at in found {
        safe.push_str(&text[done..=at]);
        safe.push(' ');
        done = at + 1;
    }
    safe.push_str(&text[done..]);
    Cow::Owned(safe)
}

/// Prefixes of the control tokens of ChatML and Llama 3 (`<|…|>`) and of DeepSeek (`<｜…｜>`).
const TOKEN_BEGINNINGS: [&str; 2] = ["<|", "<｜"];
/// Control tokens of Llama 2, Mistral and Gemma.
pub(crate) const CONTROL_TOKENS: [&str; 16] = [
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "<</SYS>>",
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
];

/// Whether the bytes start with a control token, in upper or lower case.
fn is_control_token(bytes: &[u8]) -> bool {
    let begins =
        |token: &&str| bytes.get(..token.len()).is_some_and(|found| found.eq_ignore_ascii_case(token.as_bytes()));
    bytes.get(1).is_some_and(|second| SECOND_BYTES[usize::from(*second)])
        && TOKEN_BEGINNINGS.iter().chain(&CONTROL_TOKENS).any(begins)
}

/// The bytes that stand after the first one of a control token. Nearly every `<` and `[` of a prompt that is not one is
/// told by it: comparing all tokens at each took an eighth of the additional cost of a coordinator's turn.
static SECOND_BYTES: LazyLock<[bool; 256]> = LazyLock::new(|| {
    let mut known = [false; 256];
    for second in TOKEN_BEGINNINGS.iter().chain(&CONTROL_TOKENS).filter_map(|token| token.as_bytes().get(1)) {
        known[usize::from(second.to_ascii_lowercase())] = true;
        known[usize::from(second.to_ascii_uppercase())] = true;
    }
    known
});
