//! Behaviour through public interfaces, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod agents;
mod away;
mod bench;
mod commands;
mod conformance;
mod demo;
mod gateway;
mod http_action;
mod limits;
mod model;
mod poison;
mod recovery;
mod scenarios;
mod support;
