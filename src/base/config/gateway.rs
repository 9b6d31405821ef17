//! Settings of the HTTP gateway.

use super::{Environment, NamedToken};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The HTTP gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Address to listen on; `127.0.0.1:8080` unless given.
    pub listen: SocketAddr,
    /// Address on which the gateway serves gRPC; none unless given.
    pub grpc_listen: Option<SocketAddr>,
    /// Path of the certificate chain in PEM with which gRPC is served; without TLS unless given.
    pub grpc_cert: Option<PathBuf>,
    /// Path of the certificate's private key in PEM.
    pub grpc_key: Option<PathBuf>,
    /// Bearer tokens of administrators. Without any token, the gateway may listen on loopback addresses only.
    pub tokens: Vec<String>,
    /// Named tokens with roles.
    pub access: Vec<NamedToken>,
    /// The most open connections; 10,000 unless given. Further connections wait.
    pub max_connections: usize,
    /// The most open connections of one address; 0, which is no limit, unless given. Further ones are closed.
    pub max_connections_per_address: usize,
    /// The most messages to one agent in a minute at one gateway; 0, which is no limit, unless given.
    pub agent_messages_per_minute: u32,
    /// The most open event streams; 8,000 unless given. Further ones are refused.
    pub max_streams: usize,
    /// Origins of web pages that may call the gateway from a browser; `*` for all. None unless given.
    pub cors: Vec<String>,
}

impl Gateway {
    /// True if clients need a token.
    pub fn needs_token(&self) -> bool {
        !self.tokens.is_empty() || !self.access.is_empty()
    }

    /// The token with which a command of this machine calls the gateway: one that may do the most.
    pub fn own_token(&self, env: &Environment) -> Option<String> {
        let named = || {
            let best = self.access.iter().max_by_key(|entry| entry.role)?;
            best.tokens(env).ok()?.into_iter().next()
        };
        self.tokens.first().cloned().or_else(named)
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            grpc_listen: None,
            grpc_cert: None,
            grpc_key: None,
            tokens: Vec::new(),
            access: Vec::new(),
            max_connections: 10_000,
            max_connections_per_address: 0,
            agent_messages_per_minute: 0,
            max_streams: 8_000,
            cors: Vec::new(),
        }
    }
}
