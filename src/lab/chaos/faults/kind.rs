//! The kinds of faults, with name, weight, duration, harm and victim.

use crate::chaos::error::ChaosError;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A fault that a run can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker.
    WorkerKill,
    /// SIGSTOP to a worker and SIGCONT later, often after its leases have expired.
    WorkerPause,
    /// SIGKILL to all workers.
    WorkersKill,
    /// SIGTERM to each worker in turn. Each is restarted before the next one stops.
    WorkersRolling,
    /// SIGKILL to a scheduler.
    SchedulerKill,
    /// SIGSTOP to a scheduler, SIGCONT later.
    SchedulerPause,
    /// SIGKILL to the gateway.
    GatewayKill,
    /// An orderly restart of NATS; in a cluster, of the leader.
    NatsRestart,
    /// SIGKILL to NATS; in a cluster, to the leader.
    NatsKill,
    /// SIGSTOP to NATS and SIGCONT later; in a cluster, to the leader.
    NatsPause,
    /// The leader of a stream or of the consumer steps down.
    NatsStepDown,
    /// SIGKILL to a NATS server that is not the leader.
    NatsFollowerKill,
    /// SIGSTOP to a NATS server that is not the leader, SIGCONT later.
    NatsFollowerPause,
    /// A NATS server cannot reach the others, but clients can reach it.
    NatsCutOff,
    /// An orderly restart of each NATS server in turn.
    NatsRolling,
    /// MongoDB's primary steps down.
    MongodbStepDown,
    /// SIGKILL to MongoDB's primary.
    MongodbKill,
    /// SIGSTOP to MongoDB's primary and SIGCONT later, often after the election of another primary.
    MongodbPause,
    /// SIGKILL to a secondary.
    MongodbSecondaryKill,
    /// SIGSTOP to a secondary, SIGCONT later.
    MongodbSecondaryPause,
    /// A member of the replica set cannot reach the others, but clients can reach it.
    MongodbCutOff,
    /// An orderly restart of each member in turn.
    MongodbRolling,
}

/// The victim of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Worker,
    AllWorkers,
    Scheduler,
    Gateway,
    Nats(MemberChoice),
    Mongodb(MemberChoice),
}

/// A choice among the servers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberChoice {
    Leader,
    Follower,
    Any,
    All,
}

/// The harm of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    Kill,
    Pause,
    Restart,
    HandOver,
    CutOff,
    Rolling,
}

impl Fault {
    /// All faults with their relative frequency.
    pub(super) const ALL: [(Self, u32); 22] = [
        (Self::WorkerKill, 8),
        (Self::WorkerPause, 4),
        (Self::WorkersKill, 1),
        (Self::WorkersRolling, 1),
        (Self::SchedulerKill, 2),
        (Self::SchedulerPause, 1),
        (Self::GatewayKill, 2),
        (Self::NatsRestart, 2),
        (Self::NatsKill, 2),
        (Self::NatsPause, 1),
        (Self::NatsStepDown, 2),
        (Self::NatsFollowerKill, 1),
        (Self::NatsFollowerPause, 1),
        (Self::NatsCutOff, 2),
        (Self::NatsRolling, 1),
        (Self::MongodbStepDown, 2),
        (Self::MongodbKill, 2),
        (Self::MongodbPause, 1),
        (Self::MongodbSecondaryKill, 1),
        (Self::MongodbSecondaryPause, 1),
        (Self::MongodbCutOff, 2),
        (Self::MongodbRolling, 1),
    ];

