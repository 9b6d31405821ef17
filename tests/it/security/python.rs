//! Hostile scripts end as typed failures, and the process that started them lives on.

use crate::support::engine::{DEADLINE, sandbox};
use crate::support::eventually;
use base::config::Settings;
use sandbox::{Sandbox, Script, ScriptEnd, ScriptError};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use types::duration::Text;
use types::timestamp::Timestamp;

/// The limit of scripts that never end.
const SHORT: Duration = Duration::from_secs(1);

pub(super) fn script(code: &str, inputs: &Value) -> Script {
    let inputs: Map<String, Value> = inputs.as_object().cloned().unwrap_or_default();
    let started_at = Timestamp::from_millis(1_700_000_000_123);
    Script { code: code.to_owned(), inputs, timeout: None, memory_mb: None, started_at }
}

async fn run(sandbox: &Sandbox, code: &str) -> Result<ScriptEnd, ScriptError> {
    sandbox.run(script(code, &json!({}))).await
}

fn quick() -> Sandbox {
    let mut settings = Settings::default();
    settings.python.memory_mb = 64;
    settings.python.timeout = Text(Duration::from_secs(60));
    sandbox(&settings)
}

/// True if a process of this program runs scripts as a child of this one, and is not a zombie.
fn children() -> Vec<u32> {
    let own = std::process::id().to_string();
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_child = |pid: &u32| {
        let stat = stat(*pid);
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

#[tokio::test]
async fn a_script_computes_with_its_inputs_and_modules() {
    let code = "import json, re, math\nfrom datetime import datetime\n\
        sales = [row['金额'] for row in rows]\nprint('数', len(sales))\n\
        return {'trend': '上升' if sales[-1] > sales[0] else '下降', 'mean': math.floor(sum(sales) / len(sales)),\n\
                'at': datetime.now().isoformat(), 'words': re.findall('[a-z]+', text), 'rows': json.loads('[1, null]')}";
    let inputs = json!({"rows": [{"金额": 1}, {"金额": 4.5}], "text": "a1bc"});
    let expected = json!({"trend": "上升", "mean": 2, "at": "2023-11-14T22:13:20.123000", "words": ["a", "bc"],
        "rows": [1, null]});
    let sandbox = quick();
    for _ in 0..3 {
        let end = sandbox.run(script(code, &inputs)).await.unwrap();
        assert_eq!((end.output, end.stdout.as_str()), (expected.clone(), "数 2\n"));
    }
    assert_eq!(run(&sandbox, "x = 5\nx").await.unwrap().output, Value::Null, "only `return` has an output");
}

#[tokio::test]
async fn nothing_passes_from_one_script_to_the_next() {
    let sandbox = quick();
    run(&sandbox, "import json\nglobal secret\nsecret = 5\njson.secret = 5").await.ok();
    let error = run(&sandbox, "import json\nreturn [secret, json.secret]").await.unwrap_err();
    assert_eq!((error.code(), error.name.as_str()), ("PYTHON_EXCEPTION", "NameError"));
}

#[tokio::test]
async fn attacks_end_as_failures_and_show_nothing_of_the_host() {
    let sandbox = quick();
    let attacks = [
        ("return open('/etc/passwd').read()", "PYTHON_FORBIDDEN"),
        ("try:\n  return open('/et' + 'c/passwd').read()\nexcept Exception as e:\n  return str(e)", "PYTHON_FORBIDDEN"),
        ("from pathlib import Path\nreturn Path('/proc/self/environ').read_text()", "PYTHON_FORBIDDEN"),
        ("from pathlib import Path\nreturn [str(p) for p in Path('/').iterdir()]", "PYTHON_FORBIDDEN"),
        ("open('/tmp/x', 'w').write('1')", "PYTHON_FORBIDDEN"),
        ("import os\nreturn os.environ['PATH']", "PYTHON_FORBIDDEN"),
        ("import os\nreturn getattr(os, 'get' + 'env')('HOME')", "PYTHON_FORBIDDEN"),
        ("import os\nos.system('id')", "PYTHON_EXCEPTION"),
        ("import os\nos.fork()", "PYTHON_EXCEPTION"),
        ("import socket", "PYTHON_EXCEPTION"),
        ("import subprocess", "PYTHON_EXCEPTION"),
        ("import ctypes", "PYTHON_EXCEPTION"),
        ("return ().__class__.__base__.__subclasses__()", "PYTHON_EXCEPTION"),
        ("return getattr(getattr((), '__cl' + 'ass__'), '__ba' + 'se__')", "PYTHON_EXCEPTION"),
        ("return '{0.__class__.__mro__}'.format(5)", "PYTHON_EXCEPTION"),
        ("try:\n  1/0\nexcept Exception as e:\n  return e.__traceback__.tb_frame.f_globals", "PYTHON_EXCEPTION"),
        ("return (lambda: 1).__globals__", "PYTHON_EXCEPTION"),
        ("return (lambda: 1).__code__", "PYTHON_EXCEPTION"),
        ("return __import__('os').environ", "PYTHON_EXCEPTION"),
        ("return eval('1')", "PYTHON_EXCEPTION"),
        ("exec('x = 1')", "PYTHON_EXCEPTION"),
        ("return globals()", "PYTHON_EXCEPTION"),
        ("def f(n):\n  return f(n + 1)\nreturn f(0)", "PYTHON_EXCEPTION"),
        ("a = []\na.append(a)\nreturn a", "PYTHON_EXCEPTION"),
        ("x = 1\nfor i in range(100000):\n  x = [x]\nreturn x", "PYTHON_EXCEPTION"),
        ("return float('inf')", "PYTHON_EXCEPTION"),
        ("return 'a' * 2 * 1024 * 1024", "OUTPUT_TOO_LARGE"),
        ("x = 'a' * 10**10\nreturn x", "PYTHON_MEMORY"),
        ("x = []\nwhile True:\n  x.append('abc' * 100000)", "PYTHON_MEMORY"),
        ("return 1 +", "PYTHON_SYNTAX"),
    ];
    for (code, expected) in attacks {
        let error = run(&sandbox, code).await.expect_err(code);
        assert_eq!(error.code(), expected, "{code}: {error}");
        let shown = format!("{error:?}");
        assert!(["root:", "PATH=", "/bin/sh"].iter().all(|host| !shown.contains(host)), "{code}: {shown}");
    }
    assert_eq!(run(&sandbox, "return 1 + 1").await.unwrap().output, json!(2));
}

#[tokio::test]
async fn a_failure_names_its_line() {
    let sandbox = quick();
    let error = run(&sandbox, "x = 1\ny = 2\nz = x / 0").await.unwrap_err();
    assert_eq!((error.code(), error.line), ("PYTHON_EXCEPTION", Some(3)));
    assert_eq!(error.to_string(), "ZeroDivisionError: division by zero (line 3)");
    let error = run(&sandbox, "print('so far')\nd = {}\nreturn d['amount']").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.stdout.as_str()), ("KeyError: amount (line 3)", "so far\n"));
    let error = run(&sandbox, "\nimport pandas").await.unwrap_err();
    assert!(error.message.contains("python.runner") && error.line == Some(2), "{error}");
}

