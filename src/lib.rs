//! Turnwheel: a durable workflow engine for conversational agents.
//!
//! A message's way: [`gateway`] or a channel → [`queue`] → [`worker`] (takes the lane) → [`turn`] (plans, greets, decides,
//! acts, replies; reaches the outside only through its [`journal`]) → [`store`] (the commit) → acknowledged. [`timer`] puts
//! follow-ups back onto the queue.

pub mod app;
pub mod base;
pub mod cluster;
pub mod commands;
pub mod definitions;
pub mod embedded;
pub mod engine;
pub mod gateway;
pub mod lab;
pub mod storage;
pub mod testing;
pub mod types;
