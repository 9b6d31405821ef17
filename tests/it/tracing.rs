//! Traces: a collector receives the spans of all processes that take part in a message, with the correct parents.

use crate::commands::Folder;
use crate::scenarios::{acts, answer, sales_with};
use crate::support::api::Api;
use crate::support::backend::{cluster, embedded_with};
use crate::support::engine::{DEADLINE, Engine, with_model};
use crate::support::process::Process;
use crate::support::script::{ScriptedModel, plan};
use crate::support::servers::free_port;
use crate::support::{background, eventually};
use async_nats::jetstream;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use base::config::{Backend, Settings};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::set_default;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry, fmt};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector that keeps all received spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    /// Service and role of each sender.
    senders: BTreeSet<(String, String)>,
}

impl Collector {
    /// Serves on a free port. Returns its address.
    async fn start(&self) -> String {
        let router = Router::new().route("/v1/traces", post(receive)).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        background(async move { axum::serve(listener, router).await.unwrap() });
        address
    }

    /// The spans with this name in the caller's trace, ordered by start time.
    fn spans(&self, name: &str) -> Vec<Span> {
        let kept = self.0.lock().unwrap();
        let of_trace = kept.spans.iter().filter(|span| span.name == name && hex(&span.trace_id) == TRACE);
        let mut spans: Vec<Span> = of_trace.cloned().collect();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }

    /// The only span with this name.
    fn span(&self, name: &str) -> Span {
        match self.spans(name).as_slice() {
            [span] => span.clone(),
            spans => panic!("{name}: {spans:?} of {:?}", self.names()),
        }
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().spans.iter().map(|span| span.name.clone()).collect()
    }
}

async fn receive(State(collector): State<Collector>, body: Bytes) -> Bytes {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut kept = collector.0.lock().unwrap();
    for of_process in request.resource_spans {
        let about = of_process.resource.unwrap().attributes;
        kept.senders.insert((attribute(&about, "service.name"), attribute(&about, "turnwheel.role")));
        kept.spans.extend(of_process.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    Bytes::new()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Value of an attribute; empty if it is missing.
fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Attribute::StringValue(text)) => text,
        Some(Attribute::IntValue(number)) => number.to_string(),
        Some(Attribute::BoolValue(truth)) => truth.to_string(),
        Some(other) => panic!("{key}: {other:?}"),
        None => String::new(),
    }
}

/// The agent of the scenarios, with a timer that fires immediately.
fn agent(api: &Api) -> Value {
    let agent = sales_with(&json!({"timers": [{"name": "follow_up", "delay": "500ms", "message": "还需要帮助吗？"}]}));
    serde_json::from_str(&agent.to_string().replace("{api}", &api.base_url)).unwrap()
}

/// Sends one message through these processes, and waits for the timer that its turn arms. On return the processes have
/// ended.
async fn one_message(settings: Settings, roles: &[&str], collector: &Collector) -> (ScriptedModel, Api) {
    let first = plan(json!("您好"), &acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"})));
    let (model, api) = (ScriptedModel::answering(vec![first, answer("好的")]).await, Api::start().await);
    let mut settings = with_model(settings, &model);
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings);
    let set = format!("telemetry.otlp_endpoint={}", collector.start().await);
    let start = |role: &&str| Process::start(folder.path(), &folder.settings, &["--set", &set, "--set", NAMED, role]);
    let mut processes: Vec<Process> = roles.iter().map(start).collect();

    let client = base::http_client::builder().no_proxy().build().unwrap();
    let base = format!("http://{}/api/v1", folder.settings.gateway.listen);
    eventually(DEADLINE, "the gateway takes the agent", || async {
        let applied = client.put(format!("{base}/agents/sales")).json(&agent(&api)).send().await;
        applied.is_ok_and(|answer| answer.status().is_success())
    })
    .await;
    let message =
        json!({"session_id": "s1", "agent_id": "sales", "job_id": "m-1", "text": "查订单 A1", "channel": "web"});
    let posted = client.post(format!("{base}/messages")).json(&message);
    let posted = posted.header("traceparent", format!("00-{TRACE}-{CALLER}-01")).header("tracestate", "vendor=a");
    assert_eq!(posted.send().await.unwrap().status(), 202);
    eventually(DEADLINE, "the timer's turn has ended", || async {
        let session: Value = client.get(format!("{base}/sessions/s1")).send().await.ok()?.json().await.ok()?;
        Some(session["recent_jobs"].as_array().is_some_and(|jobs| jobs.len() == 2)).filter(|ended| *ended)
    })
    .await;
    processes.iter().for_each(|process| process.signal("TERM"));
    for process in &mut processes {
        let ended = eventually(DEADLINE, "it ends", || std::future::ready(process.ended()));
        assert!(ended.await.success());
    }
    (model, api)
}

