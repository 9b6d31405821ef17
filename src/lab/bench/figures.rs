//! Latency histograms and their percentiles.

use super::report::{Row, rounded};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Histogram of latencies with three significant digits, from one microsecond to one hour.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { histogram: Histogram::new_with_bounds(1, 3_600_000_000, 3)? })
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        self.histogram.saturating_record(micros);
    }

    /// Adds the latencies of another histogram.
    pub(super) fn add(&mut self, other: &Self) {
        // Both histograms have the same bounds, so this cannot fail.
        let _ = self.histogram.add(&other.histogram);
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency at `quantile` (0 to 1), in milliseconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// Adds `p50_ms`, `p90_ms`, `p99_ms`, `p999_ms` and `max_ms` to a row.
    pub(super) fn put(&self, row: &mut Row) {
        for (name, quantile) in
            [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999), ("max_ms", 1.0)]
        {
            row.insert(name.to_owned(), rounded(self.quantile(quantile)));
        }
    }
}
