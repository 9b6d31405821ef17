//! Calls of the authoring agent over gRPC, each on a connection of its own.

use super::model::FIRST;
use crate::bench::figures::Latencies;
use anyhow::Context;
use base::clock::Clock;
use futures::StreamExt;
use grpc::{Author, AuthorRequest, RemoteAuthor};
use std::net::SocketAddr;
use std::time::Instant;
use tonic::transport::Endpoint;
use types::authoring::ConversationConfig;

/// The times of calls.
pub(super) struct CallTimes {
    /// From the start to the open connection.
    pub(super) connect: Latencies,
    /// From the call to its first response, with a new connection.
    pub(super) first_response: Latencies,
}

/// Connects and calls `times` times, one after the other.
pub(super) async fn measure(address: SocketAddr, times: usize) -> anyhow::Result<CallTimes> {
    let url = format!("http://{address}");
    let mut found = CallTimes { connect: Latencies::new()?, first_response: Latencies::new()? };
    for number in 0..times {
        let begun = Instant::now();
        let channel =
            Endpoint::from_shared(url.clone())?.connect().await.context("gRPC does not accept connections")?;
        found.connect.record(begun.elapsed());
        drop(channel);
        let remote = RemoteAuthor::new(&url, None, None, Clock::system())?;
        let begun = Instant::now();
        let mut responses = remote.converse(request(number));
        let mut response = responses.next().await.context("a call has no response")??;
        found.first_response.record(begun.elapsed());
        // The next call begins after this one has ended.
        while !response.is_final {
            response = responses.next().await.context("a call has no last response")??;
        }
    }
    Ok(found)
}

fn request(number: usize) -> AuthorRequest {
    AuthorRequest {
        session_id: format!("call-{number}"),
        user_id: "bench".into(),
        user_message: FIRST.into(),
        current_state: None,
        workflow_context: None,
        config: ConversationConfig::default(),
    }
}
