//! `nats.replicas` on a real cluster of three NATS servers: how streams are created, and the findings of `doctor`.

use crate::commands::Folder;
use crate::operators::found;
use crate::support::engine::DEADLINE;
use crate::support::process::toml;
use crate::support::servers::{Server, cluster};
use crate::support::{eventually, within};
use async_nats::jetstream::{self, Context};
use base::config::Settings;
use bytes::Bytes;
use cluster::nats::NatsQueue;
use serde_json::Value;
use std::sync::Mutex;
use storage::queue::{Publish, Queue, QueueError};
use tokio_util::sync::CancellationToken;

const STREAMS: [&str; 3] = ["TW_JOBS", "TW_OUT", "TW_DEAD"];

/// Settings for all three servers and the shared MongoDB.
async fn settings(servers: &[Server; 3], replicas: usize) -> Settings {
    let mut settings = Settings { namespace: "tw".into(), ..cluster().await.settings() };
    settings.nats.url = servers.each_ref().map(Server::address).join(",");
    settings.nats.replicas = replicas;
    settings
}

async fn queue(settings: &Settings) -> NatsQueue {
    NatsQueue::connect(settings, CancellationToken::new()).await.unwrap()
}

async fn replicas(context: &Context, stream: &str) -> usize {
    context.get_stream(stream).await.unwrap().cached_info().config.num_replicas
}

/// Index of the server that leads the jobs stream.
async fn leader(context: &Context) -> Option<usize> {
    let stream = context.get_stream("TW_JOBS").await.ok()?;
    let leader = stream.cached_info().cluster.as_ref()?.leader.clone()?;
    leader.trim_start_matches('n').parse().ok()
}

fn job(text: &str) -> Publish {
    Publish { session_id: "s1".into(), msg_id: Some(text.into()), payload: Bytes::from(text.to_owned()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_have_as_many_replicas_as_are_set_and_outlive_their_leader() {
    let servers = Server::nats_cluster().await;
    let settings = settings(&servers, 3).await;
    let queue = queue(&settings).await;
    let context =
        jetstream::new(async_nats::connect(servers.each_ref().map(Server::address).as_slice()).await.unwrap());
    for stream in STREAMS {
        assert_eq!(replicas(&context, stream).await, 3, "{stream}");
    }
    let first = queue.publish(job("first")).await.unwrap().seq;
    let leads = eventually(DEADLINE, "the stream has a leader", || leader(&context)).await;
    servers[leads].kill();
    let second = eventually(DEADLINE, "another server leads and takes a job", || async {
        queue.publish(job("second")).await.ok()
    })
    .await
    .seq;
    let found =
        eventually(DEADLINE, "the lane is there", || async { queue.next_in_lane("s1", 0, first).await.ok() }).await;
    assert_eq!(found.unwrap().payload, Bytes::from("first"));
    let found =
        eventually(DEADLINE, "the lane continues", || async { queue.next_in_lane("s1", first, second).await.ok() })
            .await;
    assert_eq!(found.unwrap().seq, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_left_for_another() {
    let servers = Server::nats_cluster().await;
    let mut settings = settings(&servers, 3).await;
    // The server announces the others to its clients.
    settings.nats.url = servers[0].address();
    let queue = queue(&settings).await;
    queue.publish(job("first")).await.unwrap();
    servers[0].pause();
    // The election of a new leader takes up to ten seconds.
    eventually(DEADLINE * 2, "another server takes a job", || async { queue.publish(job("second")).await.ok() }).await;
}

/// Runs the doctor until it has this finding. The servers may need some seconds until all know each other.
async fn doctor_finds(settings: &Settings, place: &str, part: &str, wanted: &str) -> Value {
    let folder = Folder::with(settings.clone());
    folder.write("turnwheel.toml", &toml(settings));
    let last = Mutex::new(Value::Null);
    let fits = within(DEADLINE, || async {
        let findings = folder.run(&["doctor", "--json"], "").await.json();
        let fits = found(&findings, place, part).is_some_and(|(level, _)| level == wanted);
        *last.lock().unwrap() = findings;
        fits
    })
    .await;
    let findings = last.into_inner().unwrap();
    assert!(fits.is_some(), "no {wanted} of {place} says {part:?}: {findings:#}");
    findings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_compares_replicas_with_the_setting_and_the_cluster() {
    let servers = Server::nats_cluster().await;
    let (one, three) = (settings(&servers, 1).await, settings(&servers, 3).await);
    queue(&one).await;
    doctor_finds(&one, "TW_JOBS", "one replica on a cluster with 3 servers up", "problem").await;

    queue(&three).await;
    let context = jetstream::new(async_nats::connect(servers[0].address()).await.unwrap());
    assert_eq!(replicas(&context, "TW_JOBS").await, 1, "an existing stream is not changed");
    let findings = doctor_finds(&three, "TW_OUT", "1 replicas, and nats.replicas is 3", "problem").await;
    assert!(findings.to_string().contains("nats stream edit TW_OUT --replicas 3"), "{findings:#}");

    for stream in STREAMS {
        eventually(DEADLINE, "the stream has three replicas", || async {
            let mut config = context.get_stream(stream).await.ok()?.cached_info().config.clone();
            config.num_replicas = 3;
            context.update_stream(config).await.ok()
        })
        .await;
    }
    for stream in STREAMS {
        doctor_finds(&three, stream, "3 replicas", "ok").await;
    }

    // A follower of the stream, but not the first server, to which this test is connected.
    let leads = eventually(DEADLINE, "the stream has a leader", || leader(&context)).await;
    let other = (1..3).find(|place| *place != leads).unwrap();
    servers[other].kill();
    doctor_finds(&three, "TW_JOBS", &format!("its replica on n{other} is offline"), "problem").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_cluster_refuses_replicas_with_the_remedy() {
    let mut settings = cluster().await.settings();
    settings.nats.replicas = 3;
    let refused = NatsQueue::connect(&settings, CancellationToken::new()).await.err();
    let Some(QueueError::Refused(problem)) = &refused else { panic!("{refused:?}") };
    let problem = problem.to_string();
    assert!(problem.contains("nats.replicas = 3") && problem.contains("set nats.replicas to 1"), "{problem}");
    let folder = Folder::with(settings.clone());
    folder.write("turnwheel.toml", &toml(&settings));
    let findings = folder.run(&["doctor", "--json"], "").await.json();
    let (level, what) = found(&findings, "nats.replicas", "").unwrap();
    assert!(level == "problem" && what.contains("without a cluster"), "{findings:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_not_seen_a_message_does_not_say_that_it_is_gone() {
    let queue = queue(&cluster().await.settings()).await;
    let seen = queue.publish(job("first")).await.unwrap().seq;
    let removed = queue.next_in_lane("another", 0, seen).await.unwrap();
    assert_eq!(removed, None, "the stream has passed this sequence");
    // Like a leader that is cut off and still leads for some seconds.
    let unknown = queue.next_in_lane("s1", seen, seen + 1).await;
    assert!(matches!(unknown, Err(QueueError::Unavailable(_))), "{unknown:?}");
}
