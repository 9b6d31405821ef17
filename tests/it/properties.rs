//! Rules that hold for every input, each with a few hundred of them.

use crate::conformance::kit::run_turn;
use crate::support::backend::embedded;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::string::string_regex;
use serde_json::{Map, Value, json};
use std::time::Duration;
use turnwheel::action::{Action, ActionKind};
use turnwheel::agent::canonical;
use turnwheel::clock::{self, Timestamp};
use turnwheel::config::duration;
use turnwheel::prompt::Prompts;
use turnwheel::queue::{Attachment, Command, Job, JobBody, Message, UserMessage};
use turnwheel::session::Status::{self, Acknowledged, Cancelled, Processing, Ready, Transferred, Typing};
use turnwheel::session::history::{self, Entry, MAX_BYTES, MAX_ENTRIES, MAX_TEXT, Role};
use turnwheel::store::TimerChange;
use turnwheel::timer::{NewTimer, timer_id};
use turnwheel::workflow::orchestration::builder::{Loop, Stage};
use turnwheel::workflow::orchestration::condition::Condition;
use turnwheel::workflow::orchestration::outputs::OutputStore;
use turnwheel::workflow::orchestration::scope::Scope;
use turnwheel::workflow::orchestration::template::InputMapping;

/// As OP-E1 has them, apart from the code's own table.
const LEGAL: [(Status, &[Status]); 6] = [
    (Ready, &[Acknowledged, Processing, Cancelled]),
    (Cancelled, &[Acknowledged, Processing]),
    (Transferred, &[Acknowledged, Processing, Ready, Cancelled]),
    (Acknowledged, &[Processing, Cancelled]),
    (Processing, &[Processing, Typing, Ready, Transferred, Cancelled]),
    (Typing, &[Ready, Cancelled]),
];

fn status() -> impl Strategy<Value = Status> {
    select(LEGAL.map(|(from, _)| from).to_vec())
}

fn text() -> impl Strategy<Value = String> {
    string_regex("(?s)([ -~]|[\\n\\r\\t\u{0}\u{2028}]|[一-龥]|[\u{1F600}-\u{1F64F}]|</|\\$\\{|\\{\\{){0,24}").unwrap()
}

fn id() -> impl Strategy<Value = String> {
    string_regex("[A-Za-z0-9_:一-龥-]{1,20}").unwrap()
}

/// A finite number whose text says the same as its value.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number(), text().prop_map(Value::from)];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(text(), value(), 0..4).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn only_legal_transitions_are_accepted(from in status(), to in status()) {
        let legal = LEGAL.iter().any(|(known, next)| *known == from && next.contains(&to));
        prop_assert_eq!(from.check(to).is_ok(), legal);
        if let Err(refused) = from.check(to) {
            prop_assert_eq!((refused.from, refused.to), (from, to));
        }
    }

    #[test]
    fn however_a_session_goes_a_turn_can_begin_and_end(asked in prop::collection::vec(status(), 0..40)) {
        let at = asked.into_iter().fold(Ready, |at, to| if at.check(to).is_ok() { to } else { at });
        // From wherever it stands: to `cancelled` (or it is there), and from there a next turn begins.
        prop_assert!(at == Cancelled || at.check(Cancelled).is_ok());
        prop_assert!(Cancelled.check(Processing).is_ok() && Processing.check(Typing).is_ok() && Typing.check(Ready).is_ok());
    }

    #[test]
    fn a_timer_is_armed_for_its_delay_and_no_less(now in 0..4_000_000_000_000_i64, delay in 1..36_525 * 86_400_000_u64, generation: u64) {
        let text = duration::format(Duration::from_millis(delay));
        let delay_read = duration::parse(&text).unwrap();
        prop_assert_eq!(delay_read, Duration::from_millis(delay));
        let new = NewTimer { timer_id: "t".into(), name: "n".into(), delay: delay_read, action: None, message: None, traceparent: None };
        let timer = new.arm(Timestamp::from_millis(now), generation);
        prop_assert_eq!(timer.due_at.as_millis() - now, i64::try_from(delay).unwrap());
        prop_assert_eq!(timer.generation, generation);
    }

    #[test]
    fn timers_of_other_turns_have_other_ids(one in (id(), id(), 0..9_usize), other in (id(), id(), 0..9_usize)) {
        let name = |(session, turn, index): &(String, String, usize)| timer_id(session, turn, *index);
        prop_assert_eq!(name(&one) == name(&other), one == other);
        prop_assert!(turnwheel::ids::is_legal(&name(&one)));
    }
}

