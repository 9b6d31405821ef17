//! The ground floor of every Turnwheel process. It knows nothing of sessions or jobs.
//!
//! A process reads its settings and secrets ([`config`]), starts its background tasks ([`tasks`]) and takes the time
//! from [`clock`]. Outgoing HTTP calls share [`http_client`]. [`metrics`] and [`telemetry`] observe the process: the
//! first for Prometheus, the second with traces for an OpenTelemetry collector. [`error`] keeps and prints the causes of
//! errors.

pub mod clock;
pub mod config;
pub mod error;
pub mod http_client;
pub mod metrics;
pub mod tasks;
pub mod telemetry;
