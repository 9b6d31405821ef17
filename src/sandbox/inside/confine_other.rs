//! Limits that the process sets for itself on systems other than Linux.

use rustix::process::{Resource, Rlimit, setrlimit};

/// The limits in words.
pub(crate) const ENFORCED: &str = "own process, time and output limited; this system has no filter of system calls, and \
                                   may ignore the limit of memory. The interpreter itself has no files, network or \
                                   environment";
/// True if the kernel refuses system calls.
pub(crate) const FILTERS_SYSTEM_CALLS: bool = false;

/// The limits of this process.
pub(super) struct Confined;

impl Confined {
    /// No effect: these systems do not keep the limit.
    #[allow(clippy::unused_self, reason = "the same interface as on Linux")]
    pub(super) fn lower_memory(&self, _memory: u64) {}
}

/// Limits time and files. There is no filter of system calls.
pub(super) fn confine(_memory: u64, seconds: u64) -> Result<Confined, String> {
    for (resource, most) in [(Resource::Cpu, seconds), (Resource::Nofile, 3), (Resource::Fsize, 0), (Resource::Core, 0)]
    {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|error| format!("the limit {resource:?} was refused: {error}"))?;
    }
    Ok(Confined)
}
