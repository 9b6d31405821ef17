//! The operators' commands as they type them: timers, dead letters, doctor, watching, completions.

use crate::commands::Folder;
use crate::scenarios::{answer, sales_with};
use crate::support::engine::{DEADLINE, Engine};
use crate::support::process::{Process, toml};
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::{self, Server, free_port, private};
use crate::support::{backend, eventually};
use async_nats::jetstream;
use base::config::Settings;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;

/// An agent with offline rules and two timers.
fn timed() -> String {
    let timer = |name: &str| json!({"name": name, "delay": "1h", "message": "还需要帮助吗？"});
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": "好的"}}]);
    json!({"id": "timed", "name": "小智", "model": "offline", "sop": "回答", "rules": rules,
           "timers": [timer("follow_up"), timer("回访")]})
    .to_string()
}

/// Level and text of the finding about a place that contains `part`.
pub fn found<'f>(findings: &'f Value, place: &str, part: &str) -> Option<(&'f str, &'f str)> {
    let all = findings["findings"].as_array().unwrap().iter();
    let mut fitting =
        all.filter_map(|one| Some((one["level"].as_str()?, one["where"].as_str()?, one["what"].as_str()?)));
    fitting.find(|(_, at, what)| at.contains(place) && what.contains(part)).map(|(level, _, what)| (level, what))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_listed_and_cancelled_through_dev() {
    let folder = Folder::embedded();
    folder.write("agents/timed.json", &timed());
    let _dev = folder.dev().await;
    for session_id in ["s1", "会话"] {
        let sent = folder.run(&["send", "--session", session_id, "--agent", "timed", "--wait", "你好"], "").await;
        assert_eq!(sent.code, 0, "{sent:?}");
    }
    let listed = folder.run(&["timers", "list"], "").await;
    assert_eq!(listed.out.lines().count(), 5, "{listed:?}");
    for part in ["SESSION", "会话", "follow_up", "回访", "in 59m", "还需要帮助吗？"] {
        assert!(listed.out.contains(part), "{part}: {listed:?}");
    }
    let ordered = folder.run(&["timers", "cancel", "--session", "s1", "--name", "回访", "--json"], "").await;
    assert_eq!(ordered.json()["session_id"], "s1");
    let of_s1 =
        async || folder.run(&["timers", "list", "--session", "s1", "--json"], "").await.json()["timers"].clone();
    let left = eventually(DEADLINE, "one of them is cancelled", || async {
        let left = of_s1().await;
        (left.as_array().unwrap().len() == 1).then_some(left)
    })
    .await;
    assert_eq!((&left[0]["name"], &left[0]["session_id"]), (&json!("follow_up"), &json!("s1")));
    assert_eq!(folder.run(&["timers", "cancel", "--session", "s1"], "").await.code, 0);
    eventually(DEADLINE, "the other one, too", || async { of_s1().await.as_array().unwrap().is_empty() }).await;
    let none = folder.run(&["timers", "list", "--session", "s1"], "").await;
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{none:?}");
    assert!(none.err.contains("no timers"), "{none:?}");
    assert_eq!(folder.run(&["timers", "list", "--json"], "").await.json()["timers"].as_array().unwrap().len(), 2);
    let unknown = folder.run(&["timers", "cancel", "--session", "nobody"], "").await;
    assert!(unknown.code == 1 && unknown.err.contains("hint: "), "{unknown:?}");
    assert_eq!(folder.run(&["timers", "cancel"], "").await.code, 2, "the session is missing");
}

/// The test's own connections to a cluster, with a worker process in a folder.
async fn cluster_with_worker() -> (Engine, Folder, Process) {
    let model = ScriptedModel::answering(vec![plan(json!("您好"), &answer("好的"))]).await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    let folder = Folder::with(engine.settings.clone());
    let worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    (engine, folder, worker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_shown_and_replayed_on_a_cluster() {
    let (engine, folder, _worker) = cluster_with_worker().await;
    let none = folder.run(&["dead", "list"], "").await;
    assert!(none.code == 0 && none.out.is_empty() && none.err.contains("no dead letters"), "{none:?}");
    engine.publish_job("s1", json!({"type": "dance"})).await;
    let job =
        json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "消息-1", "text": "你好"});
    engine.publish_job("s1", job).await;
    eventually(DEADLINE, "both jobs are dead-lettered", || async { engine.dead_letters().await.len() == 2 }).await;

    let listed = folder.run(&["dead", "list"], "").await;
    let lines: Vec<&str> = listed.out.lines().collect();
    assert!(
        lines[1].starts_with(" 2") && lines[1].contains("unknown_agent") && lines[1].contains("消息-1"),
        "{listed:?}"
    );
    assert!(lines[2].starts_with(" 1") && lines[2].contains("invalid"), "newest first: {listed:?}");
    let shown = folder.run(&["dead", "show", "消息-1"], "").await;
    for part in ["unknown_agent", "turnwheel agents apply", "session   s1", "\"text\": \"你好\""] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    assert_eq!(folder.run(&["dead", "show", "1", "--json"], "").await.json()["payload"]["type"], "dance");

    let early = folder.run(&["dead", "replay", "2"], "").await;
    assert!(early.code == 1 && early.err.contains("there is no agent `sales`"), "{early:?}");
    let unfit = folder.run(&["dead", "replay", "1"], "").await;
    assert!(unfit.code == 1 && unfit.err.contains("fail again") && unfit.err.contains("hint: "), "{unfit:?}");
    engine.apply(sales_with(&json!({}))).await;
    let replayed = folder.run(&["dead", "replay", "2"], "").await;
    assert_eq!((replayed.code, replayed.out.as_str()), (0, "消息-1-replay-2\n"), "{replayed:?}");
    assert!(replayed.err.contains("queued dead letter 2 as job `消息-1-replay-2` of session `s1`"), "{replayed:?}");
    engine.turn("s1", "消息-1-replay-2").await;
    assert_eq!(engine.said("s1").await.len(), 2, "greeting and reply");
    let left = folder.run(&["dead", "list", "--json"], "").await.json();
    assert_eq!((left["letters"].as_array().unwrap().len(), &left["letters"][0]["seq"]), (1, &json!(1)));
    let gone = folder.run(&["dead", "replay", "2"], "").await;
    assert!(gone.code == 1 && gone.err.contains("turnwheel dead list"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_of_dev_finds_what_cannot_be_used() {
    let folder = Folder::embedded();
    folder.write("agents/timed.json", &timed());
    folder.write("turnwheel.toml", "");
    let nothing = folder.run(&["doctor"], "").await;
    assert!(nothing.code == 1 && nothing.out.contains("turnwheel dev"), "no engine runs: {nothing:?}");
    let _dev = folder.dev().await;
    let well = folder.run(&["doctor"], "").await;
    assert_eq!(well.code, 0, "{well:?}");
    assert!(well.out.contains("1 in the store, all valid") && well.out.contains("dead letters: none"), "{well:?}");
    assert!(!well.out.contains('\u{1b}'), "no colours outside of a terminal");
    folder.write("prompts/phase1.md", "{{ unclosed");
    let ill = folder.run(&["doctor", "--json"], "").await;
    assert_eq!(ill.code, 1, "{ill:?}");
    let findings = ill.json();
    assert_eq!(
        (found(&findings, "prompts_dir", "phase1.md").unwrap().0, &findings["problems"]),
        ("problem", &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_of_a_cluster_tells_advice_from_problems() {
    let settings = backend::cluster().await.settings;
    let mut fresh = Settings { namespace: format!("{}fresh", settings.namespace), ..settings };
    fresh.mongodb.database.push_str("fresh");
    fresh.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(fresh);
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let doctor = async || folder.run(&["doctor", "--json"], "").await;
    let before = doctor().await;
    assert_eq!(before.code, 0, "all findings are advice: {before:?}");
    let stream = format!("{}_JOBS", folder.settings.namespace.to_uppercase());
    assert_eq!(found(&before.json(), &stream, "does not exist yet").unwrap().0, "advice");
    let nats = async_nats::connect(&folder.settings.nats.url).await.unwrap();
    let missing = jetstream::new(nats.clone()).get_stream(&stream).await;
    assert!(missing.is_err(), "the doctor creates no stream");

    let worker = Process::start(folder.path(), &folder.settings, &["all"]);
    let after = eventually(DEADLINE, "the worker pulls and the scheduler leads", || async {
        let after = doctor().await;
        let findings = after.json();
        let pulls = found(&findings, "> workers", "workers pull").is_some();
        (pulls && found(&findings, "scheduler", "leads").is_some_and(|(level, _)| level == "ok")).then_some(after)
    })
    .await;
    assert_eq!(after.code, 0, "{after:?}");
    let findings = after.json();
    for (place, part, level) in [
        ("nats.url", "nats-server", "ok"),
        (stream.as_str(), "one replica", "advice"),
        ("sync_interval", "", "advice"),
        ("mongodb.uri", "mongod", "ok"),
        ("replica set", "1 member", "advice"),
        ("storage engine", "journal", "ok"),
        ("old versions", "for 300 s", "advice"),
        ("clocks", "ms apart", "ok"),
        ("agents", "no agent is stored", "advice"),
        ("lanes", "no session", "ok"),
        ("dead letters", "none", "ok"),
    ] {
        assert_eq!(found(&findings, place, part).map(|(level, _)| level), Some(level), "{place}: {findings:#}");
    }
    let jetstream = jetstream::new(nats);
    let mut config = jetstream.get_stream(&stream).await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = 7;
    jetstream.update_stream(config).await.unwrap();
    let ill = doctor().await;
    assert_eq!(ill.code, 1, "{ill:?}");
    let (level, what) = (found(&ill.json(), &stream, "max_messages_per_subject").unwrap().0.to_owned(), ill.out);
    assert!(level == "problem" && what.contains("should be 1128") && what.contains("nats stream edit"), "{what}");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_servers_that_are_away_and_asks_the_monitoring_port() {
    let (nats, mongod, handles) = private().await;
    let folder = Folder::with(handles.settings());
    let worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    eventually(DEADLINE, "the worker has started", || async { Process::log(folder.path()).contains("worker started") })
        .await;
    // The monitoring port of another server, which the doctor must not confuse with this one's.
    let (other, monitor) = Server::nats_monitored();
    let doctor = folder.run(&["doctor", "--json", "--nats-monitor", &monitor], "").await.json();
    assert!(found(&doctor, "sync_interval", "another server").is_some(), "{doctor:#}");
    let mut of_other = handles.settings();
    of_other.nats.url = other.address();
    let second = Folder::with(of_other);
    let scheduler = Process::start(second.path(), &second.settings, &["scheduler"]);
    let synced = eventually(DEADLINE, "the streams are there", || async {
        let doctor = second.run(&["doctor", "--json", "--nats-monitor", &monitor], "").await.json();
        found(&doctor, "sync_interval", "").map(|(level, what)| (level.to_owned(), what.to_owned()))
    })
    .await;
    assert_eq!(synced, ("ok".to_owned(), "always: acknowledged messages are on disk".to_owned()));
    drop((worker, scheduler));
    nats.kill();
    mongod.kill();
    let away = folder.run(&["doctor"], "").await;
    assert_eq!(away.code, 1, "{away:?}");
    let problems: Vec<&str> = away.out.lines().filter(|line| line.starts_with("problem ")).collect();
    let nats = problems.iter().find(|line| line.contains("nats.url = nats://")).unwrap();
    assert!(nats.contains("cannot connect: no server listens there") && !nats.contains("os error"), "{away:?}");
    assert!(problems.iter().any(|line| line.contains("mongodb.uri = mongodb://")), "{away:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_list_is_shown_again_when_it_changes() {
    let folder = Folder::embedded();
    folder.write("agents/timed.json", &timed());
    let _dev = folder.dev().await;
    let mut watching = folder.command(&["sessions", "list", "--watch"]);
    let mut child = watching.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = |part: &'static str| {
        let deadline = std::time::Instant::now() + DEADLINE;
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())) {
            if line.contains(part) {
                return;
            }
        }
        panic!("no line contains {part}");
    };
    next("no sessions");
    folder.run(&["send", "--session", "s1", "--agent", "timed", "你好"], "").await;
    next("s1");
    folder.run(&["send", "--session", "会话", "--agent", "timed", "你好"], "").await;
    next("会话");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_need_no_settings_and_know_every_command() {
    let folder = Folder::with(Settings::default());
    folder.write("turnwheel.toml", "this is no TOML");
    for shell in ["bash", "zsh", "fish"] {
        let made = folder.run(&["completions", shell], "").await;
        assert_eq!(made.code, 0, "{made:?}");
        for word in ["doctor", "replay", "timers", "nats-monitor"] {
            assert!(made.out.contains(word), "{shell}: {word}");
        }
    }
    let script = folder.run(&["completions", "bash"], "").await.out;
    folder.write("completions.bash", &script);
    let checked = std::process::Command::new("bash").arg("-n").arg(folder.path().join("completions.bash")).status();
    assert!(checked.unwrap().success());
    assert_eq!(folder.run(&["completions", "tcsh"], "").await.code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_from_the_command_line_a_turn_ends_at_once() {
    let (engine, folder, _worker) = cluster_with_worker().await;
    engine.apply(sales_with(&json!({}))).await;
    engine.model.script(|_| Answer::Hang);
    engine.publish("s1", "m-1", "你好").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    let cancelled = folder.run(&["sessions", "cancel", "s1", "--by", "li", "--reason", "错单", "--json"], "").await;
    assert_eq!(cancelled.json()["session_id"], "s1", "{cancelled:?}");
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.reason.as_deref(), Some("operator: li: 错单"));
    let shown = folder.run(&["sessions", "show", "s1"], "").await;
    assert!(shown.out.contains("cancelled (operator: li: 错单)"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_told_to_stop_gives_back_what_it_cannot_finish_in_time() {
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    let folder = Folder::with(engine.settings.clone());
    engine.apply(sales_with(&json!({}))).await;
    let drain = ["--set", "worker.drain_timeout=500ms", "worker"];
    let mut worker = Process::start(folder.path(), &folder.settings, &drain);
    engine.publish("s1", "m-1", "你好").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    worker.signal("TERM");
    // The model's own timeout is longer than this wait.
    let status = eventually(DEADLINE, "the worker has ended", || std::future::ready(worker.ended())).await;
    assert!(status.success(), "{}", Process::log(folder.path()));
    engine.model.script(|_| Answer::json(&plan(json!("您好"), &answer("好的"))));
    let _next = Process::start(folder.path(), &folder.settings, &["worker"]);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.attempts, 1, "a released turn does not count as an attempt");
    let texts: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["您好，我是小智", "好的"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_change_nothing_say_so() {
    let folder = Folder::embedded();
    folder.write("agents/timed.json", &timed());
    let _dev = folder.dev().await;
    let sent = folder.run(&["send", "--session", "s1", "--agent", "timed", "--wait", "你好"], "").await;
    assert_eq!(sent.code, 0, "{sent:?}");
    let named = folder.run(&["timers", "cancel", "--session", "s1", "--name", "nosuch"], "").await;
    assert_eq!((named.code, named.out.as_str()), (0, ""), "{named:?}");
    assert!(named.err.contains("nothing to cancel: s1 has no timer `nosuch`"), "{named:?}");
    let released = folder.run(&["sessions", "release", "s1"], "").await;
    assert!(released.code == 0 && released.err.contains("nothing to release: s1 is `ready`"), "{released:?}");
    // Cancelling also cancels the timers.
    let cancelled = folder.run(&["sessions", "cancel", "s1", "--json"], "").await;
    assert_eq!((cancelled.code, &cancelled.json()["session_id"]), (0, &json!("s1")));
    assert!(cancelled.json()["job_id"].is_string(), "{cancelled:?}");
    let status = async || folder.run(&["sessions", "show", "s1", "--json"], "").await.json();
    eventually(DEADLINE, "it is cancelled", || async { status().await["workflow_state"]["status"] == "cancelled" })
        .await;
    let again = folder.run(&["sessions", "cancel", "s1"], "").await;
    assert!(again.err.contains("nothing to cancel: s1 has no turn in progress"), "{again:?}");
    let json = folder.run(&["sessions", "cancel", "s1", "--json"], "").await.json();
    assert_eq!((&json["changed"], &json["session_id"]), (&json!(false), &json!("s1")));

    let closed = folder.run(&["sessions", "close", "s1", "--by", "li"], "").await;
    assert!(closed.code == 0 && !closed.err.contains("nothing"), "{closed:?}");
    eventually(DEADLINE, "it is closed", || async { status().await["closed_at"].is_string() }).await;
    let again = folder.run(&["sessions", "close", "s1"], "").await;
    assert!(again.code == 0 && again.err.contains("nothing to close: s1 is closed since"), "{again:?}");
    let sent = folder.run(&["send", "--session", "s1", "--wait", "还在吗"], "").await;
    assert!(sent.code == 0 && sent.out.contains("好的"), "the next message opens it again: {sent:?}");
    let unknown = folder.run(&["sessions", "cancel", "nobody"], "").await;
    assert!(unknown.code == 1 && unknown.err.contains("nobody"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_completions_may_leave_early() {
    let folder = Folder::with(Settings::default());
    folder.write("turnwheel.toml", "");
    let mut child =
        folder.command(&["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_agent_file_is_told_through_dev() {
    let folder = Folder::embedded();
    folder.write("agents/timed.json", &timed());
    folder.write("agents/broken.yaml", "id: broken\ntone: [\n");
    folder.write("turnwheel.toml", "");
    let _dev = folder.dev().await;
    let ill = folder.run(&["doctor", "--json"], "").await;
    assert_eq!(
        (ill.code, found(&ill.json(), "broken.yaml", "").map(|(level, _)| level)),
        (1, Some("problem")),
        "{ill:?}"
    );
    let listed = folder.run(&["agents", "list"], "").await;
    assert!(listed.code == 0 && listed.err.contains("broken.yaml is not applied"), "{listed:?}");
    folder.write("agents/broken.yaml", &timed().replace("timed", "mended"));
    eventually(DEADLINE, "it is applied", || async {
        folder.run(&["agents", "list"], "").await.out.contains("mended")
    })
    .await;
    let well = folder.run(&["doctor"], "").await;
    assert_eq!(well.code, 0, "{well:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_set_that_is_not_initiated_is_recognised_and_made() {
    let (nats, mongod) = (Server::nats(), Server::mongod());
    let mut settings = Settings::default();
    settings.nats.url = nats.address();
    settings.mongodb.uri = mongod.address().replace("/?directConnection=true", "");
    let folder = Folder::with(settings);
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let ill = folder.run(&["doctor"], "").await;
    assert_eq!(ill.code, 1, "{ill:?}");
    assert!(ill.out.contains("not initiated") && ill.out.contains("turnwheel doctor --initiate"), "{ill:?}");
    assert!(!ill.out.contains("Topology") && !ill.out.contains("labels"), "{ill:?}");
    let unset = {
        let folder = Folder::embedded();
        folder.write("turnwheel.toml", "");
        folder.run(&["doctor", "--initiate"], "").await
    };
    assert!(
        unset.code == 1 && unset.out.contains("no cluster is configured, so no replica set is initiated"),
        "{unset:?}"
    );
    let made = folder.run(&["doctor", "--initiate"], "").await;
    assert!(made.code == 0 && made.out.contains("the replica set `rs0` is initiated"), "{made:?}");
    let again = folder.run(&["doctor", "--initiate"], "").await;
    assert!(again.code == 0 && again.out.contains("is initiated already"), "{again:?}");
    // With streams and indexes in place, a cluster without a scheduler is a problem.
    let worker = Process::start(folder.path(), &folder.settings, &["worker"]);
    eventually(DEADLINE, "the missing scheduler is a problem", || async {
        let doctor = folder.run(&["doctor", "--json"], "").await;
        found(&doctor.json(), "scheduler", "no scheduler leads")
            .is_some_and(|(level, _)| level == "problem" && doctor.code == 1)
    })
    .await;
    drop(worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_mongodb_are_told_in_words() {
    let mut settings = servers::cluster().await.settings();
    let address = settings.mongodb.uri.replace("mongodb://", "mongodb://nobody:hidden@");
    settings.mongodb.uri = address;
    let folder = Folder::with(settings);
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let ill = folder.run(&["doctor", "--json"], "").await;
    let findings = ill.json();
    let (level, what) = found(&findings, "mongodb.uri", "").unwrap();
    assert_eq!(level, "problem", "{findings:#}");
    assert!(what.contains("the login is refused") && what.contains("check user, password"), "{what}");
    for part in ["Some(", "Kind:", "labels", "hidden"] {
        assert!(!what.contains(part), "{part}: {what}");
    }
}
