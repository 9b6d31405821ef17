//! Turnwheel: a durable workflow engine for conversational agents.
//!
//! A message's way: [`gateway`] or a channel → [`queue`] → [`worker`] (takes the lane) → [`turn`] (plans, greets, decides,
//! acts, replies; reaches the outside only through its [`journal`]) → [`store`] (the commit) → acknowledged. [`timer`] puts
//! follow-ups back onto the queue.

pub mod action;
pub mod agent;
pub mod bench;
pub mod budget;
pub mod chaos;
pub mod clock;
pub mod config;
pub mod crew;
pub mod demo;
pub mod depth;
pub mod doctor;
pub mod document;
pub mod engine;
pub mod gateway;
pub mod http_client;
pub mod ids;
pub mod invariants;
pub mod journal;
pub mod knowledge;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod prompt;
pub mod queue;
pub mod run;
pub mod session;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod testing;
pub mod timer;
pub mod timestamp;
pub mod turn;
pub mod worker;
pub mod workflow;
