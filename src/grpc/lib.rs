//! gRPC: the interface of the authoring agent, its server and its client.
//!
//! - [`author`] has the trait [`Author`] with its requests and responses, which have the types of [`types::authoring`].
//!   It does not know gRPC: the server calls an [`Author`], and the client is one. [`invalid`] is why a message is refused;
//! - [`server`] serves an [`Author`], health and reflection on the connections that it is given;
//! - [`client`] calls the server that `authoring.endpoint` names, over one shared connection;
//! - `convert` translates between these types and the messages of `proto/workflow_agent.proto`;
//! - `generated` is the code that is made from that file.

pub mod author;
pub mod client;
mod convert;
pub mod generated;
pub mod invalid;
pub mod server;

pub use author::{Author, AuthorError, AuthorRequest, AuthorResponse};
pub use client::RemoteAuthor;
pub use invalid::Invalid;
pub use server::{Accepted, Admission, Admitted, Call, Purpose, Refusal, ServeError, Server, ServerCertificate};

/// The largest message in bytes, of requests and responses. gRPC's default of 4 MiB is too small for a long conversation.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
