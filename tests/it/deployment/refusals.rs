//! Requests that NATS and MongoDB refuse to each user.

use super::guarded::{Guarded, MONGODB_USERS};
use super::rights::{Roles, consuming};
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream;
use bson::{Document, doc};
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The server does not respond to a request that it refuses.
const HASTY: Duration = Duration::from_millis(500);

/// Checks that a user reads the settings of `known` alone, and changes no stream. `purges` are the streams that it may empty.
async fn changes_no_stream(user: &str, context: &Context, known: &[&str], purges: &[&str]) {
    for name in ["TW_JOBS", "TW_OUT", "TW_DEAD"] {
        let found = context.get_stream(name).await;
        assert_eq!(found.is_ok(), known.contains(&name), "{user} reads the settings of {name}");
        assert!(context.delete_stream(name).await.is_err(), "{user} deletes {name}");
        let Ok(found) = found else { continue };
        if !purges.contains(&name) {
            assert!(found.purge().await.is_err(), "{user} empties {name}");
        }
        assert!(found.delete_consumer("workers").await.is_err(), "{user} deletes a consumer of {name}");
        let all = pull::Config { name: Some("all".into()), filter_subject: "tw.>".into(), ..pull::Config::default() };
        assert!(found.create_consumer(all).await.is_err(), "{user} reads all of {name}");
    }
    let update = stream::Config { name: "TW_OUT".into(), max_messages: 1, ..stream::Config::default() };
    assert!(context.update_stream(update).await.is_err(), "{user} changes TW_OUT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_of_nats_is_refused_what_its_role_does_not_need() {
    let roles = Roles::start().await;
    let guarded = &roles.guarded;
    let all = ["TW_JOBS", "TW_OUT", "TW_DEAD"];
    let (event, letter, hint) = ("tw.out.web.s1.reply", "tw.dead.invalid", "tw.hint.cancel");
    for (user, known, purges, subjects) in [
        ("channel-web", &all[1..2], &all[..0], &[event, letter, hint][..]),
        ("gateway", &all[..], &all[..2], &[event, letter]),
        ("scheduler", &all[..], &all[..2], &[event, letter]),
        ("worker", &all[..], &all[..0], &["elsewhere"]),
    ] {
        let context = guarded.context(user, HASTY).await;
        changes_no_stream(user, &context, known, purges).await;
        for subject in subjects {
            let _ = context.publish(*subject, "{}".into()).await.unwrap().await;
            let what = format!("{user} may not publish to {subject}");
            let is_refused =
                |line: &String| line.contains(&format!("user:{user}\" - Publish Violation - Subject \"{subject}\""));
            eventually(DEADLINE, &what, || async { guarded.violations().iter().any(is_refused) }).await;
        }
    }
    let channel = guarded.context("channel-web", HASTY).await.get_stream("TW_OUT").await.unwrap();
    for foreign in ["tw.out.>", "tw.out.other.*.reply", "tw.out.web.*.step"] {
        assert!(channel.create_consumer(consuming(foreign)).await.is_err(), "the channel reads {foreign}");
    }
    for user in ["gateway", "scheduler"] {
        let jobs = guarded.context(user, HASTY).await.get_stream("TW_JOBS").await.unwrap();
        assert!(jobs.get_consumer::<pull::Config>("workers").await.is_err(), "{user} uses the consumer of jobs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_user_of_nats_hears_what_the_server_sends_to_others() {
    let guarded = Guarded::start();
    for user in ["channel-web", "gateway", "scheduler", "worker"] {
        let client = guarded.client(user).await;
        let own = format!("_INBOX_{}.>", user.trim_start_matches("channel-"));
        let subjects = ["tw.jobs.>", "_INBOX.>", "_INBOX_worker.>", "_INBOX_gateway.>", "_INBOX_web.>", ">"];
        for subject in subjects.into_iter().filter(|subject| *subject != own) {
            let mut heard = client.subscribe(subject).await.unwrap();
            let is_refused = |line: &String| {
                line.contains(&format!("user:{user}\" - Subscription Violation - Subject \"{subject}\""))
            };
            let what = format!("the subscription of {user} to {subject} is refused");
            eventually(DEADLINE, &what, || async { guarded.violations().iter().any(is_refused) }).await;
            assert!(heard.next().now_or_never().flatten().is_none());
        }
    }
}

async fn refused(guarded: &Guarded, user: &str, database: &str, command: Document) {
    let database = guarded.database(user).await.client().database(database);
    let answer = database.run_command(command.clone()).await;
    let error = answer.expect_err(&format!("{user} may not run {command}")).to_string();
    assert!(error.contains("not authorized"), "{user}, {command}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_of_mongodb_is_refused_what_its_role_does_not_need() {
    let guarded = Guarded::start();
    let own = "turnwheel";
    for user in ["worker", "gateway", "scheduler"] {
        refused(&guarded, user, own, doc! {"drop": "sessions"}).await;
        refused(&guarded, user, own, doc! {"dropDatabase": 1}).await;
        refused(&guarded, user, own, doc! {"collMod": "audit", "validator": {}}).await;
        refused(&guarded, user, own, doc! {"delete": "audit", "deletes": [{"q": {}, "limit": 0}]}).await;
        refused(&guarded, user, "other", doc! {"find": "sessions"}).await;
        refused(&guarded, user, "admin", doc! {"find": "system.users"}).await;
        refused(&guarded, user, "admin", doc! {"createUser": "x", "pwd": "x", "roles": []}).await;
        refused(&guarded, user, "admin", doc! {"shutdown": 1}).await;
    }
    let insert = |collection: &str| doc! {"insert": collection, "documents": [{"_id": "1"}]};
    refused(&guarded, "worker", own, doc! {"find": "audit"}).await;
    refused(&guarded, "worker", own, doc! {"delete": "sessions", "deletes": [{"q": {}, "limit": 0}]}).await;
    for collection in ["knowledge", "audit", "leaders"] {
        refused(&guarded, "worker", own, insert(collection)).await;
    }
    for collection in ["turns", "steps", "plan_cache", "agent_days", "leaders"] {
        refused(&guarded, "gateway", own, insert(collection)).await;
    }
    for collection in ["turns", "steps", "knowledge", "audit"] {
        refused(&guarded, "scheduler", own, doc! {"find": collection}).await;
    }
    let written = guarded.database("worker").await.collection("sessions").insert_one(doc! {"_id": "s1"}).await;
    assert!(written.is_ok(), "{written:?}");
    let anonymous = mongodb::Client::with_uri_str(guarded.uri("")).await.unwrap().database(own);
    let error = anonymous.collection::<Document>("sessions").find_one(doc! {}).await.expect_err("without a login");
    assert!(error.to_string().contains("requires authentication"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_run_of_the_setup_changes_passwords_and_breaks_no_connection() {
    let mut guarded = Guarded::start();
    let connected = guarded.database("worker").await;
    connected.collection::<Document>("sessions").find_one(doc! {}).await.unwrap();
    let changed = MONGODB_USERS.map(|(name, user)| (name, if user == "worker" { "changed" } else { user }));
    assert!(guarded.set_up(&changed).contains("are up to date"));
    connected.collection::<Document>("sessions").find_one(doc! {}).await.unwrap();
    let find = async |login: &str| {
        let client = mongodb::Client::with_uri_str(guarded.uri(login)).await.unwrap();
        client.database("turnwheel").collection::<Document>("sessions").find_one(doc! {}).await
    };
    let refused = find("worker:worker@").await.expect_err("the old password").to_string();
    assert!(refused.contains("Authentication failed"), "{refused}");
    assert!(find("worker:changed@").await.is_ok());
}

#[test]
fn the_roles_of_mongodb_name_every_collection_of_the_contract() {
    let contract = include_str!("../../../docs/contract/mongodb.md");
    let table = contract.lines().skip_while(|line| !line.starts_with("| collection |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let named: BTreeSet<&str> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    let roles: Value = serde_json::from_str(&super::read("mongodb/roles.json")).unwrap();
    let roles = roles["roles"].as_object().unwrap();
    let granted = roles.values().flat_map(|role| role["collections"].as_object().unwrap().keys().map(String::as_str));
    assert_eq!(granted.collect::<BTreeSet<_>>(), named);
    assert!(named.len() > 10);
}
