//! Spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf (`telemetry.otlp_endpoint`).
//!
//! Only spans: what is logged may hold secrets, which only the log masks.

use crate::config::Telemetry;
use crate::config::secrets::masked_address;
use crate::http_client::retry::Fault;
use crate::http_client::{self, read_bounded};
use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Handle;
use tracing::{Level, Metadata, Subscriber, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

/// How long the collector may take for one batch of spans.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the last spans may take at the end of a process.
const LAST: Duration = Duration::from_secs(3);
/// The most bytes of the collector's answer that are read.
const MAX_ANSWER: usize = 64 * 1024;
/// Spans of requests that come every few seconds and say nothing have this target: they are nobody's trace.
pub const PROBES: &str = "turnwheel::probe";

/// Why nothing is exported.
#[derive(Debug, Error)]
#[error("telemetry.otlp_endpoint = {endpoint}: {problem}; give a collector's address, such as `http://127.0.0.1:4318`")]
pub struct OtlpError {
    /// The setting, without its secrets.
    endpoint: String,
    /// What is wrong.
    problem: String,
}

/// Sends spans in batches, until it is stopped.
#[derive(Clone, Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
}

impl Otlp {
    /// Exports what the process does, which is named by its `role`; `None` without `telemetry.otlp_endpoint`. To be called on
    /// the runtime.
    pub fn start(settings: &Telemetry, role: &'static str) -> Result<Option<Self>, OtlpError> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
        let wrong = |problem: String| OtlpError { endpoint: masked_address(endpoint), problem };
        let client = http_client::builder().timeout(LIMIT).build().map_err(|error| wrong(error.to_string()))?;
        let sender = Sender {
            client,
            runtime: Handle::current(),
            collector: masked_address(endpoint),
            away: AtomicBool::new(false),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address(endpoint))
            .with_timeout(LIMIT)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()),
                KeyValue::new("turnwheel.role", role),
            ])
            .build();
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio)));
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource);
        Ok(Some(Self { provider: provider.with_sampler(sampler).build() }))
    }

    /// What a subscriber hands the engine's spans to. To be added before all other layers, without a filter of its own.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let layer = tracing_opentelemetry::layer().with_tracer(self.provider.tracer("turnwheel"));
        let layer = layer.with_location(false).with_threads(false).with_target(false);
        layer.with_tracked_inactivity(false).with_context_activation(false).with_filter(FilterFn::new(is_told))
    }

    /// Sends what is not sent yet, within a few seconds.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(LAST)).await;
        if let Ok(Err(problem)) = stopped {
            warn!("the last spans may be lost: {problem}");
        }
    }
}

/// Where a collector takes spans: below the address that is given for all that it takes, or there if that is said.
pub fn address(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// The engine's own spans: not those of its libraries, nor the one that only says in the log which lane is driven.
fn is_told(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_span()
        && *metadata.level() <= Level::DEBUG
        && target.starts_with("turnwheel")
        && target != PROBES
        && metadata.name() != "lane"
}

/// The exporter works on a thread of its own; the client needs the runtime.
#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
    /// As it may be logged.
    collector: String,
    away: AtomicBool,
}

impl Sender {
    async fn send(&self, request: reqwest::Request) -> Result<Response<Bytes>, Fault> {
        let mut answer = self.client.execute(request).await?;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        *response.body_mut() = read_bounded(&mut answer, MAX_ANSWER).await?.0.into();
        Ok(response)
    }

    /// Tells when the collector begins to fail, and when it is back.
    fn tell(&self, sent: &Result<Response<Bytes>, Fault>) {
        let problem = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("HTTP {}", response.status())),
            Err(fault) => Some(fault.to_string()),
        };
        match (problem, self.away.load(Ordering::Relaxed)) {
            (Some(problem), false) => {
                warn!("telemetry.otlp_endpoint = {} takes no spans, they are lost: {problem}", self.collector);
                self.away.store(true, Ordering::Relaxed);
            }
            (None, true) => {
                info!("telemetry.otlp_endpoint = {} takes spans again", self.collector);
                self.away.store(false, Ordering::Relaxed);
            }
            (Some(_), true) | (None, false) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let sent = self.runtime.block_on(self.send(request));
        self.tell(&sent);
        Ok(sent?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_where_it_is_missing() {
        for endpoint in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(address(endpoint), "http://c:4318/v1/traces");
        }
        assert_eq!(address("https://c/otlp/"), "https://c/otlp/v1/traces");
    }
}
