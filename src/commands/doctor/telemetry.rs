//! Check of the collector of traces.

use super::{CHECK_TIMEOUT, Finding};
use base::config::Settings;
use base::config::secrets::masked_address;
use base::http_client;
use base::http_client::retry::HttpFault;
use base::telemetry::otlp;

/// Sends an empty request to the collector and reports its response. `None` when no collector is set.
pub async fn telemetry(settings: &Settings) -> Option<Finding> {
    let endpoint = settings.telemetry.otlp_endpoint.as_ref()?;
    let place = format!("telemetry.otlp_endpoint = {}", masked_address(endpoint));
    let remedy = "is an OpenTelemetry collector there, with OTLP over HTTP (port 4318)? \
     Only traces are lost until it responds";
    Some(match status(endpoint).await {
        Ok(status) if (200..300).contains(&status) => Finding::ok(place, "accepts spans"),
        Ok(status @ (401 | 403)) => {
            let remedy = "set OTEL_EXPORTER_OTLP_HEADERS (such as `authorization=Bearer …`) where the \
             processes run; the doctor does not send it";
            Finding::advice(place, format!("responds with HTTP {status}: it requires authentication"), remedy)
        }
        Ok(status) => Finding::advice(place, format!("responds with HTTP {status}"), remedy),
        Err(fault) => Finding::advice(place, fault.to_string(), remedy),
    })
}

async fn status(endpoint: &str) -> Result<u16, HttpFault> {
    let client = http_client::builder().timeout(CHECK_TIMEOUT).build()?;
    let asked = client.post(otlp::address(endpoint)).header("content-type", "application/x-protobuf");
    Ok(asked.send().await?.status().as_u16())
}
