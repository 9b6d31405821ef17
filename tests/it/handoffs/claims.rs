//! Claims: one person has a conversation, replies before the timeout or loses it, and passes it on.

use super::{changes, claim, claim_is_lost, desk, handoff, history_of_changes, idle_desk, post, reply};
use crate::access::Guarded;
use crate::gateway::Gateway;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, decision, plan};
use base::clock;
use serde_json::{Value, json};
use types::event::{HandoffChange, ReplyKind};
use types::outcome::Outcome;
use types::session::{Role, Status};
use types::timer::Timer;

on_both_backends!(
    of_two_people_who_claim_at_once_one_wins,
    a_claimer_who_does_not_answer_loses_the_claim,
    a_claim_ends_in_time_after_a_restart_of_worker_scheduler_and_gateway,
    a_reply_ends_the_wait_until_the_user_s_next_message,
    a_reply_of_somebody_else_does_not_reach_the_user,
    a_claim_is_given_up_and_passed_on_with_a_note,
    notes_reach_neither_the_user_nor_the_model,
    colleagues_see_who_writes,
    handoffs_are_listed_with_the_longest_wait_first,
);

async fn timer(engine: &Engine, name: &str) -> Option<Timer> {
    engine.session("s1").await.timers.into_iter().find(|timer| timer.name == name)
}

async fn of_two_people_who_claim_at_once_one_wins(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let opened = handoff(&engine).await;
    assert_eq!((opened.waiting_since, opened.unread, opened.claim), (Some(opened.since), 1, None));
    let (one, other) = (Gateway::of(&engine).await, Gateway::of(&engine).await);
    let bodies = ["li", "wang"].map(|by| json!({"by": by}));
    let (first, second) =
        futures::join!(post(&one, "claim", bodies[0].clone()), post(&other, "claim", bodies[1].clone()));
    let mut answers = [("li", first), ("wang", second)];
    answers.sort_by_key(|(_, (status, _))| *status);
    let [(winner, (200, won)), (loser, (409, lost))] = answers else { panic!("{answers:?}") };
    assert_eq!(won["handoff"]["claim"]["by"], winner);
    assert_eq!(lost["error"]["code"], "claimed");
    assert!(lost["error"]["message"].as_str().unwrap().contains(&format!("`{winner}`")), "{lost}");
    let claimed = handoff(&engine).await.claim.unwrap();
    assert_eq!((claimed.by.as_str(), claimed.until.is_some()), (winner, true));

    let renewed = claim(&other, json!({"by": winner})).await.claim.unwrap();
    assert!(renewed.at == claimed.at && renewed.until > claimed.until, "{renewed:?} {claimed:?}");
    assert_eq!(post(&one, "claim", json!({"by": loser})).await.0, 409);
    let winner = Some(winner.to_owned());
    let expected =
        [(HandoffChange::Opened, None), (HandoffChange::Claimed, winner.clone()), (HandoffChange::Claimed, winner)];
    assert_eq!(history_of_changes(&engine).await, expected);
    let names =
        |session: types::session::Session| session.timers.into_iter().map(|timer| timer.name).collect::<Vec<_>>();
    assert_eq!(names(engine.session("s1").await), ["handoff_timeout", "claim_timeout"]);
}

async fn a_claimer_who_does_not_answer_loses_the_claim(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold", "claim_timeout": "1s"})).await;
    let gateway = Gateway::of(&engine).await;
    let until = claim(&gateway, json!({"by": "li"})).await.claim.unwrap().until.unwrap();
    claim_is_lost(&engine).await;
    assert!(clock::now() >= until, "not before its time");
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Transferred, "back in the queue");
    let expired = eventually(DEADLINE, "the end of the claim is published", || async {
        changes(&engine).await.pop().filter(|event| event.change == HandoffChange::Expired)
    })
    .await;
    assert_eq!((expired.by.as_deref(), expired.handoff.unwrap().claim), (Some("li"), None));
    assert!(timer(&engine, "handoff_timeout").await.is_some() && timer(&engine, "claim_timeout").await.is_none());
    assert_eq!(claim(&gateway, json!({"by": "wang"})).await.claim.unwrap().by, "wang");
}