const NAMED: &str = "telemetry.service_name=tw-test";

/// Checks that the spans of the message form one tree that includes all calls.
fn check(collector: &Collector, model: &ScriptedModel, api: &Api) {
    let request = collector.span("POST /api/v1/messages");
    assert_eq!(hex(&request.parent_span_id), CALLER, "the caller's span is the parent");
    let of = |span: &Span, key: &str| attribute(&span.attributes, key);
    assert_eq!((of(&request, "session_id"), of(&request, "job_id")), ("s1".into(), "m-1".into()));
    assert_eq!(of(&request, "http.response.status_code"), "202");

    let turns = collector.spans("turn");
    let [turn, fired] = turns.as_slice() else { panic!("{turns:?} of {:?}", collector.names()) };
    assert_eq!(turn.parent_span_id, request.span_id, "the turn belongs to the request");
    assert_eq!((request.trace_state.as_str(), turn.trace_state.as_str()), ("vendor=a", "vendor=a"));
    for (key, value) in [("session_id", "s1"), ("turn_id", "m-1"), ("agent_id", "sales"), ("outcome", "answered")] {
        assert_eq!(of(turn, key), value, "{key}");
    }
    let timer = collector.span("timer");
    assert_eq!(timer.parent_span_id, turn.span_id, "the timer belongs to the turn that armed it");
    assert_eq!((of(&timer, "session_id"), of(&timer, "timer")), ("s1".into(), "follow_up".into()));
    assert_eq!(fired.parent_span_id, timer.span_id, "the timer's turn belongs to the timer");

    let skill = collector.span("skill query_order");
    let asked = collector.spans("model default");
    assert_eq!(asked.len(), 2, "{:?}", collector.names());
    assert!(asked.iter().chain([&skill]).all(|step| step.parent_span_id == turn.span_id), "steps belong to the turn");
    assert_eq!((of(&asked[0], "model"), of(&asked[0], "prompt_tokens")), ("scripted-1".into(), "11".into()));
    let header = |span: &Span| format!("00-{TRACE}-{}-01", hex(&span.span_id));
    let told: Vec<String> = model.asked().into_iter().map(|asked| asked.traceparent).collect();
    assert_eq!(told, asked.iter().map(header).collect::<Vec<_>>(), "the model gets the trace");
    assert_eq!(api.calls("/orders")[0].traceparent, header(&skill), "the skill's API gets the trace");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_one_trace_through_gateway_worker_and_scheduler() {
    let (backend, collector) = (cluster().await, Collector::default());
    let settings = backend.settings.clone();
    let roles = ["gateway", "worker", "scheduler"];
    let (model, api) = one_message(settings.clone(), &roles, &collector).await;
    check(&collector, &model, &api);
    let senders = roles.map(|role| ("tw-test".to_owned(), role.to_owned()));
    assert_eq!(collector.0.lock().unwrap().senders, BTreeSet::from(senders));

    let client = async_nats::connect(&settings.nats.url).await.unwrap();
    let out = format!("{}_OUT", settings.namespace.to_uppercase());
    let out = jetstream::new(client).get_stream(out).await.unwrap();
    let subject = format!("{}.out.web.s1.reply", settings.namespace);
    let reply = out.get_last_raw_message_by_subject(&subject).await.unwrap();
    let header = reply.headers.get("traceparent").unwrap().to_string();
    assert!(header.contains(TRACE), "a channel that reads the reply can continue the trace: {header}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_one_trace_in_dev() {
    let (collector, settings) = (Collector::default(), Settings { backend: Backend::Embedded, ..Settings::default() });
    let (model, api) = one_message(settings, &["dev"], &collector).await;
    check(&collector, &model, &api);
    assert!(
        collector.names().iter().all(|name| !name.contains("healthz") && name != "lane"),
        "{:?}",
        collector.names()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let folder = Folder::embedded();
    let set = format!("telemetry.otlp_endpoint=http://127.0.0.1:{}", free_port());
    let mut dev = Process::start(folder.path(), &folder.settings, &["--set", &set, "dev"]);
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let ready = format!("http://{}/readyz", folder.settings.gateway.listen);
    eventually(DEADLINE, "dev is ready", || async {
        client.get(&ready).send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let sent = folder.run(&["send", "--session", "s1", "--agent", "sales", "--wait", "你好"], "").await;
    assert_eq!(sent.code, 0, "{sent:?}");
    let examined = folder.run(&["doctor", "--quiet"], "").await;
    assert_eq!(examined.code, 0, "all findings are advice: {examined:?}");
    assert!(examined.out.contains("advice  telemetry.otlp_endpoint") && examined.out.contains("4318"), "{examined:?}");
    dev.signal("TERM");
    let ended = eventually(DEADLINE, "it ends", || std::future::ready(dev.ended())).await;
    assert!(ended.success());
    let log = Process::log(folder.path());
    assert_eq!(log.matches("cannot export spans to telemetry.otlp_endpoint").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_jobs_have_no_trace() {
    let backend = cluster().await;
    let mut settings = backend.settings.clone();
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let folder = Folder::with(settings);
    let _gateway = Process::start(folder.path(), &folder.settings, &["gateway"]);
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let base = format!("http://{}/api/v1", folder.settings.gateway.listen);
    let api = Api::start().await;
    eventually(DEADLINE, "the gateway takes the agent", || async {
        let applied = client.put(format!("{base}/agents/sales")).json(&agent(&api)).send().await;
        applied.is_ok_and(|answer| answer.status().is_success())
    })
    .await;
    let message = json!({"session_id": "s1", "agent_id": "sales", "text": "你好"});
    let posted = client.post(format!("{base}/messages")).json(&message);
    let posted = posted.header("traceparent", format!("00-{TRACE}-{CALLER}-01")).send().await.unwrap();
    assert_eq!(posted.status(), 202);
    let job = backend.queue.next_in_lane("s1", 0, 0).await.unwrap().unwrap();
    assert_eq!(job.trace, None);
}

/// Counts the spans of turns, as an exporter of spans gets them.
#[derive(Clone, Default)]
struct TurnSpans(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for TurnSpans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if span.metadata().name() == "turn" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// On one thread, because the state of a layer's filter belongs to the thread. With few places, so that turns begin while
/// others commit.
#[tokio::test]
async fn the_exporter_gets_the_span_of_every_turn() {
    const SESSIONS: usize = 100;
    let mut settings = Settings { backend: Backend::Embedded, ..Settings::default() };
    settings.worker.concurrency = 4;
    let (spans, log) = (TurnSpans::default(), fmt::layer().with_writer(std::io::sink));
    let exporter = spans.clone().with_filter(FilterFn::new(|metadata| metadata.is_span()));
    let _default = set_default(Registry::default().with(exporter).with(log.with_filter(LevelFilter::INFO)));
    let answers = (0..SESSIONS).map(|_| plan(json!("您好"), &answer("好"))).collect();
    let engine = Engine::watching(embedded_with(settings).await, ScriptedModel::answering(answers).await).await;
    engine.apply(agent(&Api::start().await)).await;
    let sessions: Vec<String> = (0..SESSIONS).map(|session| format!("s{session}")).collect();
    for session in &sessions {
        engine.publish(session, "m-1", "在吗").await;
    }
    engine.start_worker();
    for session in &sessions {
        engine.turn(session, "m-1").await;
    }
    assert_eq!(spans.0.load(Ordering::Relaxed), SESSIONS);
}
