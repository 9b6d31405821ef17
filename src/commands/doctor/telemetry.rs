//! Whether the collector takes spans.

use super::{Finding, LIMIT};
use base::config::Settings;
use base::config::secrets::masked_address;
use base::http_client;
use base::http_client::retry::Fault;
use base::telemetry::otlp;

/// What the collector answers to no spans at all; nothing where none is set.
pub async fn telemetry(settings: &Settings) -> Option<Finding> {
    let endpoint = settings.telemetry.otlp_endpoint.as_ref()?;
    let place = format!("telemetry.otlp_endpoint = {}", masked_address(endpoint));
    let remedy = "is an OpenTelemetry collector there, with OTLP over HTTP (port 4318)? Until it answers, traces are lost, and nothing else";
    Some(match status(endpoint).await {
        Ok(status) if (200..300).contains(&status) => Finding::ok(place, "takes spans"),
        Ok(status @ (401 | 403)) => {
            let remedy = "set OTEL_EXPORTER_OTLP_HEADERS (such as `authorization=Bearer …`) where the processes run; the doctor does not send it";
            Finding::advice(place, format!("answers HTTP {status}: it wants to know who asks"), remedy)
        }
        Ok(status) => Finding::advice(place, format!("answers HTTP {status}"), remedy),
        Err(fault) => Finding::advice(place, fault.to_string(), remedy),
    })
}

async fn status(endpoint: &str) -> Result<u16, Fault> {
    let client = http_client::builder().timeout(LIMIT).build()?;
    let asked = client.post(otlp::address(endpoint)).header("content-type", "application/x-protobuf");
    Ok(asked.send().await?.status().as_u16())
}
