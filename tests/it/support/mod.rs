//! What several tests share.

pub mod model_server;
