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
mod run_streams;
mod runs;
mod scenarios;
mod security;
mod support;
mod task_agent;
mod tour;
mod tracing;
mod workflow_commands;
mod workflow_files;
