//! Checks of authoring: the validator in the database, the port of gRPC, and the authoring agent on another server.

use super::{CHECK_TIMEOUT, Finding, in_time};
use base::config::Settings;
use base::config::secrets::masked_address;
use bson::{Document, doc};
use cluster::mongo::{STATES, validator};
use mongodb::Database;
use mongodb::options::IndexOptions;
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Checks that the database refuses states that no program can read. `None` if the collection does not exist.
pub(super) async fn validation(database: &Database) -> Option<Finding> {
    let place = format!("{}.{STATES}", database.name());
    let listed = in_time(async { database.run_command(doc! {"listCollections": 1, "filter": {"name": STATES}}).await });
    let found = match listed.await {
        Ok(found) => found,
        Err(error) => return Some(Finding::unknown(&place, "its validator", &error)),
    };
    let first = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).ok()?;
    let options = first.first()?.as_document()?.get_document("options").cloned().unwrap_or_default();
    Some(match options.get_document("validator") {
        Ok(found) if *found == validator() => Finding::ok(place, "has its validator"),
        other => {
            let what = if other.is_ok() { "has another validator" } else { "has no validator" };
            let remedy =
                "the next process that starts sets it; its user needs the right `collMod` (deploy/mongodb/setup.js)";
            Finding::advice(place, what, remedy)
        }
    })
}

/// Checks that the gRPC address of gateways and the address of the authoring agent accept connections.
pub(super) async fn ports(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(mut listen) = settings.gateway.grpc_listen {
        let place = format!("gateway.grpc_listen = {listen}");
        if listen.ip().is_unspecified() {
            listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        findings.push(match reach(&listen.to_string()).await {
            Ok(()) => Finding::ok(place, "accepts connections"),
            Err(problem) => {
                let what = format!("no gateway of this machine serves gRPC there: {problem}");
                Finding::advice(place, what, "without it only gRPC clients are affected; \"\" turns gRPC off")
            }
        });
    }
    let endpoint = settings.authoring.endpoint.as_deref().unwrap_or_default();
    if !endpoint.is_empty() {
        let place = format!("authoring.endpoint = {}", masked_address(endpoint));
        findings.push(match address(endpoint) {
            None => Finding::problem(place, "is not an address", "write it like http://127.0.0.1:8081"),
            Some(address) => match reach(&address).await {
                Ok(()) => Finding::ok(place, "accepts connections"),
                Err(problem) => {
                    let what = format!("is unreachable: {problem}");
                    Finding::problem(place, what, "dialogues end with `agent_unavailable` until the server there runs")
                }
            },
        });
    }
    findings
}

fn address(endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

async fn reach(address: &str) -> Result<(), String> {
    match timeout(CHECK_TIMEOUT, TcpStream::connect(address)).await {
        Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

/// The partial filter of an index, for comparison.
pub(super) fn partial_filter(options: Option<&IndexOptions>) -> Option<Document> {
    options.and_then(|options| options.partial_filter_expression.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_an_endpoint_has_a_port() {
        assert_eq!(address("http://agents.example:8081/x").as_deref(), Some("agents.example:8081"));
        assert_eq!(address("https://agents.example").as_deref(), Some("agents.example:443"));
        assert_eq!(address("agents"), None);
    }
}
