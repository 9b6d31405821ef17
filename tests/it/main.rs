//! Behaviour through public interfaces, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod agents;
mod away;
mod commands;
mod conformance;
mod demo;
mod dependencies;
mod fuzz;
mod gateway;
mod http_action;
mod model;
mod properties;
mod scenarios;
mod security;
mod support;