/// What a commit may do to the timers.
#[derive(Clone, Debug)]
enum Armed {
    Replace(Vec<u64>),
    Keep,
    Remove(Index),
}

fn armed() -> impl Strategy<Value = Armed> {
    prop_oneof![
        3 => prop::collection::vec(1_000..50_000_u64, 0..4).prop_map(Armed::Replace),
        1 => Just(Armed::Keep),
        2 => any::<Index>().prop_map(Armed::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn only_timers_of_the_last_generation_are_due(changes in prop::collection::vec(armed(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = embedded().await.store;
            let (mut expected, mut generation) = (Vec::<(String, i64)>::new(), 0);
            for (change, seq) in changes.into_iter().zip(1..) {
                let earliest = clock::now();
                let timers = match change {
                    Armed::Keep => TimerChange::Keep,
                    Armed::Remove(at) if !expected.is_empty() => {
                        let at = at.index(expected.len());
                        TimerChange::Remove(vec![expected.remove(at).0])
                    }
                    Armed::Remove(_) => TimerChange::Remove(vec!["gone".into()]),
                    Armed::Replace(delays) => {
                        generation += 1;
                        let new = |(index, delay): (usize, &u64)| NewTimer {
                            timer_id: timer_id("s1", &format!("m-{seq}"), index), name: String::new(),
                            delay: Duration::from_millis(*delay), action: None, message: None, traceparent: None,
                        };
                        let new: Vec<_> = delays.iter().enumerate().map(new).collect();
                        let due = |timer: &NewTimer| (timer.timer_id.clone(), earliest.plus(timer.delay).as_millis());
                        expected = new.iter().map(due).collect();
                        TimerChange::Replace(new)
                    }
                };
                let session = run_turn(&store, "s1", seq, |change| {
                    change.timers = timers;
                    change.timer_generation = generation;
                }).await;
                prop_assert_eq!(session.timers.len(), expected.len());
                prop_assert!(session.timers.iter().all(|timer| timer.generation == generation));
                for timer in &session.timers {
                    let (_, earliest) = expected.iter().find(|(id, _)| *id == timer.timer_id).expect("it was armed");
                    prop_assert!(timer.due_at.as_millis() >= *earliest, "never early");
                }
                let due = store.due_timers(Duration::from_secs(3_600), 100).await.unwrap().timers;
                let mut ids: Vec<_> = due.iter().map(|due| due.timer.timer_id.clone()).collect();
                let mut known: Vec<_> = expected.iter().map(|(id, _)| id.clone()).collect();
                ids.sort();
                known.sort();
                prop_assert_eq!(ids, known);
            }
            Ok(())
        })?;
    }
}

/// `value` written in another way: keys in another order, white space, escapes, numbers with an exponent.
fn rewritten(value: &Value, seed: u64) -> String {
    let gap = ["", " ", "\n\t", "  "][(seed % 4) as usize];
    let next = seed.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match value {
        Value::Object(fields) => {
            let mut all: Vec<String> = fields
                .iter()
                .map(|(key, field)| format!("{gap}{}{gap}:{}", quoted(key, seed), rewritten(field, next)))
                .collect();
            if seed.is_multiple_of(3) {
                all.reverse();
            } else if !all.is_empty() {
                let middle = seed as usize % all.len();
                all.rotate_left(middle);
            }
            format!("{{{}{gap}}}", all.join(","))
        }
        Value::Array(items) => {
            let all: Vec<String> = items.iter().map(|item| rewritten(item, next)).collect();
            format!("[{gap}{}]", all.join(&format!("{gap},")))
        }
        Value::String(text) => quoted(text, seed),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if whole.unsigned_abs() < 1 << 50 && seed.is_multiple_of(2) => format!("{gap}{whole}.0"),
            Some(whole) if whole.unsigned_abs() < 1 << 50 && seed.is_multiple_of(5) => format!("{gap}{whole}e0"),
            _ => format!("{number}{gap}"),
        },
        Value::Null | Value::Bool(_) => format!("{gap}{value}"),
    }
}

fn quoted(text: &str, seed: u64) -> String {
    if seed.is_multiple_of(2) {
        return Value::from(text).to_string();
    }
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// Every value within `value`, to be changed.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| places(item, &format!("{path}/{at}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            places(field, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Equal as configurations: `1` and `1.0` are one number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            a == b
                || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64() && a.as_f64().is_some_and(|a| a.abs() <= 9e15)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (one, other) => one == other,
    }
}

