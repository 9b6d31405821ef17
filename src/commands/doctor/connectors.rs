//! Checks that connectors reach their databases, and that read-only ones cannot write.

use super::{Finding, in_time};
use connectors::{Connector, Connectors};
use futures::future::join_all;

/// Connects to the database of each connector.
pub async fn connectors(connectors: &Connectors) -> Vec<Finding> {
    join_all(connectors.iter().map(examine)).await
}

async fn examine(connector: &Connector) -> Finding {
    let place = format!("connectors.{}", connector.name());
    let examined = match in_time(connector.examine()).await {
        Ok(examined) => examined,
        Err(problem) => {
            let remedy = "DATABASE nodes fail until it works: correct the URL in the variable of `url_env`, the login or the server";
            return Finding::problem(place, problem, remedy);
        }
    };
    let reached = format!("{} responds", examined.version);
    match (examined.enforces_read_only, examined.advice) {
        (Some(false), _) => {
            let what = format!("{reached}, but does not refuse writes, although the connector is read-only");
            Finding::problem(place, what, "use an account that may only read")
        }
        (_, Some(advice)) => {
            let (what, remedy) = advice.split_once(": ").unwrap_or((advice, ""));
            Finding::advice(place, format!("{reached}; {what}"), remedy)
        }
        (Some(true), None) => Finding::ok(place, format!("{reached}; it refuses writes")),
        (None, None) => Finding::ok(place, format!("{reached}; the connector may write")),
    }
}