#[tokio::test]
async fn an_endless_script_is_stopped_while_others_run() {
    let mut settings = Settings::default();
    settings.python.concurrency = 2;
    let sandbox = sandbox(&settings);
    for code in ["while True: pass", "import re\nreturn re.match('(a|a)*?$', 'a' * 5000000 + 'b')", "return 9**9**9"] {
        let begun = Instant::now();
        let endless = Script { timeout: Some(SHORT), ..script(code, &json!({})) };
        let (stopped, other) = tokio::join!(sandbox.run(endless), run(&sandbox, "return 1"));
        assert_eq!(other.unwrap().output, json!(1));
        match stopped {
            Err(error) => assert!(["TIMEOUT", "PYTHON_MEMORY", "PYTHON_EXCEPTION"].contains(&error.code()), "{error}"),
            Ok(end) => assert_eq!(end.output, Value::Null, "{code}"),
        }
        assert!(begun.elapsed() < SHORT + SHORT, "{code}: {:?}", begun.elapsed());
    }
    let endless = Script { timeout: Some(SHORT), ..script("while True: pass", &json!({})) };
    assert_eq!(sandbox.run(endless).await.unwrap_err().code(), "TIMEOUT");
}

#[tokio::test]
async fn printed_text_is_cut_and_says_so() {
    let end = run(&quick(), "for i in range(100000):\n  print('数数')\nreturn 1").await.unwrap();
    assert_eq!(end.output, json!(1));
    assert!(end.stdout.len() < 65_600 && end.stdout.ends_with("\n[cut after 65536 bytes]"), "{}", end.stdout.len());
}

#[tokio::test]
async fn a_node_s_limit_of_memory_lowers_that_of_the_settings() {
    let sandbox = quick();
    let code = "x = []\nfor i in range(20):\n  x.append('a' * 1000000)\nreturn len(x)";
    assert_eq!(run(&sandbox, code).await.unwrap().output, json!(20));
    let small = Script { memory_mb: Some(8), ..script(code, &json!({})) };
    assert_eq!(sandbox.run(small).await.unwrap_err().code(), "PYTHON_MEMORY");
}

