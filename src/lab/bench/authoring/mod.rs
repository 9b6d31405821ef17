//! `bench authoring`: dialogues of the authoring agent through a gateway and over gRPC, with the limits that they must
//! keep. Gateway, worker and scheduler are one process of their own, `bench engine`, whose memory is measured. The
//! [`model`] is a server in this process.

mod calls;
mod dialogue;
mod model;

use super::Progress;
use super::figures::Latencies;
use super::options::AuthoringOptions;
use super::process::{ChildProcess, MemoryUsage};
use super::report::{Column, MET, Report, Row, rounded};
use super::test_cluster::{TestCluster, TestNamespace};
use crate::port::free_port;
use anyhow::Context;
use base::config::{Environment, Model, Settings};
use base::tasks::Tasks;
use dialogue::{Client, TurnTimes};
use futures::{StreamExt, TryStreamExt, stream};
use model::{FIRST, LARGE, SECOND, TESTS};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for the engine to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the engine to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

const COLUMNS: &[Column] = &[
    ("figure", "figure"),
    ("value", "value"),
    ("unit", "unit"),
    ("required", "required"),
    ("aimed at", "aim"),
    ("met", MET),
];

/// A figure with its limits. It must be below `required`.
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    required: Option<f64>,
    aim: Option<f64>,
}

/// Runs the benchmark.
pub async fn run(
    options: &AuthoringOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let tasks = Tasks::new();
    let base_url = model::serve(&tasks).await?;
    let model: Model = serde_json::from_value(json!({"provider": "openai", "base_url": base_url, "model": "bench"}))?;
    let (listen, grpc_listen) = (local(free_port()?), local(free_port()?));
    let settings = cluster.fresh_settings(|settings| {
        settings.models.insert("default".to_owned(), model);
        settings.gateway.listen = listen;
        settings.gateway.grpc_listen = Some(grpc_listen);
        settings.gateway.tokens = Vec::new();
        settings.gateway.access = Vec::new();
        settings.metrics.listen = None;
    });
    progress.phase("authoring: starting the engine");
    let engine = start(&settings, cluster.dir())?;
    let bench = AuthoringBench { options, client: Client::new(format!("http://{listen}"))?, engine: &engine };
    let figures = Box::pin(bench.measure(grpc_listen, progress)).await?;
    engine.end(STOP_TIMEOUT).await;
    tasks.shutdown(Duration::from_secs(1)).await;
    TestNamespace::open(settings).await?.close().await?;
    let rows = figures.into_iter().map(|figure| figure.row(options)).collect();
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Starts gateway, gRPC, worker and scheduler in one process.
fn start(settings: &Settings, dir: &Path) -> anyhow::Result<ChildProcess> {
    let file = dir.join(format!("{}-engine.json", settings.namespace));
    std::fs::write(&file, serde_json::to_vec(settings)?)?;
    ChildProcess::own(&["bench", "engine", &file.display().to_string()])
}

/// The settings in the file that [`run`] has written for the process of the engine.
pub fn engine_settings(file: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).context("cannot read the settings of the engine")
}

struct AuthoringBench<'a> {
    options: &'a AuthoringOptions,
    client: Client,
    engine: &'a ChildProcess,
}

/// The times of the turns of dialogues.
struct Turns {
    first_event: Latencies,
    first_word: Latencies,
    dialogue: Latencies,
}