async fn a_claim_ends_in_time_after_a_restart_of_worker_scheduler_and_gateway(backend: Backend) {
    let engine = idle_desk(backend, &json!({"mode": "hold", "claim_timeout": "1s"})).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "转人工").await;
    let gateway = Gateway::of(&engine).await;
    claim(&gateway, json!({"by": "li"})).await;
    let due_at = timer(&engine, "claim_timeout").await.unwrap().due_at;
    // No scheduler has run so far. The worker and the gateway that made the claim are gone before it is due.
    worker.cancel();
    gateway.stop();
    drop(gateway);
    eventually(DEADLINE, "the timer is due", || async { clock::now() > due_at }).await;
    assert_eq!(handoff(&engine).await.claim.unwrap().by, "li", "nobody ends it");
    engine.start_worker();
    engine.start_scheduler();
    claim_is_lost(&engine).await;
    let gateway = Gateway::of(&engine).await;
    assert_eq!(claim(&gateway, json!({"by": "wang"})).await.claim.unwrap().by, "wang");
}

async fn a_reply_ends_the_wait_until_the_user_s_next_message(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let gateway = Gateway::of(&engine).await;
    let ends = timer(&engine, "handoff_timeout").await.unwrap();
    claim(&gateway, json!({"by": "li"})).await;
    engine.say("s1", "m-2", "有人吗").await;
    let waits = handoff(&engine).await;
    assert_eq!((waits.unread, waits.waiting_since), (2, Some(waits.since)));

    reply(&engine, &gateway, "li", "我在").await;
    let answered = handoff(&engine).await;
    assert_eq!((answered.unread, answered.waiting_since), (0, None));
    assert_eq!(answered.claim.unwrap().until, None);
    assert!(timer(&engine, "claim_timeout").await.is_none());

    engine.say("s1", "m-3", "退款到了吗").await;
    let first = timer(&engine, "claim_timeout").await.unwrap();
    let waits = handoff(&engine).await;
    assert_eq!(waits.unread, 1);
    assert!(waits.waiting_since > Some(waits.since) && waits.claim.unwrap().until.is_some());
    engine.say("s1", "m-4", "喂").await;
    assert_eq!(timer(&engine, "claim_timeout").await.unwrap(), first, "further messages do not postpone it");
    let all = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "cancel_timers"});
    engine.publish_job("s1", all).await;
    assert_eq!(engine.turn("s1", "c-1").await.outcome, Outcome::Noop);
    assert_eq!(engine.session("s1").await.timers, [ends, first], "the handoff ends when it would have ended");
}

async fn a_reply_of_somebody_else_does_not_reach_the_user(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let gateway = Gateway::of(&engine).await;
    reply(&engine, &gateway, "zhao", "请稍等").await;
    claim(&gateway, json!({"by": "li"})).await;
    let (status, refused) = post(&gateway, "reply", json!({"text": "我来", "by": "wang"})).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("claimed")));
    // A reply that was accepted before the claim, and is behind it in the lane.
    for (job_id, by) in [("r-1", json!("wang")), ("r-2", Value::Null)] {
        let job = json!({"type": "reply", "session_id": "s1", "job_id": job_id, "text": "我来", "by": by});
        engine.publish_job("s1", job).await;
        assert_eq!(engine.turn("s1", job_id).await.outcome, Outcome::Noop);
    }
    reply(&engine, &gateway, "li", "我来处理").await;
    let said: Vec<_> = engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == ReplyKind::Handoff).collect();
    let said: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(said, ["正在为您转接", "请稍等", "我来处理"]);
    let session = engine.session("s1").await;
    let humans: Vec<_> = session.history.iter().filter(|entry| entry.role == Role::Human).collect();
    assert_eq!(humans.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["请稍等", "我来处理"]);
    let refused = changes(&engine).await.into_iter().filter(|event| event.change == HandoffChange::ReplyRefused);
    let refused: Vec<_> = refused.map(|event| (event.turn_id, event.by)).collect();
    let expected = [("r-1", "wang"), ("r-2", "local")].map(|(job, by)| (job.to_owned(), Some(by.to_owned())));
    assert_eq!(refused, expected);
}