    /// The fault's name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkerKill => "worker-kill",
            Self::WorkerPause => "worker-pause",
            Self::WorkersKill => "workers-kill",
            Self::WorkersRolling => "workers-rolling",
            Self::SchedulerKill => "scheduler-kill",
            Self::SchedulerPause => "scheduler-pause",
            Self::GatewayKill => "gateway-kill",
            Self::NatsRestart => "nats-restart",
            Self::NatsKill => "nats-kill",
            Self::NatsPause => "nats-pause",
            Self::NatsStepDown => "nats-step-down",
            Self::NatsFollowerKill => "nats-follower-kill",
            Self::NatsFollowerPause => "nats-follower-pause",
            Self::NatsCutOff => "nats-cut-off",
            Self::NatsRolling => "nats-rolling",
            Self::MongodbStepDown => "mongodb-step-down",
            Self::MongodbKill => "mongodb-kill",
            Self::MongodbPause => "mongodb-pause",
            Self::MongodbSecondaryKill => "mongodb-secondary-kill",
            Self::MongodbSecondaryPause => "mongodb-secondary-pause",
            Self::MongodbCutOff => "mongodb-cut-off",
            Self::MongodbRolling => "mongodb-rolling",
        }
    }

    /// The names of all faults.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(fault, _)| fault.as_str()).collect()
    }

    pub(super) const fn whom(self) -> Whom {
        match self {
            Self::WorkerKill | Self::WorkerPause => Whom::Worker,
            Self::WorkersKill | Self::WorkersRolling => Whom::AllWorkers,
            Self::SchedulerKill | Self::SchedulerPause => Whom::Scheduler,
            Self::GatewayKill => Whom::Gateway,
            Self::NatsRestart | Self::NatsKill | Self::NatsPause | Self::NatsStepDown => {
                Whom::Nats(MemberChoice::Leader)
            }
            Self::NatsFollowerKill | Self::NatsFollowerPause => Whom::Nats(MemberChoice::Follower),
            Self::NatsCutOff => Whom::Nats(MemberChoice::Any),
            Self::NatsRolling => Whom::Nats(MemberChoice::All),
            Self::MongodbStepDown | Self::MongodbKill | Self::MongodbPause => Whom::Mongodb(MemberChoice::Leader),
            Self::MongodbSecondaryKill | Self::MongodbSecondaryPause => Whom::Mongodb(MemberChoice::Follower),
            Self::MongodbCutOff => Whom::Mongodb(MemberChoice::Any),
            Self::MongodbRolling => Whom::Mongodb(MemberChoice::All),
        }
    }

    pub(super) const fn harm(self) -> Harm {
        match self {
            Self::WorkerKill | Self::WorkersKill | Self::SchedulerKill | Self::GatewayKill => Harm::Kill,
            Self::NatsKill | Self::NatsFollowerKill | Self::MongodbKill | Self::MongodbSecondaryKill => Harm::Kill,
            Self::WorkerPause | Self::SchedulerPause => Harm::Pause,
            Self::NatsPause | Self::NatsFollowerPause | Self::MongodbPause | Self::MongodbSecondaryPause => Harm::Pause,
            Self::NatsRestart => Harm::Restart,
            Self::NatsStepDown | Self::MongodbStepDown => Harm::HandOver,
            Self::NatsCutOff | Self::MongodbCutOff => Harm::CutOff,
            Self::WorkersRolling | Self::NatsRolling | Self::MongodbRolling => Harm::Rolling,
        }
    }

    /// True if the victim is a server of NATS or MongoDB.
    pub(super) const fn hits_servers(self) -> bool {
        matches!(self.whom(), Whom::Nats(_) | Whom::Mongodb(_))
    }

    /// True if the fault needs several NATS servers, and proxies between the servers.
    pub(crate) const fn needs_replicas(self) -> bool {
        match self {
            Self::NatsStepDown | Self::NatsFollowerKill | Self::NatsFollowerPause | Self::NatsCutOff => true,
            Self::NatsRolling | Self::MongodbCutOff => true,
            Self::WorkerKill | Self::WorkerPause | Self::WorkersKill | Self::WorkersRolling | Self::GatewayKill => {
                false
            }
            Self::SchedulerKill | Self::SchedulerPause | Self::NatsRestart | Self::NatsKill | Self::NatsPause => false,
            Self::MongodbStepDown | Self::MongodbKill | Self::MongodbPause | Self::MongodbSecondaryKill => false,
            Self::MongodbSecondaryPause | Self::MongodbRolling => false,
        }
    }

    /// Duration of the fault in milliseconds. With `replicated`, the other NATS servers continue meanwhile.
    pub(super) const fn lasts(self, replicated: bool) -> Range<u64> {
        match (self.harm(), self.whom()) {
            (Harm::HandOver | Harm::Rolling, _) => 0..1,
            // Around the six seconds of a lease: some processes resume before it expires, some after it.
            (Harm::Pause, Whom::Worker | Whom::Scheduler) => 1_000..14_000,
            (_, Whom::Mongodb(_)) => 500..8_000,
            // Some of these outages are long enough for NATS to elect another leader, some are not.
            (_, Whom::Nats(_)) if replicated => 500..12_000,
            (_, Whom::Nats(_)) => 0..4_000,
            (_, Whom::Worker | Whom::AllWorkers | Whom::Scheduler | Whom::Gateway) => 0..5_000,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl FromStr for Fault {
    type Err = ChaosError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().map(|(fault, _)| *fault).find(|fault| fault.as_str() == text);
        known.ok_or_else(|| ChaosError::UnknownFault(text.to_owned(), Self::names().join(", ")))
    }
}