proptest! {
    #[test]
    fn the_hash_does_not_see_order_and_formatting(document in value(), seed: u64) {
        let other: Value = serde_json::from_str(&rewritten(&document, seed)).unwrap();
        prop_assert_eq!(canonical::to_string(&other), canonical::to_string(&document));
        prop_assert_eq!(canonical::hash(&other), canonical::hash(&document));
        prop_assert!(!canonical::to_string(&json!([document])).contains('\n'));
    }

    #[test]
    fn the_hash_sees_every_change_of_content(document in value(), at: Index, new in value()) {
        let mut found = Vec::new();
        places(&document, "", &mut found);
        let mut changed = document.clone();
        *changed.pointer_mut(&found[at.index(found.len())]).unwrap() = new;
        // The one field at the top that is bookkeeping is no content.
        let bookkeeping = |value: &Value| value.get("updated_at").is_some();
        prop_assume!(!bookkeeping(&document) && !bookkeeping(&changed));
        prop_assert_eq!(canonical::hash(&changed) == canonical::hash(&document), same(&changed, &document));
    }
}

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
        maybe(id().boxed()),
        "[^\\s].{0,30}",
        maybe(id().boxed()),
        maybe(id().boxed()),
        prop::option::of(time()),
        fields(),
    );
    let user = (said, prop::collection::vec(attachment, 0..3)).prop_map(|(said, attachments)| {
        let (agent_id, text, user_id, channel, sent_at, metadata) = said;
        JobBody::UserMessage(UserMessage { agent_id, text, user_id, channel, sent_at, metadata, attachments })
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
    let command = select(vec![Command::Cancel, Command::Release, Command::Close, Command::CancelTimers]);
    let words = || maybe(text().boxed());
    prop_oneof![
        user,
        timer,
        (id(), value()).prop_map(|(run_id, outcome)| JobBody::Resume { run_id, outcome }),
        (command, words(), words(), words()).prop_map(|(command, name, reason, by)| JobBody::Control {
            command,
            name,
            reason,
            by
        }),
        (id(), text(), maybe(id().boxed()), maybe(id().boxed()), maybe(id().boxed()), maybe(text().boxed())).prop_map(
            |(workflow_id, query, origin_session, channel, from_run, from_stage)| JobBody::Run {
                workflow_id,
                query,
                origin_session,
                channel,
                from_run,
                from_stage,
            }
        ),
        ("[^\\s].{0,30}", maybe(text().boxed())).prop_map(|(text, by)| JobBody::Reply { text, by }),
        Just(JobBody::Wake),
    ]
}

fn message(session_id: &str, payload: bytes::Bytes) -> Message {
    let at = Timestamp::from_millis(0);
    Message { session_id: session_id.into(), seq: 7, payload, msg_id: None, default_id: "1-7".into(), at, trace: None }
}

proptest! {
    #[test]
    fn a_job_is_decoded_as_it_was_encoded(session_id in id(), job_id in id(), body in body()) {
        let job = Job { session_id: session_id.clone(), job_id, body };
        prop_assert_eq!(Job::decode(&message(&session_id, job.encode())).unwrap(), job);
    }

    #[test]
    fn a_job_without_an_id_is_given_a_legal_one(session_id in id(), body in body()) {
        let job = Job { session_id: session_id.clone(), job_id: String::new(), body };
        let decoded = Job::decode(&message(&session_id, job.encode())).unwrap();
        prop_assert!(turnwheel::ids::is_legal(&decoded.job_id));
        let again = Job::decode(&message(&session_id, decoded.encode())).unwrap();
        prop_assert_eq!(again, decoded, "the id stays");
    }
}

/// A text of what closing tags are made of.
fn hostile() -> impl Strategy<Value = String> {
    let parts = [
        "<",
        "/",
        "</",
        "< /",
        "<\n/",
        "\\",
        "user_message>",
        "config>",
        "</user_message>",
        " ",
        "\u{3000}",
        "{{ message }}",
        "{% if x %}",
        "中",
        "<<",
        ">",
    ];
    prop::collection::vec(select(parts.to_vec()), 0..8).prop_map(|parts| parts.concat())
}

/// Closing tags, also with blanks in them.
fn closings(text: &str) -> usize {
    text.match_indices('<').filter(|(at, _)| text[at + 1..].trim_start().starts_with('/')).count()
}

proptest! {
    #[test]
    fn no_inserted_value_closes_a_tag_or_is_interpreted(values in prop::collection::vec(hostile(), 12)) {
        let prompts = Prompts::new(None);
        for (name, keys) in [
            ("phase1", &["config_json", "tools_json", "skills_json", "flows_json", "history", "message"][..]),
            ("phase2", &["name", "tone", "sop", "tools_json", "skills_json", "flows_json", "constraints", "history", "results",
                "message", "note"]),
            ("correction", &["error", "answer"]),
            ("handoff_summary", &["name", "history", "message"]),
        ] {
            let filled = |values: &[String]| {
                let mut context: Map<String, Value> =
                    keys.iter().zip(values).map(|(key, value)| ((*key).to_owned(), json!(format!("x{value}")))).collect();
                context.extend([("greeting_just_sent".to_owned(), json!(true)), ("is_timer".to_owned(), json!(true))]);
                prompts.render(name, &context).unwrap()
            };
            let (hostile, harmless) = (filled(&values), filled(&vec![String::new(); values.len()]));
            prop_assert_eq!(closings(&hostile), closings(&harmless), "{}", hostile);
            let expressions: usize = values.iter().take(keys.len()).map(|value| value.matches("{{ message }}").count()).sum();
            prop_assert_eq!(hostile.matches("{{ message }}").count(), expressions, "inserted text stays text");
        }
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let length = prop_oneof![4 => 0..200_usize, 2 => 0..30_000_usize, 1 => 0..2 * MAX_BYTES];
    let metadata = prop_oneof![6 => Just(0), 1 => 0..2 * MAX_TEXT];
    (select(vec![Role::User, Role::Assistant, Role::Human]), length, select(vec!["x", "中", "😀"]), metadata).prop_map(
        |(role, length, text, metadata)| Entry {
            role,
            text: text.repeat(length / text.len()),
            at: Timestamp::from_millis(0),
            turn_id: "m-1".into(),
            kind: None,
            metadata: if metadata == 0 {
                Map::new()
            } else {
                Map::from_iter([("a".to_owned(), json!("y".repeat(metadata)))])
            },
        },
    )
}

fn bytes(entry: &Entry) -> usize {
    let metadata: usize = entry.metadata.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    entry.text.len() + entry.turn_id.len() + metadata
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_history_keeps_the_newest_within_its_bounds(turns in prop::collection::vec(prop::collection::vec(entry(), 1..4), 1..60)) {
        let (mut kept, mut all) = (Vec::<Entry>::new(), Vec::new());
        for added in turns {
            let added: Vec<Entry> = added.into_iter().map(Entry::bounded).collect();
            prop_assert!(added.iter().all(|entry| entry.text.len() <= MAX_TEXT + 64 && bytes(entry) <= 2 * MAX_TEXT + 128));
            let excess = history::excess(&kept, &added);
            prop_assert!(excess <= kept.len() + added.len());
            all.extend(added.clone());
            history::append(&mut kept, added);
            prop_assert!(kept.len() <= MAX_ENTRIES && kept.iter().map(bytes).sum::<usize>() <= MAX_BYTES);
            prop_assert!(!kept.is_empty() && all.ends_with(&kept), "the newest stay, in order");
            if let Some(next) = all.len().checked_sub(kept.len() + 1) {
                let more = kept.iter().map(bytes).sum::<usize>() + bytes(&all[next]);
                prop_assert!(kept.len() == MAX_ENTRIES || more > MAX_BYTES, "nothing is dropped without need");
            }
        }
    }
}

/// A stage's id.
fn stage_id() -> impl Strategy<Value = String> {
    string_regex("[A-Za-z0-9_一-龥-]{1,8}")
        .unwrap()
        .prop_filter("reserved", |id| !["query", "loop"].contains(&id.as_str()))
}

proptest! {
    #[test]
    fn a_template_puts_outputs_in_once_and_leaves_the_rest(
        outputs in prop::collection::btree_map(stage_id(), text(), 0..4),
        plain in prop::collection::vec("[^{}]{0,8}", 5),
    ) {
        let mut store = OutputStore::new("问");
        outputs.iter().for_each(|(id, output)| store.set(id.as_str(), output.as_str()));
        let (mut template, mut expected) = (String::new(), String::new());
        for ((id, output), plain) in outputs.iter().zip(&plain) {
            template.push_str(&format!("{plain}{{{id}}}{{{{{id}}}}}{{ {{{id}}} }}"));
            expected.push_str(&format!("{plain}{output}{{{id}}}{{ {output} }}"));
        }
        let mapping = InputMapping::parse(&template);
        prop_assert_eq!(mapping.build(store.scope()), expected);
        let mut names = mapping.get_dependencies();
        names.sort();
        prop_assert_eq!(names, outputs.keys().cloned().collect::<Vec<_>>());
    }

    #[test]
    fn no_output_changes_what_a_condition_asks(output in text(), value in "[a-z 一-龥]{0,6}") {
        let mut store = OutputStore::new("问");
        store.set("a", output.as_str());
        let holds = |condition: &str| Condition::parse(condition).unwrap().holds(store.scope());
        let bare = output.trim();
        let truth = !bare.is_empty() && !bare.eq_ignore_ascii_case("false");
        prop_assert_eq!(holds("{a}"), truth);
        prop_assert_eq!(holds("not {a}"), !truth);
        let contains = bare.to_lowercase().contains(&value.to_lowercase());
        prop_assert_eq!(holds(&format!("{{a}} contains '{value}'")), contains);
        let equals = bare.trim_matches(['\'', '"']).trim() == value.trim();
        prop_assert_eq!(holds(&format!("{{a}} == '{value}'")), equals);
        prop_assert_eq!(holds(&format!("not {{a}} == '{value}'")), !equals);
        prop_assert_eq!(holds("{a} > 1"), bare.trim_matches(['\'', '"']).trim().parse::<f64>().is_ok_and(|number| number > 1.0));
    }

    #[test]
    fn a_loop_looks_back_at_what_its_last_iteration_left(rounds in prop::collection::vec(prop::option::of(text()), 0..6)) {
        let shape = Loop::new("l")
            .stage(Stage::new("a", "x"))
            .build()
            .unwrap();
        let scope = Scope::root("问", None);
        let mut store = OutputStore::begin(&shape.workflow.shape, scope, &|_| None);
        let mut before = String::new();
        for (at, round) in rounds.iter().enumerate() {
            store.start_iteration();
            let seen = InputMapping::parse("{loop.iteration}|{loop.last.a}|{a}").build(store.scope());
            prop_assert_eq!(seen, format!("{}|{before}|", at + 1));
            round.iter().for_each(|output| store.set("a", output.as_str()));
            before = round.clone().unwrap_or_default();
        }
        prop_assert_eq!(store.get_iteration_history(100).len(), rounds.len().saturating_sub(1));
    }
}
