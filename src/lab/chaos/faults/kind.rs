//! Every kind of fault, with its name, its weight, its duration, its harm and its victims.

use crate::chaos::error::ChaosError;
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker.
    WorkerKill,
    /// SIGSTOP to a worker, SIGCONT later: often after its leases are gone.
    WorkerPause,
    /// SIGKILL to all workers.
    WorkersKill,
    /// SIGTERM to one worker after the other, each started again before the next one ends.
    WorkersRolling,
    /// SIGKILL to a scheduler.
    SchedulerKill,
    /// SIGSTOP to a scheduler, SIGCONT later.
    SchedulerPause,
    /// SIGKILL to the gateway.
    GatewayKill,
    /// An orderly restart of NATS, in a cluster of the leader.
    NatsRestart,
    /// SIGKILL to NATS, in a cluster to the leader.
    NatsKill,
    /// SIGSTOP to NATS, in a cluster to the leader; SIGCONT later.
    NatsPause,
    /// A stream's or the consumer's leader hands over.
    NatsStepDown,
    /// SIGKILL to a NATS server that does not lead.
    NatsFollowerKill,
    /// SIGSTOP to a NATS server that does not lead, SIGCONT later.
    NatsFollowerPause,
    /// A NATS server cannot reach the others; clients reach it.
    NatsCutOff,
    /// An orderly restart of one NATS server after the other.
    NatsRolling,
    /// MongoDB's primary hands over.
    MongodbStepDown,
    /// SIGKILL to MongoDB's primary.
    MongodbKill,
    /// SIGSTOP to MongoDB's primary, SIGCONT later: often after another one was elected.
    MongodbPause,
    /// SIGKILL to a secondary.
    MongodbSecondaryKill,
    /// SIGSTOP to a secondary, SIGCONT later.
    MongodbSecondaryPause,
    /// A member of the replica set cannot reach the others; clients reach it.
    MongodbCutOff,
    /// An orderly restart of one member after the other.
    MongodbRolling,
}

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Worker,
    AllWorkers,
    Scheduler,
    Gateway,
    Nats(Member),
    Mongodb(Member),
}

/// Which of a group of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
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
    /// All, with how often each comes in comparison.
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

    /// Its name on the command line.
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

    /// All names.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(fault, _)| fault.as_str()).collect()
    }

    pub(super) const fn whom(self) -> Whom {
        match self {
            Self::WorkerKill | Self::WorkerPause => Whom::Worker,
            Self::WorkersKill | Self::WorkersRolling => Whom::AllWorkers,
            Self::SchedulerKill | Self::SchedulerPause => Whom::Scheduler,
            Self::GatewayKill => Whom::Gateway,
            Self::NatsRestart | Self::NatsKill | Self::NatsPause | Self::NatsStepDown => Whom::Nats(Member::Leader),
            Self::NatsFollowerKill | Self::NatsFollowerPause => Whom::Nats(Member::Follower),
            Self::NatsCutOff => Whom::Nats(Member::Any),
            Self::NatsRolling => Whom::Nats(Member::All),
            Self::MongodbStepDown | Self::MongodbKill | Self::MongodbPause => Whom::Mongodb(Member::Leader),
            Self::MongodbSecondaryKill | Self::MongodbSecondaryPause => Whom::Mongodb(Member::Follower),
            Self::MongodbCutOff => Whom::Mongodb(Member::Any),
            Self::MongodbRolling => Whom::Mongodb(Member::All),
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

    /// True when queue or store suffer.
    pub(super) const fn hits_servers(self) -> bool {
        matches!(self.whom(), Whom::Nats(_) | Whom::Mongodb(_))
    }

    /// True when it needs several servers of NATS, and proxies between the servers.
    pub const fn needs_replicas(self) -> bool {
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

    /// For how long, in milliseconds; `replicated`: the other servers of NATS continue.
    pub(super) const fn lasts(self, replicated: bool) -> Range<u64> {
        match (self.harm(), self.whom()) {
            (Harm::HandOver | Harm::Rolling, _) => 0..1,
            // Around the six seconds of a lease: some wake up before its end, some after it.
            (Harm::Pause, Whom::Worker | Whom::Scheduler) => 1_000..14_000,
            (_, Whom::Mongodb(_)) => 500..8_000,
            // Longer than NATS takes to miss a leader, or not.
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
