//! TODO

pub mod action;
pub mod budget;
pub mod execution;
pub mod journal;
pub mod knowledge;
pub mod model;
pub mod prompt;
pub mod run;
pub mod template;
pub mod timer;
pub mod turn;
pub mod worker;
pub mod workflow;
