//! Properties of jobs on the wire.

use super::{fields, id, job_id, text, value};
use proptest::prelude::*;
use proptest::sample::select;
use storage::queue::Message;
use types::action::{Action, ActionKind};
use types::job::{Attachment, Command, Control, Job, JobBody, UserMessage};
use types::timestamp::Timestamp;

fn action() -> impl Strategy<Value = Action> {
    let kind = select(vec![ActionKind::Skill, ActionKind::Tool, ActionKind::Flow, ActionKind::System]);
    (kind, text(), fields()).prop_map(|(kind, target, params)| Action { kind, target, params })
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..4_000_000_000_000_i64).prop_map(Timestamp::from_millis)
}

fn body() -> impl Strategy<Value = JobBody> {
    let maybe = |text: BoxedStrategy<String>| prop::option::of(text);
    let kept = |name: &String| !["type", "url"].contains(&name.as_str());
    let rest = fields().prop_map(move |fields| fields.into_iter().filter(|(name, _)| kept(name)).collect());
    let attachment = (text(), text(), rest).prop_map(|(kind, url, rest)| Attachment { kind, url, rest });
    let said = (
        (maybe(id().boxed()), maybe(id().boxed())),
        "[^\\s].{0,30}",
        maybe(id().boxed()),
        maybe(id().boxed()),
        prop::option::of(time()),
        fields(),
    );
    let user = (said, prop::collection::vec(attachment, 0..3)).prop_map(|(said, attachments)| {
        let ((agent_id, agent_version), text, user_id, channel, sent_at, metadata) = said;
        let message = UserMessage { agent_id, agent_version, text, user_id, channel, sent_at, metadata, attachments };
        JobBody::UserMessage(message)
    });
    let timer = (id(), any::<u64>(), text(), time(), prop::option::of(action()), maybe(text().boxed())).prop_map(
        |(timer_id, generation, name, due_at, action, message)| JobBody::Timer {
            timer_id,
            generation,
            name,
            due_at,
            action,
            message,
        },
    );
    let command = select(vec![
        Command::Cancel,
        Command::Release,
        Command::Close,
        Command::CancelTimers,
        Command::Claim,
        Command::Unclaim,
        Command::Transfer,
        Command::Note,
    ]);
    let words = || maybe(text().boxed());
    prop_oneof![
        user,
        timer,
        (id(), value()).prop_map(|(run_id, outcome)| JobBody::Resume { run_id, outcome }),
        (command, [words(), words(), words(), words(), words()], prop::option::of(any::<u64>()), any::<(bool, bool)>())
            .prop_map(|(command, [name, reason, by, to, note], left_at, (take_over, force))| {
                JobBody::Control(Control { command, name, reason, by, left_at, to, note, take_over, force })
            }),
        (id(), text(), [(); 4].map(|()| maybe(id().boxed())), maybe(text().boxed())).prop_map(
            |(workflow_id, query, [origin_session, user_id, channel, from_run], from_stage)| JobBody::Run {
                workflow_id,
                query,
                origin_session,
                user_id,
                channel,
                from_run,
                from_stage,
            }
        ),
        ("[^\\s].{0,30}", maybe(text().boxed())).prop_map(|(text, by)| JobBody::Reply { text, by }),
        (text(), "[^\\s].{0,30}", maybe(text().boxed())).prop_map(|(question, text, by)| JobBody::Answer {
            question,
            text,
            by
        }),
        Just(JobBody::Wake),
    ]
}

fn message(session_id: &str, payload: bytes::Bytes) -> Message {
    let at = Timestamp::from_millis(0);
    Message {
        session_id: session_id.into(),
        seq: 7,
        stream: at,
        payload,
        msg_id: None,
        default_id: "1-7".into(),
        at,
        trace: None,
    }
}

proptest! {
    #[test]
    fn a_job_is_decoded_as_it_was_encoded(session_id in id(), job_id in job_id(), body in body()) {
        let job = Job { session_id: session_id.clone(), job_id, body };
        prop_assert_eq!(job.unknown_fields(&job.encode()), Vec::<String>::new());
        prop_assert_eq!(message(&session_id, job.encode()).job().unwrap(), job);
    }

    #[test]
    fn a_job_without_an_id_is_given_a_legal_one(session_id in id(), body in body()) {
        let job = Job { session_id: session_id.clone(), job_id: String::new(), body };
        let decoded = message(&session_id, job.encode()).job().unwrap();
        prop_assert!(types::ids::is_legal_job(&decoded.job_id));
        let again = message(&session_id, decoded.encode()).job().unwrap();
        prop_assert_eq!(again, decoded, "the id does not change");
    }
}
