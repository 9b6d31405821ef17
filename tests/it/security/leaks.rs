//! Planted secrets: the real binary with the most verbose log, an API and a model that repeat their input. No output
//! may contain a secret, or a recognisable part of one.

use super::{Raw, ok};
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use crate::support::model_server::{Answer, ModelServer};
use crate::support::process::Process;
use crate::support::script::{action, decision, plan};
use crate::support::servers::free_port;
use base::config::{Backend, Settings};
use futures::StreamExt;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A secret of the usual form, and unusual ones. Each has a part that is the same in every encoding.
const PLAIN: &str = "pl4nted-QX7ZJ9WK-token";
const ODD: &str = "o d+d\"&<>'%41{x}\\/中😀-VB8KQ2XH-end";
const KEY: &str = "sk-HN3DM5RT-0123456789abcdef";
const TOKEN: &str = "gw-LC6PY4FS-token";
const PARTS: [&str; 4] = ["QX7ZJ9WK", "VB8KQ2XH", "HN3DM5RT", "LC6PY4FS"];

fn clean(what: &str, text: &str) {
    for part in PARTS {
        if let Some(at) = text.find(part) {
            let begin = text.floor_char_boundary(at.saturating_sub(200));
            let end = text.ceil_char_boundary((at + 200).min(text.len()));
            panic!("{what} has {part}: …{}…", &text[begin..end]);
        }
    }
}

/// Repeats the request in all ways that APIs do.
fn repeat(request: &str) -> String {
    let path = request.split(' ').nth(1).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let html = request.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;").replace('\'', "&#x27;");
    let escaped: String = request.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let everything = json!({
        "path": path, "head": head, "body": body, "sent": serde_json::from_str::<Value>(body).unwrap_or_default(),
        "html": html, "nested": json!({"request": request}).to_string(), "list": [[request]],
        PLAIN: {ODD: 1}, "form": url::form_urlencoded::byte_serialize(request.as_bytes()).collect::<String>(),
        "status": "done",
    });
    match path.split('/').nth(1).unwrap() {
        "echo" => ok(&everything),
        "text" => format!("HTTP/1.1 200 OK\r\n\r\n{request}\n{html}"),
        "fail" => format!(
            "HTTP/1.1 422 No\r\ncontent-type: application/json\r\n\r\n{}",
            everything.to_string().replace('/', "\\/")
        ),
        "down" => format!("HTTP/1.1 500 Down\r\n\r\n{{\"said\":\"{escaped}\"}}"),
        // The secret is at every position where the text of an error may be cut.
        "long" => format!("HTTP/1.1 400 No\r\n\r\n{}", format!("{PLAIN}{ODD}").repeat(4_000)),
        "cut" => format!("HTTP/1.1 400 No\r\n\r\n{}{PLAIN}", "x".repeat(2_040)),
        "away" => format!("HTTP/1.1 302 Found\r\nlocation: http://localhost:1/{PLAIN}?k={PLAIN}\r\n\r\n"),
        "round" => format!("HTTP/1.1 302 Found\r\nlocation: {path}\r\n\r\n"),
        _ => "HTTP/1.1 404 Gone\r\n\r\ngone".into(),
    }
}

const PATHS: [&str; 8] = ["echo", "text", "fail", "down", "long", "cut", "away", "round"];

/// A skill for each path, with both secrets in the URL, the headers and the body, and some skills that cannot be
/// called.
fn skills(api: &Raw) -> Value {
    let call = |url: String| {
        json!({
            "method": "POST", "url": url, "retries": 1, "timeout": "5s",
            "query": {"k": "${PLAIN}", "odd": "${ODD}"},
            "headers": {"Authorization": "Bearer ${PLAIN}", "X-Api-Key": "${ODD}", "X-Q": "{q}"},
            "body": {"token": "${PLAIN}", "odd": "a ${ODD} b", "q": "{q}"},
        })
    };
    let mut skills: Vec<Value> =
        PATHS.iter().map(|path| json!({"id": path, "http": call(api.url(&format!("/{path}/${{PLAIN}}")))})).collect();
    for (id, url) in [("refused", "http://127.0.0.1:1/${PLAIN}"), ("private", "http://127.0.0.2/${PLAIN}")] {
        skills.push(json!({"id": id, "http": call(url.to_owned())}));
    }
    skills.into()
}

