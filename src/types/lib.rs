//! TODO

pub mod action;
pub mod agent;
pub mod budget;
pub mod canonical;
pub mod cause;
pub mod depth;
pub mod duration;
pub mod event;
pub mod ids;
pub mod job;
pub mod model_names;
pub mod plan;
pub mod run;
pub mod run_outcome;
pub mod session;
pub mod status;
pub mod step;
pub mod texts;
pub mod timer;
pub mod timestamp;
pub mod turn;
