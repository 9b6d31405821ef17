//! turnwheel

fn main() {}