fn ids(skills: &Value) -> Vec<String> {
    skills.as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap().to_owned()).collect()
}

/// An agent with rules that replies with the result of a skill.
fn rules_agent(skills: &Value) -> Value {
    let mut rules: Vec<Value> = Vec::new();
    for id in ids(skills) {
        rules.push(json!({"when": {"result_of": id}, "decide": {"next_status": "typing", "response": "{result} {error} {ok}"}}));
        let call = action("SKILL", &id, &json!({"q": "{message}"}));
        rules.push(json!({"when": {"contains": [id]}, "decide": {"next_status": "processing", "action": call}}));
    }
    json!({"id": "rules", "model": "offline", "sop": "x", "skills": skills, "rules": rules})
}

/// Decides like the other agent, and repeats its key wherever a model server can.
fn model(call: &crate::support::model_server::Call) -> Option<Answer> {
    let (key, asked) = (call.header("authorization").to_owned(), call.message("system").to_owned());
    let first = decision("processing", action("SKILL", "echo", &json!({"q": key})), json!(format!("interim {key}")));
    Some(match (call.number % 4, call.schema()) {
        (0, _) => Answer::status(500, &format!("{}{key}", "y".repeat(990))),
        (1, "plan_and_decision") => Answer::json(&plan(json!(format!("hello {key}")), &first)),
        (2, _) => Answer::status(401, &json!({"error": {"message": format!("bad key {key} {asked}")}}).to_string()),
        _ => Answer::json(&decision("typing", Value::Null, json!(format!("done {key}")))),
    })
}

struct Dev {
    folder: TempDir,
    settings: Settings,
    client: reqwest::Client,
    _process: Process,
}