/// The children of a cancelled script and of a dropped sandbox end, and are reaped. One test, because it counts the
/// children of the process.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn dropping_a_script_or_a_sandbox_ends_its_children() {
    let mut settings = Settings::default();
    settings.python.warm = 3;
    settings.python.concurrency = 1;
    let sandbox = sandbox(&settings);
    run(&sandbox, "return 1").await.unwrap();
    eventually(DEADLINE, "three children wait", || async { sandbox.waiting().len() == 3 && children().len() == 3 })
        .await;
    let waiting = sandbox.waiting();
    for pid in &waiting {
        confined(*pid).await;
    }
    {
        let endless = run(&sandbox, "while True: pass");
        tokio::pin!(endless);
        // The script runs in one of the children that waited, and another one takes its place.
        let started =
            eventually(DEADLINE, "it runs", || async { sandbox.waiting().iter().any(|pid| !waiting.contains(pid)) });
        tokio::select! {
            ended = &mut endless => panic!("{ended:?}"),
            () = started => {}
        }
    }
    eventually(DEADLINE, "its child has gone", || async { children().len() == 3 }).await;
    // The permit of the cancelled script is free again.
    assert_eq!(run(&sandbox, "return 2").await.unwrap().output, json!(2));
    drop(sandbox);
    eventually(DEADLINE, "no child is left, not even as a zombie", || async { children().is_empty() }).await;
}

/// The kernel shows the limits of a child that waits.
async fn confined(pid: u32) {
    let read = |file: &str| std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file)).unwrap();
    eventually(DEADLINE, "system calls are filtered", || async { read("status").contains("Seccomp:\t2") }).await;
    assert!(read("status").contains("NoNewPrivs:\t1"));
    let limits = read("limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(["Max open files", "Max file size", "Max core file size"].map(limit), ["3", "0", "0"]);
    assert_eq!(limit("Max cpu time"), "302");
    assert_ne!(limit("Max address space"), "unlimited");
    assert!(std::fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty());
}

#[tokio::test]
async fn no_more_scripts_run_than_the_settings_allow() {
    let mut settings = Settings::default();
    (settings.python.concurrency, settings.python.warm) = (2, 0);
    let sandbox = sandbox(&settings);
    let order = std::sync::Mutex::new(Vec::new());
    let ends = |name: &'static str, code: &'static str| {
        let (sandbox, order) = (&sandbox, &order);
        async move {
            let ended = sandbox.run(Script { timeout: Some(SHORT), ..script(code, &json!({})) }).await;
            order.lock().unwrap().push(name);
            ended.map_err(|error| error.code())
        }
    };
    let endless = "while True: pass";
    let (first, second, third) =
        tokio::join!(ends("endless", endless), ends("endless", endless), ends("third", "return 3"));
    assert_eq!((first.unwrap_err(), second.unwrap_err(), third.unwrap().output), ("TIMEOUT", "TIMEOUT", json!(3)));
    let order = order.into_inner().unwrap();
    assert_eq!(order[0], "endless", "the third script waits for a place: {order:?}");
}

#[tokio::test]
async fn code_is_compiled_without_running_it() {
    let sandbox = quick();
    let error = sandbox.check("def f():\n    yield 1\nreturn 1").await.unwrap_err();
    assert_eq!((error.code(), error.line), ("PYTHON_SYNTAX", Some(2)));
    assert_eq!(
        error.message,
        "the built-in Python does not support yield expressions; build a list, or set python.runner"
    );
    let error = sandbox.check("x = 1\nif x\n  y = 2").await.unwrap_err();
    assert_eq!((error.code(), error.name.as_str(), error.line), ("PYTHON_SYNTAX", "SyntaxError", Some(2)));
    let error = sandbox.check("x = (").await.unwrap_err();
    assert!(!error.message.contains("return"), "the code has no `return`: {error}");
    let warnings = sandbox.check("import pandas as pd\nwhile True: pass").await.unwrap().warnings;
    assert_eq!(warnings.iter().map(|warning| warning.line).collect::<Vec<_>>(), [Some(1), None]);
    assert_eq!(sandbox.check("import json, os\nreturn os.environ").await.unwrap().warnings, []);
}

#[tokio::test]
async fn every_module_of_the_documentation_can_be_imported() {
    let documentation = include_str!("../../../docs/decisions.md");
    let sandbox = quick();
    let (_, list) = documentation.split_once("and the modules ").unwrap();
    let (list, _) = list.split_once("It has no").unwrap();
    let names: Vec<_> = list
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| !["reduce", "partial", "count", "repeat"].contains(name))
        .collect();
    assert!(names.len() > 12, "{names:?}");
    let code: String = names.iter().map(|name| format!("import {name}\n")).collect::<String>() + "return 1";
    assert_eq!(run(&sandbox, &code).await.unwrap().output, json!(1));
    assert_eq!(sandbox.check(&code).await.unwrap().warnings, []);
}

#[tokio::test]
async fn without_a_runner_scripts_fail_with_the_remedy() {
    let error = run(&Sandbox::off(), "return 1").await.unwrap_err();
    assert_eq!(error.code(), "SANDBOX_UNAVAILABLE");
    assert!(error.to_string().starts_with("sandbox not configured"), "{error}");
    let settings = Settings::default();
    let own = Sandbox::new(&settings.python, None, &base::config::Environment::default(), base::tasks::Tasks::new());
    let error = run(&own, "return 1").await.unwrap_err();
    assert_eq!(error.code(), "SANDBOX_UNAVAILABLE");
    assert!(error.to_string().contains("EngineBuilder::python_runner"), "{error}");
}
