//! Traces: [`trace_context`] reads and writes the trace headers, [`otlp`] exports spans to a collector.
//!
//! A trace starts with a request to the gateway (span `request`), in the caller's trace if its headers name one. The
//! gateway copies the trace into the job's headers; the worker's `turn` span and its steps continue it. HTTP calls of
//! the steps pass it on. So do the turn's events and the timers that it arms; a due timer takes it back to the queue
//! (span `timer`). Without an exporter no span is traced and no header is written.

pub mod otlp;
pub mod trace_context;

pub use otlp::Otlp;
pub use trace_context::TraceContext;