async fn a_claim_is_given_up_and_passed_on_with_a_note(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let callers = [("li", "agent"), ("wang", "agent"), ("boss", "operator")];
    let guarded = Guarded::of(&engine, &callers.map(|(name, role)| json!({"name": name, "role": role}))).await;
    let ask = async |caller: &str, verb: &str, body: Value| {
        let (status, body) = guarded.post(caller, &format!("/api/v1/sessions/s1/{verb}"), &body).await;
        (status, body["handoff"]["claim"]["by"].clone(), body["error"]["code"].clone())
    };
    let (none, ok) = (Value::Null, |by: &str| (200, json!(by), Value::Null));
    assert_eq!(ask("li", "unclaim", json!({})).await, (200, none.clone(), none.clone()), "nothing to give up");
    assert_eq!(ask("li", "claim", json!({})).await, ok("li"), "a login claims under its own name");
    for (caller, verb) in [("wang", "unclaim"), ("boss", "unclaim"), ("wang", "claim"), ("wang", "release")] {
        assert_eq!(ask(caller, verb, json!({})).await, (409, none.clone(), json!("claimed")), "{caller} {verb}");
    }
    let forced = json!({"force": true, "to": "wang"});
    for verb in ["unclaim", "transfer"] {
        assert_eq!(ask("wang", verb, forced.clone()).await, (403, none.clone(), json!("forbidden")), "{verb}");
    }
    assert_eq!(ask("wang", "transfer", json!({"to": "wang"})).await.0, 409);
    assert_eq!(ask("li", "transfer", json!({"to": "wang", "note": "要退两次款"})).await, ok("wang"));
    assert_eq!(ask("boss", "transfer", json!({"to": "li", "force": true})).await, ok("li"));
    assert_eq!(ask("boss", "unclaim", json!({"force": true})).await, (200, none.clone(), none.clone()));
    let passed = handoff(&engine).await;
    assert!(passed.claim.is_none() && timer(&engine, "claim_timeout").await.is_none());
    let notes: Vec<_> = passed.notes.iter().map(|note| (note.by.as_str(), note.text.as_str())).collect();
    assert_eq!(notes, [("li", "要退两次款")]);
    let expected = [
        (HandoffChange::Opened, None),
        (HandoffChange::Claimed, Some("li")),
        (HandoffChange::Transferred, Some("li")),
        (HandoffChange::Transferred, Some("boss")),
        (HandoffChange::Unclaimed, Some("boss")),
    ];
    assert_eq!(history_of_changes(&engine).await, expected.map(|(change, by)| (change, by.map(str::to_owned))));
    let (_, mine) = guarded.get("li", "/api/v1/handoffs?state=mine").await;
    assert_eq!((&mine["handoffs"], &mine["counts"]), (&json!([]), &json!({"waiting": 1, "mine": 0, "all": 1})));
}

async fn notes_reach_neither_the_user_nor_the_model(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let gateway = Gateway::of(&engine).await;
    let (status, accepted) = post(&gateway, "notes", json!({"text": "客户很生气", "by": "li"})).await;
    assert_eq!(status, 202);
    let note_id = accepted["job_id"].as_str().unwrap();
    engine.turn("s1", note_id).await;
    let notes = handoff(&engine).await.notes;
    assert_eq!((notes[0].id.as_str(), notes[0].by.as_str(), notes[0].text.as_str()), (note_id, "li", "客户很生气"));
    let released: Value = post(&gateway, "release", json!({"by": "li"})).await.1;
    engine.turn("s1", released["job_id"].as_str().unwrap()).await;
    engine.say("s1", "m-2", "还在吗").await;
    assert!(engine.session("s1").await.handoff.is_none());
    let asked = engine.model.asked();
    assert!(asked.iter().all(|asked| !asked.system.contains("很生气") && !asked.user.contains("很生气")));
    assert!(engine.said("s1").await.iter().all(|(_, text)| !text.contains("很生气")));
    let kept = json!(engine.session("s1").await.history).to_string();
    assert!(!kept.contains("很生气"), "{kept}");
    let late = post(&gateway, "notes", json!({"text": "客户很生气", "by": "li"})).await;
    assert_eq!((late.0, &late.1["error"]["code"]), (409, &json!("not_transferred")));
}

