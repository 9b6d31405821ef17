//! TODO

pub mod clock;
pub mod config;
pub mod http_client;
pub mod metrics;
pub mod tasks;
pub mod telemetry;
