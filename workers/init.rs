//! `turnwheel init`: writes a first agent file.

use crate::failure::Failure;
use crate::table::print;
use anyhow::Context;
use base::config::Settings;
use clap::Args;
use std::fs::File;
use std::io::{ErrorKind, Write};

const EXAMPLES: &str = "\
Examples:
  turnwheel init                                write agents/first.yaml
  turnwheel dev                                 run it; then, in a second terminal:
  turnwheel chat --agent first

It writes into the folder of the setting agents_dir, and never replaces a file.";

/// The file that it writes.
const FIRST: &str = include_str!("first_agent.yaml");

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Init;

impl Init {
    pub fn run(&self, settings: &Settings) -> anyhow::Result<()> {
        let folder = &settings.agents_dir;
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let path = folder.join("first.yaml");
        let mut file = File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Failure::new(format!("{} exists already", path.display()), "edit it, or remove it first").into()
            }
            _ => anyhow::Error::new(error).context(format!("cannot write {}", path.display())),
        })?;
        file.write_all(FIRST.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        print(format!("wrote {}: an agent with the id `first`", path.display()));
        print("next: `turnwheel dev`, and in a second terminal `turnwheel chat --agent first`");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use definitions::agent::load;

    #[test]
    fn the_file_is_an_agent_without_warnings_and_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { agents_dir: folder.path().join("agents"), ..Settings::default() };
        Init.run(&settings).unwrap();
        let path = settings.agents_dir.join("first.yaml");
        let agent = load::file(&path).unwrap();
        assert_eq!(agent.id(), "first");
        let (_, warnings) = crate::known_names::local_names(&settings).check(agent).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        std::fs::write(&path, "mine").unwrap();
        assert!(Init.run(&settings).unwrap_err().to_string().contains("exists already"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
