//! Behaviour through public interfaces, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod conformance;
mod support;
