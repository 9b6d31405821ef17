//! The sequence of faults, with times and durations, drawn from the seed alone.

use super::SCENE_DURATION;
use super::kind::{Fault, Harm};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// A fault in the sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) gap: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
    /// Random number that picks the victim.
    pub(super) lot: usize,
}

/// Endless iterator over the faults of a run.
pub(super) struct Plans {
    rng: StdRng,
    among: Vec<Fault>,
    replicated: bool,
    /// Time of the last fault, from the beginning of the run.
    at: Duration,
}

impl Plans {
    /// Draws from `among`, or from all faults if it is empty. `replicated`: there are several NATS servers. `can_cut`:
    /// this machine can cut a server off from the others.
    pub(super) fn new(seed: u64, among: &[Fault], replicated: bool, can_cut: bool) -> Self {
        let named = |fault: &Fault| among.is_empty() || among.contains(fault);
        let all = Fault::ALL.iter().map(|(fault, _)| *fault);
        let can = |fault: &Fault| (replicated || !fault.needs_replicas()) && (can_cut || fault.harm() != Harm::CutOff);
        let among = all.filter(|fault| named(fault) && can(fault)).collect();
        Self { rng: StdRng::seed_from_u64(seed), among, replicated, at: Duration::ZERO }
    }

    /// Whether a fault may happen in this scene. Servers suffer in even scenes only, unless all possible faults hit
    /// servers.
    fn is_possible(&self, fault: Fault, scene: u64) -> bool {
        let only_servers = self.among.iter().all(|fault| fault.hits_servers());
        self.among.contains(&fault) && (!fault.hits_servers() || scene.is_multiple_of(2) || only_servers)
    }
}

impl Iterator for Plans {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        let gap = Duration::from_millis(self.rng.random_range(300..3_500));
        self.at += gap;
        let scene = self.at.as_secs() / SCENE_DURATION.as_secs();
        let possible: Vec<(Fault, u32)> =
            Fault::ALL.into_iter().filter(|(fault, _)| self.is_possible(*fault, scene)).collect();
        let (fault, _) = *possible.choose_weighted(&mut self.rng, |(_, weight)| *weight).ok()?;
        let lasts = Duration::from_millis(self.rng.random_range(fault.lasts(self.replicated)));
        Some(Plan { gap, fault, lasts, lot: self.rng.random_range(0..1_000) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(seed: u64, among: &[Fault], replicated: bool) -> Vec<Plan> {
        Plans::new(seed, among, replicated, true).take(400).collect()
    }

    #[test]
    fn the_seed_says_what_happens() {
        assert_eq!(plans(5, &[], true), plans(5, &[], true));
        assert_ne!(plans(5, &[], true), plans(6, &[], true));
        for (fault, _) in Fault::ALL {
            assert!(plans(5, &[], true).iter().any(|plan| plan.fault == fault), "{fault}");
            let alone = plans(5, &[], false).iter().any(|plan| plan.fault == fault);
            assert_ne!(alone, fault.needs_replicas(), "{fault} with one NATS server");
            assert_eq!(fault.as_str().parse::<Fault>().unwrap(), fault);
        }
        assert!(plans(5, &[Fault::NatsKill], false).iter().all(|plan| plan.fault == Fault::NatsKill));
        let two = [Fault::NatsKill, Fault::WorkerKill];
        assert!(plans(5, &two, false).iter().any(|plan| plan.fault == Fault::WorkerKill));
        assert!("flood".parse::<Fault>().unwrap_err().to_string().contains("worker-kill"));
    }
}
