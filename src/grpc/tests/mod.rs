//! The server and the client, with real connections in one process.

mod generated;
mod round_trips;
mod serving;
mod support;
mod transport;
