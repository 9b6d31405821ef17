//! Reads from the error message of a server which part of a request it refuses.

use base::config;
use base::http_client::retry::HttpFault;

/// Terms in the messages of servers that do not know `response_format`.
const FORMAT_WORDS: &[&str] = &[
    "response_format",
    "json_schema",
    "json_object",
    "json mode",
    "response_schema",
    "structured output",
    "structured outputs",
    "guided_json",
    "grammar",
];
/// Terms that may mean the format if the message names nothing else.
const VAGUE_WORDS: &[&str] =
    &["schema", "unsupported", "not support", "not supported", "extra_forbidden", "unknown name"];
/// Parts of a request other than its format.
const OTHER_PARTS: &[&str] = &[
    "tool",
    "tools",
    "tool_choice",
    "function",
    "functions",
    "image",
    "images",
    "image_url",
    "vision",
    "audio",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
];
const STREAM_WORDS: &[&str] = &["stream", "streaming", "stream_options", "include_usage"];

/// A response whose status blames the request.
pub(super) struct Refusal {
    /// The message of the server in lower case.
    problem: String,
}

impl Refusal {
    pub(super) fn from_fault(fault: &HttpFault) -> Option<Self> {
        let refused = matches!(fault.status, Some(400 | 404 | 415 | 422 | 501));
        refused.then(|| Self { problem: fault.problem.to_lowercase() })
    }

    /// Whether the message contains this word as a whole: `upstream` does not contain the word `stream`.
    pub(super) fn names(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let inside = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        self.problem.match_indices(word.as_str()).any(|(at, _)| {
            !inside(self.problem[..at].chars().next_back()) && !inside(self.problem[at + word.len()..].chars().next())
        })
    }

    fn names_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.names(word))
    }

    pub(super) fn is_of_format(&self) -> bool {
        self.names_any(FORMAT_WORDS)
    }

    /// Whether the message may mean the format, because it names no other part.
    pub(super) fn may_be_of_format(&self) -> bool {
        self.names_any(VAGUE_WORDS) && !self.names_any(OTHER_PARTS)
    }

    pub(super) fn is_of_stream(&self) -> bool {
        self.names_any(STREAM_WORDS)
    }

    /// Whether the server seems to require something, instead of refusing it.
    pub(super) fn demands(&self) -> bool {
        self.names_any(&["missing", "must", "only", "required", "enable"])
    }

    /// Whether the server seems to require the field. The words may mislead: see [`super::form::Form::after`].
    pub(super) fn wants(&self, field: &str) -> bool {
        self.names(field) && self.demands()
    }

    /// The change in the settings of the model `name`, if the message names a field that the settings add.
    pub(super) fn remedy(&self, name: &str, settings: &config::Model) -> Option<String> {
        let field = own_fields(settings).into_iter().find(|field| self.names(field))?;
        Some(match field {
            "max_tokens" if !settings.extra.contains_key(field) => format!(
                "`models.{name}.max_tokens` sends it; remove it, or use `models.{name}.max_completion_tokens` instead"
            ),
            "temperature" | "max_completion_tokens" if !settings.extra.contains_key(field) => {
                format!("`models.{name}.{field}` sends it; change or remove it")
            }
            field => format!("`models.{name}.extra` sends `{field}`; change or remove it"),
        })
    }
}

/// The fields that the settings add to each request.
pub(super) fn own_fields(settings: &config::Model) -> Vec<&str> {
    let config::Model { temperature, max_tokens, max_completion_tokens, extra, .. } = settings;
    let given = [
        ("temperature", temperature.is_some()),
        ("max_tokens", max_tokens.is_some()),
        ("max_completion_tokens", max_completion_tokens.is_some()),
    ];
    let given = given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field);
    given.chain(extra.keys().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(problem: &str) -> Refusal {
        Refusal::from_fault(&HttpFault { status: Some(400), ..HttpFault::permanent(problem) }).unwrap()
    }

    #[test]
    fn a_refusal_is_of_what_it_names() {
        let format = |problem| (refusal(problem).is_of_format(), refusal(problem).may_be_of_format());
        for (problem, expected) in [
            (
                "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
                (true, true),
            ),
            ("This response_format type is unavailable now", (true, false)),
            ("Json mode response is not supported when enable_thinking is true", (true, true)),
            ("this feature is unsupported", (false, true)),
            ("Unsupported parameter: 'max_tokens' is not supported with this model.", (false, false)),
            ("Unsupported value: 'temperature' does not support 0.3 with this model.", (false, false)),
            ("Invalid schema for function 'eta'", (false, false)),
            ("the model does not support image input", (false, false)),
            ("the model does not support tools", (false, false)),
            ("the prompt is too long", (false, false)),
        ] {
            assert_eq!(format(problem), expected, "{problem}");
        }
        assert!(!refusal("the upstream server refused").is_of_stream());
        assert!(refusal("This model only support stream mode, please enable the stream parameter").demands());
        assert!(Refusal::from_fault(&HttpFault { status: Some(401), ..HttpFault::permanent("stream") }).is_none());
    }
}