impl Dev {
    async fn start(agents: &[Value], model: &ModelServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings { backend: Backend::Embedded, ..Settings::default() };
        settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
        std::fs::create_dir(folder.path().join("agents")).unwrap();
        for agent in agents {
            let name = format!("agents/{}.json", agent["id"].as_str().unwrap());
            std::fs::write(folder.path().join(name), agent.to_string()).unwrap();
        }
        let base = model.base_url();
        let env = [
            ("PLAIN", PLAIN),
            ("ODD", ODD),
            ("MODEL_KEY", KEY),
            ("TURNWHEEL_SECRETS__ALLOW", "PLAIN@127.0.0.1,127.0.0.2,ODD@127.0.0.1,127.0.0.2"),
            ("TURNWHEEL_GATEWAY__TOKENS", TOKEN),
            ("TURNWHEEL_HTTP__ALLOW_PRIVATE", "127.0.0.1"),
            ("TURNWHEEL_MODELS__DEFAULT__PROVIDER", "openai"),
            ("TURNWHEEL_MODELS__DEFAULT__BASE_URL", base.as_str()),
            ("TURNWHEEL_MODELS__DEFAULT__MODEL", "m"),
            ("TURNWHEEL_MODELS__DEFAULT__API_KEY_ENV", "MODEL_KEY"),
            ("TURNWHEEL_MODELS__DEFAULT__MAX_RETRIES", "1"),
        ];
        let process = Process::start_with(folder.path(), &settings, &["--log", "trace", "dev"], &env);
        let client = base::http_client::builder().no_proxy().build().unwrap();
        let dev = Self { folder, settings, client, _process: process };
        let ready = dev.url("/readyz");
        eventually(DEADLINE, "dev is ready", || async {
            dev.client.get(&ready).send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        dev
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.settings.gateway.listen)
    }

    async fn get(&self, path: &str) -> String {
        let answer = self.client.get(self.url(path)).bearer_auth(TOKEN).send().await.unwrap();
        answer.text().await.unwrap()
    }

    async fn say(&self, session: &str, agent: &str, job: &str, text: &str) {
        let body = json!({"session_id": session, "agent_id": agent, "job_id": job, "text": text});
        let request = self.client.post(self.url("/api/v1/messages")).bearer_auth(TOKEN).json(&body);
        assert_eq!(request.send().await.unwrap().status(), 202);
        eventually(DEADLINE, &format!("{session}/{job} is done"), || async {
            let session: Value = serde_json::from_str(&self.get(&format!("/api/v1/sessions/{session}")).await).unwrap();
            session["recent_jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|done| done == job))
        })
        .await;
    }

    /// All events of a session, up to the end of the turn of `job`.
    async fn events(&self, session: &str, job: &str) -> String {
        let request = self.client.get(self.url(&format!("/api/v1/sessions/{session}/events")));
        let answer = request.bearer_auth(TOKEN).header("last-event-id", "0").send().await.unwrap();
        let (mut events, mut text) = (answer.bytes_stream(), String::new());
        let ended = |text: &str| {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            data.filter_map(|data| serde_json::from_str::<Value>(data).ok())
                .any(|event| event["turn"]["jobs"][0] == job)
        };
        while !ended(&text) {
            let more = tokio::time::timeout(DEADLINE, events.next()).await.expect("the turn ends").unwrap().unwrap();
            text.push_str(&String::from_utf8_lossy(&more));
        }
        text
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_apis_and_models_repeat_stays_inside() {
    let (api, model_server) = (Raw::start(repeat).await, ModelServer::start().await);
    model_server.script(model);
    let skills = skills(&api);
    let mut asked = rules_agent(&skills);
    (asked["id"], asked["model"]) = (json!("asked"), json!("default"));
    let dev = Dev::start(&[rules_agent(&skills), asked], &model_server).await;

    for (number, id) in ids(&skills).into_iter().enumerate() {
        // `${…}` in a user's message is text and must not be filled in for the API.
        dev.say("s1", "rules", &format!("m-{number}"), &format!("{id} ${{PLAIN}}")).await;
    }
    for number in 0..4 {
        dev.say("s2", "asked", &format!("m-{number}"), "hi").await;
    }
    assert!(
        api.seen().iter().any(|request| request.contains(PLAIN) && request.contains("${PLAIN}")),
        "the secret was used"
    );
    assert!(model_server.calls().iter().all(|call| call.header("authorization") == format!("Bearer {KEY}")));
    for call in model_server.calls() {
        clean("a prompt", &call.body.to_string());
    }

    let last = ids(&skills).len() - 1;
    clean("the events", &dev.events("s1", &format!("m-{last}")).await);
    clean("the events", &dev.events("s2", "m-3").await);
    let mut shown = String::new();
    for session in ["s1", "s2"] {
        clean("the session", &dev.get(&format!("/api/v1/sessions/{session}")).await);
        for number in 0..=last {
            shown.push_str(&dev.get(&format!("/api/v1/sessions/{session}/turns/m-{number}")).await);
        }
    }
    clean("the steps", &shown);
    for part in ["HTTP 422", "HTTP 500", "HTTP 400", "redirects to another server", "more than 5 redirects", "***"] {
        assert!(shown.contains(part), "the turns show what happened: {part}");
    }
    for path in ["/api/v1/agents", "/api/v1/agents/rules", "/api/v1/models", "/api/v1/sessions"] {
        clean(path, &dev.get(path).await);
    }
    let wrong = dev.client.get(dev.url("/api/v1/agents")).bearer_auth(format!("{TOKEN}x")).send().await.unwrap();
    assert_eq!(wrong.status(), 401);
    clean("a refusal", &wrong.text().await.unwrap());

    let log = Process::log(dev.folder.path());
    assert!(log.contains("TRACE") && log.contains("call failed, retrying"), "the log has the most verbose level");
    clean("the log", &log);
    clean("the store's file", &contents(&dev.folder.path().join("data")));
}

/// Contents of all files in a folder.
fn contents(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    files.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

/// All output of a command.
async fn said(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwheel"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    for name in ["NATS_URL", "MONGODB_URI", "TURNWHEEL_CONFIG"] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied());
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_and_its_errors_show_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let mongodb = "mongodb://tw:p%40ss-QX7ZJ9WK@db:1,db:2/?tlsCertificateKeyFilePassword=VB8KQ2XH";
    let env = [
        ("NATS_URL", "nats://user:HN3DM5RT@a:4222,nats://user:HN3DM5RT@b:4222"),
        ("MONGODB_URI", mongodb),
        ("TURNWHEEL_GATEWAY__TOKENS", "LC6PY4FS-1,LC6PY4FS-2"),
        ("TURNWHEEL_SECRETS__ALLOW", "PLAIN@127.0.0.1"),
        ("TURNWHEEL_MODELS__DEFAULT__PROVIDER", "openai"),
        ("TURNWHEEL_MODELS__DEFAULT__BASE_URL", "https://u:QX7ZJ9WK@api.example.com/v1?key=VB8KQ2XH"),
        ("TURNWHEEL_MODELS__DEFAULT__MODEL", "m"),
        ("TURNWHEEL_MODELS__DEFAULT__API_KEY_ENV", "MODEL_KEY"),
        ("MODEL_KEY", KEY),
        ("PLAIN", PLAIN),
    ];
    for args in [&["config"][..], &["config", "--json"], &["--log", "trace", "config"]] {
        let text = said(folder.path(), args, &env).await;
        assert!(text.contains("mongodb.uri") && text.contains("***"), "{text}");
        clean("config", &text);
    }
    for toml in [
        "[mongodb]\nuri = \"mongodb://u:QX7ZJ9WK@db\" x\n",
        "[gateway]\ntokens = [\"LC6PY4FS\", \"LC6PY4FS\n",
        "nats = \"nats://u:HN3DM5RT@a\"\n",
        "mongodb = [\"QX7ZJ9WK\"]\n",
        "gateway = \"LC6PY4FS\"\n",
        "[gateway]\ntokens = \"LC6PY4FS\"\n",
        "[gateway]\ntokens = [1, \"LC6PY4FS\"]\n",
        "[mongodb]\nuri = 5\nurl = \"mongodb://u:QX7ZJ9WK@db\"\n",
        "[nats]\nurl = \"natz://u:HN3DM5RT@a\"\n",
        "[nats]\nurl = \"nats://u:HN3DM5RT@a,nats://LC6PY4FS@b\"\n",
        "[nats]\nurl = \"nats://u:HN3DM5RT,LC6PY4FS@a\"\n",
        "[mongodb]\nuri = \"mongo://u:QX7ZJ9WK@db\"\n",
        "[models.default]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"ftp://u:QX7ZJ9WK@h\"\n",
        "[models]\ndefault = \"QX7ZJ9WK\"\n",
        "[secrets]\nallow = 5\nQX = \"VB8KQ2XH\"\n",
    ] {
        std::fs::write(folder.path().join("turnwheel.toml"), toml).unwrap();
        let text = said(folder.path(), &["config"], &[]).await;
        assert!(text.contains("error: ") && text.contains("turnwheel.toml"), "{toml}: {text}");
        clean(toml, &text);
    }
    for (name, value) in
        [("TURNWHEEL_MONGODB", mongodb), ("TURNWHEEL_GATEWAY", "LC6PY4FS"), ("TURNWHEEL_NATS", "HN3DM5RT")]
    {
        std::fs::write(folder.path().join("turnwheel.toml"), "").unwrap();
        clean(name, &said(folder.path(), &["config"], &[(name, value)]).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_away_are_named_without_their_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let nats = "nats://user:HN3DM5RT-x@127.0.0.1:1";
    let uris = [
        "mongodb://tw:p%40ss-QX7ZJ9WK@127.0.0.1:1/?directConnection=true",
        "mongodb://tw:p@ss:QX7ZJ9WK/x@127.0.0.1:1/",
        "mongodb://tw:QX7ZJ9WK@127.0.0.1:1/?readPreference=nonsense&tlsCertificateKeyFilePassword=VB8KQ2XH",
        "mongodb://tw:QX7ZJ9WK@127.0.0.1:port/",
    ];
    let commands = uris.map(|uri| {
        let path = folder.path();
        async move {
            let env = [("NATS_URL", nats), ("MONGODB_URI", uri)];
            (uri, said(path, &["--log", "debug", "sessions", "list"], &env).await)
        }
    });
    for (uri, text) in futures::future::join_all(commands).await {
        assert!(text.contains("error: "), "{uri}: {text}");
        clean(uri, &text);
    }
}
