//! Traces: [`trace_context`] says which trace something belongs to, and passes it on; [`otlp`] sends spans to a collector.
//!
//! A trace's way: a request to the gateway (`request`, in the caller's trace if it names one) → the job's headers → `turn` →
//! its steps, whose HTTP calls carry it on → what the turn publishes, and the timers that it arms → `timer`, which is
//! back on the queue. Where nothing is exported no span is traced, and no header is written.

pub mod otlp;
pub mod trace_context;

pub use otlp::Otlp;
pub use trace_context::TraceContext;
