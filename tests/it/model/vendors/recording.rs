//! A recorded conversation:
//!
//! ```text
//! >>> POST /path?query
//! header: value
//!
//! the request's body, JSON
//! <<< 200
//! header: value
//!
//! the response's body, to the byte
//! ===
//! the replies that the client makes of it, JSON
//! ```

use engine::model::ModelReply;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// A conversation read from its file.
#[derive(Clone, Debug)]
pub struct Recording {
    pub exchanges: Vec<Exchange>,
    pub replies: Vec<Reply>,
}

#[derive(Clone, Debug)]
pub struct Exchange {
    pub request: Request,
    pub response: Response,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// The reply of the client, or its error.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    Error {
        error: String,
    },
    Answer {
        content: String,
        model: String,
        tokens: [u64; 2],
        #[serde(default)]
        calls: Vec<Value>,
    },
}

impl Reply {
    pub fn of(reply: &ModelReply) -> Self {
        let calls = reply.tool_calls.iter();
        let calls = calls.map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments}));
        Self::Answer {
            content: reply.content.clone(),
            model: reply.model.clone(),
            tokens: [reply.tokens.prompt, reply.tokens.completion],
            calls: calls.collect(),
        }
    }

    /// Compares with the expected reply. An error must contain the expected text.
    pub fn is(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Error { error }, Self::Error { error: words }) => error.contains(words),
            (
                Self::Answer { content, model, tokens, calls },
                Self::Answer { content: expected, model: named, tokens: used, calls: wanted },
            ) => (content, model, tokens, calls) == (expected, named, used, wanted),
            _ => false,
        }
    }
}

impl Recording {
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let (exchanges, replies) =
            text.split_once("\n===\n").unwrap_or_else(|| panic!("{} has no `===`", path.display()));
        let exchanges = format!("\n{exchanges}\n");
        let parts = exchanges.split("\n>>> ").skip(1).map(|part| {
            let (request, response) = part.split_once("\n<<< ").unwrap();
            let (line, headers, body) = message(request);
            let (method, target) = line.split_once(' ').unwrap();
            let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let request = Request { method: method.to_owned(), target: target.to_owned(), headers, body };
            let (line, headers, body) = message(response);
            // The line break before the next mark is part of the body.
            let response = Response { status: line.parse().unwrap(), headers, body: format!("{body}\n") };
            Exchange { request, response }
        });
        Self { exchanges: parts.collect(), replies: serde_json::from_str(replies).unwrap() }
    }
}

fn message(text: &str) -> (&str, Vec<(String, String)>, &str) {
    let (head, body) = text.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    };
    (line, lines.map(header).collect(), body)
}
