//! Connections to NATS: lists of servers, all kinds of credentials, TLS with a private authority and client
//! certificates.

mod certificates;

use crate::commands::Folder;
use crate::support::engine::{DEADLINE, quick};
use crate::support::servers::{Server, free_port};
use base::config::{Backend, Nats, Settings};
use certificates::Certificates;
use cluster::nats::NatsQueue;
use serde_json::Value;
use std::time::Duration;
use storage::queue::{Publish, Queue, QueueError};
use tokio_util::sync::CancellationToken;

/// Seed of a user, and its public key.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

fn settings(nats: Nats) -> Settings {
    quick(Settings { nats, ..Settings::default() })
}

async fn connected(nats: Nats) -> Result<NatsQueue, QueueError> {
    NatsQueue::connect(&settings(nats), CancellationToken::new()).await
}

async fn refused(nats: Nats) -> String {
    let refused = tokio::time::timeout(DEADLINE, connected(nats)).await.expect("the connection attempt ends");
    match refused.err() {
        Some(QueueError::Refused(problem)) => problem.to_string(),
        other => panic!("expected a refusal: {other:?}"),
    }
}

/// Checks that a job can be published and pulled.
async fn works(nats: Nats) {
    let queue = connected(nats).await.unwrap();
    queue.publish(Publish { session_id: "s".into(), msg_id: None, payload: "{}".into() }).await.unwrap();
    let pulled = queue.pull(1, DEADLINE).await.unwrap();
    assert_eq!(pulled.len(), 1);
    queue.ack(&pulled[0].token).await.unwrap();
}

fn at(url: impl Into<String>) -> Nats {
    Nats { url: url.into(), ..Nats::default() }
}

