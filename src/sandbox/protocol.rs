//! The protocol between the worker and a child: one line of JSON to the child, one line back. `docs/contract/python.md`
//! describes it for authors of runners.

use crate::error::ErrorKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The first argument with which an executable serves one script.
pub const RUNNER_COMMAND: &str = "python-runner";
/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The operation of the child on the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Runs it.
    Run,
    /// Compiles it without running it.
    Check,
}

/// The line to the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub v: u32,
    /// The operation.
    pub op: Operation,
    /// The code: the body of a function.
    pub code: String,
    /// The variables by name.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// The limits.
    pub limits: Limits,
}

/// The limits of a script, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The longest time in milliseconds.
    pub wall_ms: u64,
    /// The most memory.
    pub memory_bytes: u64,
    /// The largest output, as compact JSON.
    pub output_bytes: u64,
    /// The most printed text.
    pub stdout_bytes: u64,
    /// The time that the script sees, in milliseconds since 1970.
    pub now_ms: i64,
}

/// The line of the child.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// [`VERSION`].
    pub v: u32,
    /// True if the script ended without an error.
    pub ok: bool,
    /// The output of the script. Of a check, `{"warnings": [{"line", "message"}]}`, or null.
    #[serde(default)]
    pub output: Value,
    /// The printed text.
    #[serde(default)]
    pub stdout: String,
    /// The error, unless `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

impl Response {
    /// The end of a script without an error.
    pub fn ok(output: Value, stdout: String) -> Self {
        Self { v: VERSION, ok: true, output, stdout, error: None }
    }

    /// The end of a script with an error.
    pub fn failed(problem: Problem, stdout: String) -> Self {
        Self { v: VERSION, ok: false, output: Value::Null, stdout, error: Some(problem) }
    }
}

/// The error of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The type of the exception, such as `KeyError`; empty for other errors.
    #[serde(rename = "type", default)]
    pub name: String,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// The line in the code, from 1.
    #[serde(default)]
    pub line: Option<u32>,
}

impl Problem {
    /// An error without a type and a line.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, name: String::new(), message: message.into(), line: None }
    }
}

/// A probable mistake in a script that compiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The line in the code, from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// The mistake with its remedy.
    pub message: String,
}

/// Cuts a text to `most` bytes. A cut text ends with a remark.
pub(crate) fn cut(text: &mut String, most: usize) {
    let remark = format!("\n[cut after {most} bytes]");
    if text.len() > most && !(text.len() <= most + remark.len() && text.ends_with(&remark)) {
        text.truncate(text.floor_char_boundary(most));
        text.push_str(&remark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_lines_are_those_of_the_contract() {
        let limits =
            Limits { wall_ms: 1000, memory_bytes: 2, output_bytes: 3, stdout_bytes: 4, now_ms: 1_700_000_000_000 };
        let inputs = json!({"a": [1, "二"]}).as_object().cloned().unwrap();
        let request = Request { v: 1, op: Operation::Run, code: "return a\n".into(), inputs, limits };
        let line = r#"{"v":1,"op":"run","code":"return a\n","inputs":{"a":[1,"二"]},"limits":{"wall_ms":1000,"memory_bytes":2,"output_bytes":3,"stdout_bytes":4,"now_ms":1700000000000}}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        let response = Response::ok(json!({"x": 1.5}), "hi\n".into());
        let line = r#"{"v":1,"ok":true,"output":{"x":1.5},"stdout":"hi\n"}"#;
        assert_eq!(serde_json::to_string(&response).unwrap(), line);
        let problem =
            Problem { kind: ErrorKind::Exception, name: "KeyError".into(), message: "'amount'".into(), line: Some(4) };
        let line = r#"{"v":1,"ok":false,"output":null,"stdout":"","error":{"kind":"exception","type":"KeyError","message":"'amount'","line":4}}"#;
        assert_eq!(serde_json::to_string(&Response::failed(problem, String::new())).unwrap(), line);
    }

    #[test]
    fn a_runner_may_leave_out_fields_and_add_others() {
        let read: Response = serde_json::from_str(r#"{"v":1,"ok":true,"ms":3}"#).unwrap();
        assert_eq!(read, Response::ok(Value::Null, String::new()));
        let read: Response = serde_json::from_str(r#"{"v":1,"ok":false,"error":{"kind":"timeout"}}"#).unwrap();
        assert_eq!(read.error.unwrap(), Problem::new(ErrorKind::Timeout, ""));
    }

    #[test]
    fn a_text_is_cut_once() {
        let mut text = "ab二c".to_owned();
        cut(&mut text, 4);
        assert_eq!(text, "ab\n[cut after 4 bytes]");
        cut(&mut text, 4);
        assert_eq!(text, "ab\n[cut after 4 bytes]");
    }
}
