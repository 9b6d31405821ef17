//! NATS and MongoDB of a run: [`nats`] and [`mongo`] start them and control them as groups of [`members`]. [`monitors`]
//! reads the health of NATS servers. [`network`] carries the connections between the members, which a run can cut.

mod members;
mod mongo;
mod monitors;
mod nats;
mod network;

pub(super) use members::ServerGroup;
pub(super) use mongo::Mongo;
pub(super) use nats::Nats;
pub(super) use network::Network;

use super::error::ChaosError;
use base::config::Environment;
use std::path::{Path, PathBuf};

/// Paths of the servers' programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `nats-server`.
    pub nats_server: PathBuf,
    /// `mongod`.
    pub mongod: PathBuf,
}

impl Programs {
    /// Finds both programs: the given path, else the path in the environment variable, else on the PATH, else in
    /// `target/servers`.
    pub fn find(nats_server: Option<PathBuf>, mongod: Option<PathBuf>, env: &Environment) -> Result<Self, ChaosError> {
        Ok(Self {
            nats_server: find("nats-server", "NATS_SERVER_BIN", nats_server, env)?,
            mongod: find("mongod", "MONGOD_BIN", mongod, env)?,
        })
    }
}

fn find(
    program: &'static str,
    variable: &str,
    named: Option<PathBuf>,
    env: &Environment,
) -> Result<PathBuf, ChaosError> {
    if let Some(path) = named.or_else(|| env.get(variable).map(PathBuf::from)) {
        let missing = || ChaosError::Missing { program, looked: format!("at {}", path.display()) };
        return path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(missing);
    }
    let on_path = std::env::split_paths(env.get("PATH").unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    // `../servers` of this program, in case it runs from the target folder of the source tree.
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("servers")));
    let folders = [Some(PathBuf::from("target/servers")), beside];
    let installed = || folders.iter().flatten().find_map(|folder| pinned(folder, program));
    on_path.or_else(installed).ok_or_else(|| ChaosError::Missing {
        program,
        looked: format!("in {variable}, on the PATH or in target/servers"),
    })
}

fn pinned(folder: &Path, program: &str) -> Option<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(program));
    std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(is_ours)?.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let env: Environment = [("PATH", "/nowhere"), ("MONGOD_BIN", "/nowhere/mongod")].into_iter().collect();
        let error = find("mongod", "MONGOD_BIN", None, &env).unwrap_err();
        assert_eq!(error.to_string(), "`mongod` not found at /nowhere/mongod");
        assert!(error.hint().contains("--mongod"));
        assert!(find("no-such-server", "NO_SUCH", None, &env).unwrap_err().to_string().contains("target/servers"));
    }
}