impl AuthoringBench<'_> {
    async fn measure(&self, grpc: SocketAddr, progress: &dyn Progress) -> anyhow::Result<Vec<Figure>> {
        self.client.is_ready(READY_TIMEOUT).await?;
        // The first dialogue opens connections and fills caches.
        self.dialogue().await?;
        let all = self.options.dialogues;
        let (tenth, half) = (all.div_ceil(10), all.div_ceil(2));
        progress.phase(&format!("authoring: {all} dialogues, {} at a time", self.options.sessions));
        let mut turns =
            Turns { first_event: Latencies::new()?, first_word: Latencies::new()?, dialogue: Latencies::new()? };
        let (saves, begun) = (self.client.saves().await?, Instant::now());
        let mut resident = Vec::new();
        for (from, to) in [(0, tenth), (tenth, half), (half, all)] {
            self.dialogues(from, to, &mut turns, progress).await?;
            resident.push(self.resident()?);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let saved = self.client.saves().await?;
        progress.phase(&format!("authoring: {} generations of {} nodes", self.options.generations, model::NODES));
        let generations = self.generations(progress).await?;
        progress.phase(&format!("authoring: {} calls over gRPC", self.options.connections));
        let calls = calls::measure(grpc, self.options.connections).await?;
        let save_mean = (saved.1 - saves.1) / (saved.0 - saves.0).max(1.0) * 1_000.0;
        let plain = |name, value, unit| Figure { name, value, unit, required: None, aim: None };
        let limited =
            |name, value, required, aim| Figure { name, value, unit: "ms", required: Some(required), aim: Some(aim) };
        Ok(vec![
            limited("first event p95", turns.first_event.quantile(0.95), 3_000.0, 50.0),
            plain("first event p50", turns.first_event.quantile(0.5), "ms"),
            plain("first word p50", turns.first_word.quantile(0.5), "ms"),
            plain("first word p95", turns.first_word.quantile(0.95), "ms"),
            limited("save mean", save_mean, 500.0, 10.0),
            plain("saves of a dialogue", (saved.0 - saves.0) / all as f64, ""),
            limited("gRPC connection p95", calls.connect.quantile(0.95), 1_000.0, 20.0),
            limited("gRPC connection and first response p95", calls.first_response.quantile(0.95), 1_000.0, 20.0),
            limited("generation of 50 nodes with 4 tests, longest", generations.quantile(1.0), 30_000.0, 1_000.0),
            plain("generation of 50 nodes with 4 tests, p50", generations.quantile(0.5), "ms"),
            plain("dialogues per second", all as f64 / seconds, "1/s"),
            plain("dialogue p50", turns.dialogue.quantile(0.5), "ms"),
            plain("dialogue p95", turns.dialogue.quantile(0.95), "ms"),
            plain("memory after a tenth of the dialogues", resident[0], "MiB"),
            // By then the process has loaded all that it loads once, such as the dictionary of Chinese words.
            plain("memory after half of the dialogues", resident[1], "MiB"),
            plain("memory after all dialogues", resident[2], "MiB"),
        ])
    }

    /// The resident memory of the engine in MiB.
    fn resident(&self) -> anyhow::Result<f64> {
        Ok(MemoryUsage::of_process(self.engine.pid())?.resident as f64 / (1024.0 * 1024.0))
    }

    /// Holds the dialogues with these numbers, and adds their times.
    async fn dialogues(
        &self,
        from: usize,
        to: usize,
        turns: &mut Turns,
        progress: &dyn Progress,
    ) -> anyhow::Result<()> {
        let dialogues = stream::iter((from..to).map(|_| self.dialogue()));
        let mut done = dialogues.buffer_unordered(self.options.sessions);
        let mut number = from;
        while let Some((both, whole)) = done.try_next().await? {
            for turn in both {
                turns.first_event.record(turn.first_event);
                let word = turn.first_word.context("a turn has streamed no text")?;
                turns.first_word.record(word);
            }
            turns.dialogue.record(whole);
            number += 1;
            progress.tick(&format!("{number} of {} dialogues", self.options.dialogues));
        }
        Ok(())
    }

    /// Holds one dialogue: its first message leads to a question, its second one to a published workflow.
    async fn dialogue(&self) -> anyhow::Result<([TurnTimes; 2], Duration)> {
        let begun = Instant::now();
        let session_id = self.client.create().await?;
        let first = self.client.say(&session_id, FIRST).await?;
        let second = self.client.say(&session_id, SECOND).await?;
        let whole = begun.elapsed();
        second.has_published(1)?;
        Ok(([first, second], whole))
    }

    async fn generations(&self, progress: &dyn Progress) -> anyhow::Result<Latencies> {
        let mut latencies = Latencies::new()?;
        for number in 0..self.options.generations {
            let session_id = self.client.create().await?;
            let turn = self.client.say(&session_id, LARGE).await?;
            turn.has_published(TESTS)?;
            latencies.record(turn.generation.context("a turn has written no document")?);
            progress.tick(&format!("{} of {} generations", number + 1, self.options.generations));
        }
        Ok(latencies)
    }
}

impl Figure {
    fn row(self, options: &AuthoringOptions) -> Row {
        let Self { name, value, unit, required, aim } = self;
        let figures = json!({
            "bench": "authoring", "backend": options.target.backend, "sessions": options.sessions,
            "dialogues": options.dialogues, "figure": name, "unit": unit, "value": rounded(value),
            "required": required.map(rounded), "aim": aim.map(rounded), MET: required.map(|limit| value < limit),
        });
        let Value::Object(row) = figures else { return Row::new() };
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::TargetOptions;
    use base::config::Backend;

    #[test]
    fn a_figure_is_met_below_its_limit_only() {
        let target = TargetOptions {
            backend: Backend::Embedded,
            nats: None,
            mongodb: None,
            nats_sync: None,
            dir: None,
            json: true,
        };
        let options = AuthoringOptions { target, sessions: 1, dialogues: 1, generations: 1, connections: 1 };
        let met = |value, required| {
            let figure = Figure { name: "a", value, unit: "ms", required, aim: None };
            figure.row(&options)[MET].clone()
        };
        assert_eq!(
            (met(1.0, Some(2.0)), met(2.0, Some(2.0)), met(2.0, None)),
            (json!(true), json!(false), Value::Null)
        );
    }
}
