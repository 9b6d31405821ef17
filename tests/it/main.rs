//! Behaviour through public interfaces, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod agents;
mod away;
mod bench;
mod browser;
mod chaos;
mod commands;
mod conformance;
mod cost;
mod crash;
mod demo;
mod dependencies;
mod embedding;
mod fuzz;
mod gateway;
mod http_action;
mod knowledge;
mod limits;
mod metrics;
mod model;
mod openapi;
mod operators;
mod operators_day;
mod outbox;
mod poison;
mod properties;
mod recovery;
mod scenarios;
mod security;
mod support;
mod tour;
