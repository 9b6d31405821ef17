//! Error texts for the driver's errors.

use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Describes an error in one sentence, without the driver's data structures.
pub fn sentence(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Authentication { message, .. } => {
            format!("the login is refused: {}; check user, password and authSource in mongodb.uri", plain(message))
        }
        ErrorKind::Command(command) => format!("{} ({}, code {})", command.message, command.code_name, command.code),
        ErrorKind::ServerSelection { message, .. } => selection(message),
        ErrorKind::Io(problem) => format!("the connection failed: {problem}"),
        ErrorKind::DnsResolve { message, .. } => format!("the host name cannot be resolved: {message}"),
        ErrorKind::InvalidArgument { message, .. } => message.clone(),
        ErrorKind::Write(WriteFailure::WriteError(problem)) => format!("{} (code {})", problem.message, problem.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(problem)) => {
            format!("{} ({}, code {})", problem.message, problem.code_name, problem.code)
        }
        _ => plain(&error.to_string()),
    }
}

/// The text of an error without its labels and sources.
fn plain(text: &str) -> String {
    let text = text.strip_prefix("Kind: ").unwrap_or(text);
    text.split(", labels: ").next().unwrap_or(text).trim().to_owned()
}

/// Describes a failed server selection: each server, and why it cannot be used.
fn selection(message: &str) -> String {
    let servers: Vec<String> = message.split("{ Address: ").skip(1).map(server).collect();
    if servers.is_empty() { plain(message) } else { format!("no server can be used: {}", servers.join("; ")) }
}

fn server(text: &str) -> String {
    let address = text.split([',', ' ']).next().unwrap_or_default();
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest);
    let kind = after("Type: ").and_then(|rest| rest.split([',', ' ']).next()).unwrap_or("unknown");
    let problem = after("Error: ").map(|rest| plain(rest.split(" }").next().unwrap_or(rest)));
    match (problem, kind) {
        (Some(problem), _) => format!("{address}: {}", problem.strip_prefix("I/O error: ").unwrap_or(&problem)),
        (None, "RsGhost") => format!("{address} is in a replica set that is not initiated"),
        (None, kind) => format!("{address} is {kind} and no primary"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_cannot_be_used_are_told_in_words() {
        let refused = "Server selection timeout: No available servers. Topology: { Type: Unknown, Set Name: rs0, Servers: [ { Address: 127.0.0.1:1, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {\"x\"}, source: None } ] }";
        assert_eq!(selection(refused), "no server can be used: 127.0.0.1:1: Connection refused (os error 111)");
        let ghosts = "Server selection timeout: None of the available servers suitable. Topology: { Type: ReplicaSetNoPrimary, Servers: [ { Address: a:1, Type: RsGhost, Average RTT: 1ms }, { Address: b:2, Type: RsSecondary } ] }";
        assert_eq!(
            selection(ghosts),
            "no server can be used: a:1 is in a replica set that is not initiated; b:2 is RsSecondary and no primary"
        );
        assert_eq!(selection("timed out"), "timed out");
        assert_eq!(plain("Kind: An error: x, labels: {}, source: None"), "An error: x");
    }
}
