//! Exports spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf (`telemetry.otlp_endpoint`).
//!
//! Log events are not exported: they may contain secrets, which only the log's own output masks.

use crate::config::Telemetry;
use crate::config::secrets::masked_address;
use crate::error::SharedError;
use crate::http_client::retry::HttpFault;
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

/// Timeout of one batch of spans.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the last export when the process stops.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes that are read of the collector's response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Target of the spans of frequent, uninteresting requests such as health checks. These spans are not exported.
pub const PROBE_TARGET: &str = "turnwheel::probe";

/// Why the exporter could not be started.
#[derive(Debug, Error)]
#[error(
    "cannot export traces to telemetry.otlp_endpoint = {endpoint}: {source}; set it to a collector's address, such as \
     `http://127.0.0.1:4318`"
)]
pub struct OtlpError {
    /// The address in the settings, without secrets.
    endpoint: String,
    /// The error of the HTTP client or the exporter.
    source: SharedError,
}

/// Exports spans in batches until it is stopped.
#[derive(Clone, Debug)]
pub struct Otlp {
    provider: SdkTracerProvider,
}

impl Otlp {
    /// Starts the exporter. `role` names the process in the traces. Returns `None` without `telemetry.otlp_endpoint`.
    /// Must be called on the Tokio runtime.
    pub fn start(settings: &Telemetry, role: &'static str) -> Result<Option<Self>, OtlpError> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
        let wrong = |source: SharedError| OtlpError { endpoint: masked_address(endpoint), source };
        let client = http_client::builder().timeout(EXPORT_TIMEOUT).build().map_err(|error| wrong(error.into()))?;
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
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| wrong(error.into()))?;
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

    /// The layer that passes the engine's spans to the exporter. It must be the first layer of the subscriber, and
    /// brings its own filter.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let layer = tracing_opentelemetry::layer().with_tracer(self.provider.tracer("turnwheel"));
        let layer = layer.with_location(false).with_threads(false).with_target(false);
        layer.with_tracked_inactivity(false).with_context_activation(false).with_filter(FilterFn::new(is_exported))
    }

    /// Exports the remaining spans, for at most 3 seconds, and stops the exporter.
    pub async fn stop(self) {
        let stopped =
            tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(LAST_EXPORT_TIMEOUT)).await;
        if let Ok(Err(problem)) = stopped {
            warn!("could not export the last spans before the stop: {problem}");
        }
    }
}

/// The address for traces: the endpoint followed by `/v1/traces`, unless it ends with that path.
pub fn address(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// True for spans of the engine: not for spans of its libraries, nor for `lane`, which only adds the lane to log lines.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_span()
        && *metadata.level() <= Level::DEBUG
        && target.starts_with("turnwheel")
        && target != PROBE_TARGET
        && metadata.name() != "lane"
}

/// HTTP client of the exporter. The exporter runs on a thread of its own, and the client needs the runtime.
#[derive(Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
    /// The collector's address without secrets, for the log.
    collector: String,
    away: AtomicBool,
}

impl Sender {
    async fn send(&self, request: reqwest::Request) -> Result<Response<Bytes>, HttpFault> {
        let mut answer = self.client.execute(request).await?;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        *response.body_mut() = read_bounded(&mut answer, MAX_RESPONSE_BYTES).await?.0.into();
        Ok(response)
    }

    /// Logs a failure of the collector once, and its recovery.
    fn log_outcome(&self, sent: &Result<Response<Bytes>, HttpFault>) {
        let problem = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("HTTP {}", response.status())),
            Err(fault) => Some(fault.to_string()),
        };
        match (problem, self.away.load(Ordering::Relaxed)) {
            (Some(problem), false) => {
                warn!("cannot export spans to telemetry.otlp_endpoint = {}, they are lost: {problem}", self.collector);
                self.away.store(true, Ordering::Relaxed);
            }
            (None, true) => {
                info!("exporting spans to telemetry.otlp_endpoint = {} again", self.collector);
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
        self.log_outcome(&sent);
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