/// URL of a server with these credentials.
fn with(credentials: &str, server: &Server) -> Nats {
    at(server.address().replace("://", &format!("://{credentials}@")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_servers_works_while_the_first_is_down() {
    let server = Server::nats();
    let down = free_port();
    works(at(format!("nats://127.0.0.1:{down}, {} ,", server.address()))).await;
    // Without a scheme, which NATS clients accept.
    let address = server.address().replace("nats://", "");
    works(at(format!("127.0.0.1:{down},{address}"))).await;
    let problem = refused(at(format!("{},nats://queue:port", server.address()))).await;
    assert!(problem.contains("entry 2 (`nats://queue:port`)"), "{problem}");
    let folder = Folder::with(settings(at(format!("nats://127.0.0.1:{down},{}", server.address()))));
    let findings = doctor(&folder, &[]).await;
    assert_reached(&findings);
}

/// Standard output and error of a command with these environment variables.
async fn output(folder: &Folder, args: &[&str], env: &[(&str, &str)]) -> (String, String) {
    folder.write("turnwheel.toml", &toml(&folder.settings));
    let mut command = folder.command(args);
    command.envs(env.iter().copied());
    let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap())
}

/// Findings of `doctor` with these environment variables.
async fn doctor(folder: &Folder, env: &[(&str, &str)]) -> Value {
    let (out, err) = output(folder, &["doctor", "--json"], env).await;
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"))
}

fn assert_reached(findings: &Value) {
    let is_reached = |finding: &Value| {
        let what = finding["what"].as_str().unwrap_or_default();
        finding["where"].as_str().is_some_and(|place| place.starts_with("nats.url"))
            && what.starts_with("nats-server ")
            && what.ends_with(" responds")
    };
    assert!(findings["findings"].as_array().unwrap().iter().any(is_reached), "{findings:#}");
}

/// The NATS settings as a file, with a port for MongoDB where no server listens.
fn toml(settings: &Settings) -> String {
    let nats = &settings.nats;
    assert_eq!(settings.backend, Backend::Cluster);
    let path = |name: &str, path: &Option<std::path::PathBuf>| {
        path.as_ref().map(|path| format!("{name} = {path:?}\n")).unwrap_or_default()
    };
    let text = |name: &str, text: &Option<String>| {
        text.as_ref().map(|text| format!("{name} = {text:?}\n")).unwrap_or_default()
    };
    [
        format!(
            "[mongodb]\nuri = \"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100\"\n[nats]\nurl = {:?}\n",
            nats.url
        ),
        text("user", &nats.user),
        text("password_env", &nats.password_env),
        text("token_env", &nats.token_env),
        path("nkey", &nats.nkey),
        path("creds", &nats.creds),
        path("ca", &nats.ca),
        path("cert", &nats.cert),
        path("key", &nats.key),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_and_password_are_used_from_the_address_and_from_the_settings() {
    let server = Server::nats_with(r#"authorization { users = [{user: "me", password: "p@ss,w:rd"}] }"#);
    works(with("me:p%40ss%2Cw%3Ard", &server)).await;
    let down = free_port();
    works(at(format!("nats://me:p%40ss%2Cw%3Ard@127.0.0.1:{down},{}", server.address()))).await;
    let problem = refused(with("me:wrong", &server)).await;
    assert!(problem.contains("does not accept the credentials") && problem.contains("nats.url"), "{problem}");
    assert!(!problem.contains("wrong"), "{problem}");
    let problem = refused(at(server.address())).await;
    assert!(problem.contains("set nats.user and nats.password_env"), "{problem}");

    let nats = Nats { user: Some("me".into()), password_env: Some("QUEUE_PASSWORD".into()), ..at(server.address()) };
    let problem = refused(nats.clone()).await;
    assert!(problem.contains("`QUEUE_PASSWORD`, which is not set"), "{problem}");
    let folder = Folder::with(settings(nats));
    let findings = doctor(&folder, &[("QUEUE_PASSWORD", "p@ss,w:rd")]).await;
    assert_reached(&findings);
    let findings = doctor(&folder, &[("QUEUE_PASSWORD", "wrong")]).await;
    assert!(findings.to_string().contains("correct nats.user and nats.password_env"), "{findings:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_used_from_the_address_and_from_the_settings() {
    let server = Server::nats_with(r#"authorization { token: "t0ken/x" }"#);
    works(with("t0ken%2Fx", &server)).await;
    let problem = refused(with("wrong", &server)).await;
    assert!(problem.contains("does not accept the credentials"), "{problem}");
    let folder = Folder::with(settings(Nats { token_env: Some("QUEUE_TOKEN".into()), ..at(server.address()) }));
    let findings = doctor(&folder, &[("QUEUE_TOKEN", "t0ken/x")]).await;
    assert_reached(&findings);
    let findings = doctor(&folder, &[("QUEUE_TOKEN", "wrong")]).await;
    assert!(findings.to_string().contains("correct nats.token_env"), "{findings:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nkey_is_read_from_its_file() {
    let server = Server::nats_with(&format!("authorization {{ users = [{{nkey: {PUBLIC}}}] }}"));
    let folder = Folder::with(Settings::default());
    folder.write("plain.nk", &format!("{SEED}\n"));
    folder.write("marked.nk", &format!("-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"));
    for file in ["plain.nk", "marked.nk"] {
        works(Nats { nkey: Some(folder.path().join(file)), ..at(server.address()) }).await;
    }
    folder.write("public.nk", PUBLIC);
    folder.write("broken.nk", "SUAAAA");
    for (file, part) in
        [("public.nk", "begins with `SU`"), ("broken.nk", "correct nats.nkey"), ("gone.nk", "correct the path")]
    {
        let problem = refused(Nats { nkey: Some(folder.path().join(file)), ..at(server.address()) }).await;
        assert!(problem.contains(part), "{file}: {problem}");
    }
    let findings = doctor(
        &Folder::with(settings(Nats { nkey: Some(folder.path().join("plain.nk")), ..at(server.address()) })),
        &[],
    )
    .await;
    assert_reached(&findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_would_not_be_used_stop_a_process_at_its_start() {
    let server = Server::nats();
    let folder = Folder::with(settings(Nats { creds: Some("none.creds".into()), ..with("me:hidden", &server) }));
    folder.write("turnwheel.toml", &toml(&folder.settings));
    for role in ["worker", "scheduler", "gateway"] {
        let ended = folder.run(&[role], "").await;
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.err.contains("keep either nats.url or nats.creds") && !ended.err.contains("hidden"), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_shows_credentials_masked() {
    let folder = Folder::with(settings(Nats {
        user: Some("me".into()),
        password_env: Some("QUEUE_PASSWORD".into()),
        nkey: None,
        ca: Some("ca.pem".into()),
        ..at("tls://a,tls://b")
    }));
    let (out, _) = output(&folder, &["config"], &[("QUEUE_PASSWORD", "hidden")]).await;
    for part in ["nats.user", "QUEUE_PASSWORD is set", "nats.nkey", "ca.pem", "tls://a,tls://b"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("hidden"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_private_authority_and_client_certificates() {
    let made = Certificates::make();
    let server = Server::nats_with(&made.server("verify: true"));
    let (ca, cert, key) = (made.path("ca.pem"), made.path("client.pem"), made.path("client.key"));
    let whole =
        || Nats { ca: Some(ca.clone()), cert: Some(cert.clone()), key: Some(key.clone()), ..at(server.address()) };
    works(whole()).await;
    works(Nats { url: server.address().replace("nats://", "tls://"), ..whole() }).await;
    let findings = doctor(&Folder::with(settings(whole())), &[]).await;
    assert_reached(&findings);

    let problem = refused(Nats { ca: None, ..whole() }).await;
    assert!(
        problem.contains("UnknownIssuer") && problem.contains("nats.ca"),
        "the system's authorities do not count: {problem}"
    );
    let problem = refused(Nats { cert: None, key: None, ..whole() }).await;
    assert!(problem.contains("nats.cert"), "{problem}");
    let problem = refused(Nats { ca: Some(key.clone()), ..whole() }).await;
    assert!(problem.contains("no PEM block"), "{problem}");
    let problem = refused(Nats { key: Some(made.path("gone.key")), ..whole() }).await;
    assert!(problem.contains("nats.key") && problem.contains("correct the path"), "{problem}");
    // A client certificate of another authority.
    let other = Certificates::make();
    let foreign = Nats { cert: Some(other.path("client.pem")), key: Some(other.path("client.key")), ..whole() };
    assert!(refused(foreign).await.contains("nats.cert"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_asks_for_tls_even_if_the_server_does_not() {
    let made = Certificates::make();
    let plain = Server::nats();
    let nats = Nats { ca: Some(made.path("ca.pem")), ..at(plain.address()) };
    let problem = refused(nats).await;
    assert!(problem.contains("responds without TLS") && problem.contains("nats.ca"), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_that_is_not_permitted_is_an_error_and_no_empty_lane() {
    let forbidden = "$JS.API.CONSUMER.MSG.NEXT.>";
    let users = format!(r#"[{{user: "me", password: "pw", permissions: {{publish: {{deny: "{forbidden}"}}}}}}]"#);
    let server = Server::nats_with(&format!("authorization {{ users = {users} }}"));
    let queue = connected(with("me:pw", &server)).await.unwrap();
    queue.publish(Publish { session_id: "s".into(), msg_id: None, payload: "{}".into() }).await.unwrap();
    let pulled = queue.pull(1, Duration::from_millis(100)).await;
    assert!(
        matches!(&pulled, Err(QueueError::Unavailable(problem)) if problem.to_string().contains("let this user pull")),
        "{pulled:?}"
    );
}
