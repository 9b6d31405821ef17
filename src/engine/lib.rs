//! TODO

pub mod action;
pub mod budget;
pub mod journal;
pub mod knowledge;
pub mod model;
pub mod planner;
pub mod prompt;
pub mod run;
pub mod timer;
pub mod turn;
pub mod worker;
pub mod workflow;
