//! Limits that the process sets for itself on Linux, before it reads anything.

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The limits in words.
pub(crate) const ENFORCED: &str = "own process, system calls filtered (seccomp), memory, time and output limited, no \
                                   files, network or environment";
/// True if the kernel refuses system calls.
pub(crate) const FILTERS_SYSTEM_CALLS: bool = true;

/// System calls that an interpreter needs with any arguments. All others kill the process.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
];

/// The limits of this process.
pub(super) struct Confined {
    /// The size of the address space without the script.
    used: u64,
    /// The most memory in addition to it.
    memory: u64,
}

impl Confined {
    /// Lowers the limit of memory for one script. No effect if `memory` is more than the limit.
    pub(super) fn lower_memory(&self, memory: u64) {
        if memory < self.memory {
            let most = Some(self.used.saturating_add(memory));
            // Lowering a limit cannot be refused.
            setrlimit(Resource::As, Rlimit { current: most, maximum: most }).ok();
        }
    }
}

/// Limits memory, time and files, and lets the kernel kill the process at any system call besides a few. `memory` is in
/// addition to the memory that the process uses already.
pub(super) fn confine(memory: u64, seconds: u64) -> Result<Confined, String> {
    let used = address_space()?;
    let limits = [
        (Resource::As, used.saturating_add(memory), 0),
        (Resource::Cpu, seconds, 1),
        // Standard input, output and error are open; no further file can be.
        (Resource::Nofile, 3, 0),
        (Resource::Fsize, 0, 0),
        (Resource::Nproc, 0, 0),
        (Resource::Core, 0, 0),
    ];
    for (resource, most, above) in limits {
        let limit = Rlimit { current: Some(most), maximum: Some(most.saturating_add(above)) };
        setrlimit(resource, limit).map_err(|error| format!("the limit {resource:?} was refused: {error}"))?;
    }
    filter().map_err(|problem| format!("the filter of system calls (seccomp) was refused: {problem}"))?;
    Ok(Confined { used, memory })
}

/// The size of the process's address space in bytes.
fn address_space() -> Result<u64, String> {
    let read = std::fs::read_to_string("/proc/self/statm").map_err(|error| format!("/proc/self/statm: {error}"))?;
    let pages: Option<u64> = read.split(' ').next().and_then(|pages| pages.parse().ok());
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4_096);
    pages.map(|pages| pages * page).ok_or_else(|| "/proc/self/statm: no number".to_owned())
}

fn filter() -> Result<(), String> {
    let text = |error: &dyn Display| error.to_string();
    let number = |number: libc::c_int| u64::try_from(number).unwrap_or(u64::MAX);
    let rule = |arg, op, value| {
        let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value).map_err(|error| text(&error))?;
        SeccompRule::new(vec![condition]).map_err(|error| text(&error))
    };
    let equal = |arg, value| rule(arg, SeccompCmpOp::Eq, value);
    let own = u64::from(std::process::id());
    let not_executable = || rule(2, SeccompCmpOp::MaskedEq(number(libc::PROT_EXEC)), 0);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_read, vec![equal(0, 0)?]);
    for write in [libc::SYS_write, libc::SYS_writev] {
        rules.insert(write, vec![equal(0, 1)?, equal(0, 2)?]);
    }
    for map in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(map, vec![not_executable()?]);
    }
    // The own limits, which can only be lowered.
    rules.insert(libc::SYS_prlimit64, vec![equal(0, 0)?]);
    // An abort signals the own process.
    rules.insert(libc::SYS_tgkill, vec![equal(0, own)?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| text(&error))?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
    let program: BpfProgram =
        filter.map_err(|error| text(&error))?.try_into().map_err(|error: seccompiler::BackendError| text(&error))?;
    apply_filter(&program).map_err(|error| text(&error))
}