async fn colleagues_see_who_writes(backend: Backend) {
    let engine = desk(backend, &json!({"mode": "hold"})).await;
    let gateways = [Gateway::of(&engine).await, Gateway::of(&engine).await];
    let begun = clock::now();
    for number in 0..6 {
        assert_eq!(post(&gateways[number % 2], "typing", json!({"by": "li"})).await.0, 202);
    }
    assert_eq!(post(&gateways[0], "typing", json!({"by": "wang"})).await.0, 202);
    let intervals = 1 + begun.until(clock::now()).as_millis() / 3_000 + 1;
    let changes = changes(&engine).await;
    let typing: Vec<_> = changes.iter().filter(|event| event.change == HandoffChange::Typing).collect();
    let of_li = typing.iter().filter(|event| event.by.as_deref() == Some("li")).count();
    assert!(of_li >= 1 && of_li as u128 <= intervals, "{of_li} in {intervals} intervals");
    assert_eq!(typing.len(), of_li + 1, "each person is shown");
    let handed_off = handoff(&engine).await;
    assert!(typing.iter().all(|event| event.turn_id == handed_off.turn_id && event.handoff.is_none()));
    assert_eq!(handed_off.claim, None, "typing does not claim");
    engine.say("s1", "m-2", "有人吗").await;
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Transferred);
}

async fn handoffs_are_listed_with_the_longest_wait_first(backend: Backend) {
    let engine = idle_desk(backend, &json!({"mode": "hold"})).await;
    engine.model.script(|asked| {
        let transfer = decision("transferred", Value::Null, json!("正在为您转接"));
        Answer::json(&if asked.schema == "decision" { transfer } else { plan(json!("您好"), &transfer) })
    });
    engine.start_worker();
    for session_id in ["s1", "s2", "s3"] {
        engine.say(session_id, &format!("m-{session_id}"), "转人工").await;
    }
    let gateway = Gateway::of(&engine).await;
    let listed = async |query: &str| {
        let list = gateway.json(&format!("/api/v1/handoffs?{query}")).await;
        let ids = list["handoffs"].as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), list["counts"].clone(), list["next"].as_str().map(str::to_owned))
    };
    let counts = |waiting: u64, mine: u64| json!({"waiting": waiting, "mine": mine, "all": 3});
    assert_eq!(listed("").await, (vec!["s1".into(), "s2".into(), "s3".into()], counts(3, 0), None));
    // The oldest one is answered and asks again: now it waits for the shortest time.
    reply(&engine, &gateway, "li", "您好，我是李雷").await;
    assert_eq!(listed("state=all").await.0, ["s2", "s3", "s1"], "nothing waits in the last one");
    engine.say("s1", "m-2", "退款").await;
    claim(&gateway, json!({"by": "li"})).await;
    assert_eq!(listed("state=all&by=li").await, (vec!["s2".into(), "s3".into(), "s1".into()], counts(2, 1), None));
    assert_eq!(listed("by=li").await.0, ["s2", "s3"]);
    assert_eq!(listed("state=mine&by=li").await.0, ["s1"]);
    assert_eq!(listed("state=mine&by=wang").await, (vec![], counts(2, 0), None));
    assert_eq!(listed("agent_id=other").await.1, json!({"waiting": 0, "mine": 0, "all": 0}));
    assert_eq!(listed("state=all&channel=web").await.0.len(), 3);
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let (ids, _, next) = listed(&format!("state=all&limit=1{after}")).await;
        pages.extend(ids);
        let Some(next) = next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(pages, ["s2", "s3", "s1"]);
    let list = gateway.json("/api/v1/handoffs?state=mine&by=li").await;
    let one = &list["handoffs"][0];
    assert_eq!((&one["user_id"], &one["channel"], &one["unread"]), (&json!("u1"), &json!("web"), &json!(1)));
    assert_eq!((&one["last_message"]["role"], &one["last_message"]["text"]), (&json!("user"), &json!("退款")));
    assert_eq!((&one["claim"]["by"], &one["note_count"], &one["taken_over"]), (&json!("li"), &json!(0), &json!(false)));
    assert!(list["as_of"].is_u64());
}
