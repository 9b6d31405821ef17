//! The program that runs scripts.

use crate::error::{ErrorKind, ScriptError};
use crate::inside;
use crate::protocol::RUNNER_COMMAND;
use base::config::{Environment, Python, PythonRunner};
use std::path::{Path, PathBuf};

/// The variables that an external command receives, if they are set.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME"];

/// How scripts are run.
#[derive(Clone, Debug)]
pub(crate) enum Runner {
    /// This program or another one with the built-in Python.
    Builtin(Program),
    /// The command of the settings.
    Command(Program),
    /// None, for this reason.
    None(&'static str),
}

/// A program with its arguments and its whole environment.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

/// The limits that the system enforces on scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforced {
    /// The limits in words.
    pub summary: &'static str,
    /// True if the kernel refuses system calls.
    pub system_calls: bool,
}

impl Runner {
    pub(crate) fn new(settings: &Python, program: Option<PathBuf>, env: &Environment) -> Self {
        match settings.runner {
            PythonRunner::Off => Self::None("sandbox not configured: `python.runner` is `off`; set python.runner"),
            PythonRunner::Command => match settings.command.split_first() {
                Some((path, args)) => Self::Command(Program {
                    path: found(path, env),
                    args: args.to_vec(),
                    env: PASSED
                        .iter()
                        .filter_map(|name| Some(((*name).to_owned(), env.get(name)?.to_owned())))
                        .collect(),
                }),
                None => Self::None("sandbox not configured: `python.command` is empty; set it to the runner's command"),
            },
            PythonRunner::Builtin if program.is_none() && !inside::IS_BUILT_IN => Self::None(
                "this build has no built-in Python; build with the feature `python`, or set python.runner to `command`",
            ),
            PythonRunner::Builtin => match program.or_else(own_program) {
                Some(path) => Self::Builtin(Program { path, args: builtin_args(settings), env: Vec::new() }),
                None => Self::None(
                    "this program does not serve scripts; call `turnwheel::sandbox::serve_if_asked()` first in its \
                     `main`, give the path of the program `turnwheel` to `EngineBuilder::python_runner`, or set \
                     python.runner to `command`",
                ),
            },
        }
    }

    pub(crate) fn program(&self) -> Result<&Program, ScriptError> {
        match self {
            Self::Builtin(program) | Self::Command(program) => Ok(program),
            Self::None(reason) => Err(ScriptError::new(ErrorKind::Unavailable, *reason)),
        }
    }

    pub(crate) fn enforced(&self) -> Enforced {
        match self {
            Self::Builtin(_) => Enforced { summary: inside::ENFORCED, system_calls: inside::FILTERS_SYSTEM_CALLS },
            Self::Command(_) => Enforced {
                summary: "the command isolates scripts; Turnwheel limits time and output, and kills its process group",
                system_calls: false,
            },
            Self::None(reason) => Enforced { summary: reason, system_calls: false },
        }
    }
}

/// The arguments with which the child limits itself before it reads.
fn builtin_args(settings: &Python) -> Vec<String> {
    let memory = settings.memory_mb * 1024 * 1024;
    let seconds = settings.timeout.0.as_secs() + 2;
    vec![RUNNER_COMMAND.to_owned(), memory.to_string(), seconds.to_string()]
}

/// The running executable, if it serves scripts.
fn own_program() -> Option<PathBuf> {
    if !inside::serves() {
        return None;
    }
    // On Linux the link of the process itself: it leads to the same build, even if the file was replaced meanwhile.
    let link = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && link.exists() { Some(link.to_owned()) } else { std::env::current_exe().ok() }
}

/// The file of a command, by `PATH`. The child's environment is not used for that.
fn found(name: &str, env: &Environment) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    let folders = env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin").split(':');
    folders.map(|folder| Path::new(folder).join(name)).find(|path| path.is_file()).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(runner: PythonRunner, command: &[&str]) -> Python {
        Python { runner, command: command.iter().map(|part| (*part).to_owned()).collect(), ..Python::default() }
    }

    #[test]
    fn a_missing_runner_names_its_remedy() {
        let env = Environment::default();
        let reason = |settings: &Python| {
            let error = Runner::new(settings, None, &env).program().unwrap_err();
            assert_eq!(error.code(), "SANDBOX_UNAVAILABLE");
            error.to_string()
        };
        assert!(reason(&settings(PythonRunner::Off, &[])).starts_with("sandbox not configured"));
        // The test's own executable serves no scripts.
        assert!(reason(&settings(PythonRunner::Builtin, &[])).contains("python.runner"));
    }

    #[test]
    fn a_command_gets_few_variables() {
        let env: Environment = [("PATH", "/nowhere:/bin"), ("HOME", "/h"), ("SECRET", "x")].into_iter().collect();
        let runner = Runner::new(&settings(PythonRunner::Command, &["sh", "-c"]), None, &env);
        let program = runner.program().unwrap();
        assert_eq!((program.path.to_str(), program.args.as_slice()), (Some("/bin/sh"), &["-c".to_owned()][..]));
        let names: Vec<_> = program.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "HOME"]);
    }
}
