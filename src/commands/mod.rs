//! TODO

pub mod crew;
pub mod doctor;
