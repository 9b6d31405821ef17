//! A free port for a server of a benchmark, a chaos run or a test.

use std::net::TcpListener;
use std::ops::Range;
use std::{io, iter};
use thiserror::Error;

/// Below the system's range for outgoing connections, so that none of them takes the port before the server listens on
/// it, or while the server restarts.
const PORTS: Range<u16> = 20_000..32_000;
/// Ports that are tried at most.
const TRIES: usize = 200;

/// All ports that were tried are in use.
#[derive(Debug, Error)]
#[error("no free port between {} and {}: {source}", PORTS.start, PORTS.end)]
pub struct NoFreePort {
    /// The error of the last try.
    #[from]
    source: io::Error,
}

/// Finds a port of 127.0.0.1 on which nothing listens.
///
/// # Errors
/// If all of 200 random ports between 20000 and 32000 are in use.
pub fn free_port() -> Result<u16, NoFreePort> {
    let found = iter::repeat_with(try_port).take(TRIES).find(io::Result::is_ok);
    Ok(found.unwrap_or_else(try_port)?)
}

fn try_port() -> io::Result<u16> {
    let port = rand::random_range(PORTS);
    TcpListener::bind(("127.0.0.1", port)).map(|_| port)
}
