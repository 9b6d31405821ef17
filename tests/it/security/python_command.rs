//! External runners: the protocol as documented, and runners that do not keep it.

use super::python::script;
use base::config::{Environment, PythonRunner, Settings};
use base::tasks::Tasks;
use sandbox::{Sandbox, Script, ScriptEnd, ScriptError};
use serde_json::json;
use std::time::{Duration, Instant};

/// A runner of a few lines over the system's Python. It isolates nothing.
const FAKE: &str = r#"
import json, os, signal, sys
line = sys.stdin.readline()
if not line:
    sys.exit(0)
asked = json.loads(line)
assert asked["v"] == 1 and set(asked) == {"v", "op", "code", "inputs", "limits"}, asked
def end(**fields):
    print(json.dumps({"v": 1, **fields}), flush=True)
what, _, rest = asked["code"].partition(" ")
if asked["op"] == "check":
    if what == "bad":
        end(ok=False, error={"kind": "syntax", "type": "SyntaxError", "message": "bad", "line": 1})
    else:
        end(ok=True)
elif what == "echo":
    end(ok=True, output=asked["inputs"], stdout=str(asked["limits"]["wall_ms"]), further=1)
elif what == "raise":
    end(ok=False, error={"kind": "exception", "type": "KeyError", "message": "'a'", "line": 7}, stdout="x")
elif what == "large":
    end(ok=True, output="a" * int(rest))
elif what == "garbage":
    print("Traceback: no JSON")
elif what == "flood":
    while True:
        sys.stdout.write("a" * 65536)
elif what == "noise":
    sys.stderr.write("n" * 1000000)
    end(ok=True, output=1)
elif what == "exit":
    sys.stderr.write("first\nthe reason\n")
    sys.exit(3)
elif what == "kill":
    os.kill(os.getpid(), 9)
elif what == "close":
    os.close(1)
    signal.pause()
elif what == "fork":
    if os.fork() == 0:
        os.close(1)
    signal.pause()
else:
    signal.pause()
"#;

fn command(program: &[&str]) -> Sandbox {
    let mut settings = Settings::default();
    settings.python.runner = PythonRunner::Command;
    settings.python.command = program.iter().map(|part| (*part).to_owned()).collect();
    Sandbox::new(&settings.python, None, &Environment::from_process(), Tasks::new())
}

async fn run(sandbox: &Sandbox, code: &str) -> Result<ScriptEnd, ScriptError> {
    let timeout = Some(Duration::from_secs(20));
    sandbox.run(Script { timeout, ..script(code, &json!({"a": [1, "二"]})) }).await
}

#[tokio::test]
async fn a_runner_receives_and_returns_what_the_protocol_says() {
    let sandbox = command(&["python3", "-c", FAKE]);
    let end = run(&sandbox, "echo").await.unwrap();
    assert_eq!((end.output, end.stdout.as_str()), (json!({"a": [1, "二"]}), "20000"));
    let error = run(&sandbox, "raise").await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.code(), error.stdout.as_str()),
        ("KeyError: 'a' (line 7)", "PYTHON_EXCEPTION", "x")
    );
    assert_eq!(run(&sandbox, "noise").await.unwrap().output, json!(1));
    assert!(sandbox.check("fine").await.is_ok());
    assert_eq!(sandbox.check("bad").await.unwrap_err().code(), "PYTHON_SYNTAX");
}

#[tokio::test]
async fn a_runner_that_breaks_the_protocol_is_a_failure_and_never_a_hung_script() {
    let sandbox = command(&["python3", "-c", FAKE]);
    for (code, expected, text) in [
        ("garbage", "PYTHON_CRASHED", "no JSON"),
        ("exit", "PYTHON_CRASHED", "exit status: 3): the reason"),
        ("kill", "PYTHON_CRASHED", "signal: 9"),
        ("large 1100000", "OUTPUT_TOO_LARGE", "1048576"),
        ("flood", "OUTPUT_TOO_LARGE", "1048576"),
    ] {
        let error = run(&sandbox, code).await.expect_err(code);
        assert_eq!(error.code(), expected, "{code}: {error}");
        assert!(error.to_string().contains(text), "{code}: {error}");
    }
    for code in ["silence", "close", "fork"] {
        let begun = Instant::now();
        let silent = Script { timeout: Some(Duration::from_millis(500)), ..script(code, &json!({})) };
        assert_eq!(sandbox.run(silent).await.unwrap_err().code(), "TIMEOUT", "{code}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{code}");
    }
    assert!(run(&sandbox, "echo").await.is_ok(), "the next script runs");
}

#[tokio::test]
async fn a_command_that_does_not_start_is_named() {
    let error = run(&command(&["/nowhere/python"]), "echo").await.unwrap_err();
    assert_eq!(error.code(), "SANDBOX_UNAVAILABLE");
    assert!(error.to_string().contains("/nowhere/python") && error.to_string().contains("python.command"), "{error}");
    let error = run(&command(&["false"]), "echo").await.unwrap_err();
    assert_eq!(error.code(), "PYTHON_CRASHED");
}

#[tokio::test]
async fn the_built_in_python_is_a_runner_too() {
    let sandbox = command(&[env!("CARGO_BIN_EXE_turnwheel"), "python-runner", "268435456", "300"]);
    assert_eq!(run(&sandbox, "return a + [2]").await.unwrap().output, json!([1, "二", 2]));
}
