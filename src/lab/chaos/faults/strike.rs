//! Carries out one fault, from its beginning until it has healed.

use super::FaultContext;
use super::kind::{Harm, MemberChoice, Whom};
use super::plans::Plan;
use crate::chaos::process::ManagedProcess;
use crate::chaos::processes::SharedProcess;
use crate::chaos::servers::ServerGroup;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

/// Time limit for a worker to finish its turns after SIGTERM.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn strike(stage: &FaultContext, plan: Plan) {
    match plan.fault.whom() {
        Whom::Worker => {
            if let Some(worker) = spare_worker(stage, plan.lot) {
                process(stage, plan, worker, true).await;
            }
        }
        Whom::AllWorkers if plan.fault.harm() == Harm::Kill => kill_all_workers(stage, plan).await,
        Whom::AllWorkers => restart_workers(stage, plan).await,
        Whom::Scheduler => {
            let schedulers = &stage.processes.schedulers;
            if let Some(scheduler) = free(&schedulers[plan.lot % schedulers.len()]) {
                process(stage, plan, scheduler, false).await;
            }
        }
        Whom::Gateway => {
            if let Some(gateway) = free(&stage.processes.gateway) {
                process(stage, plan, gateway, false).await;
            }
        }
        Whom::Nats(whom) => group(stage, plan, &stage.nats, whom).await,
        Whom::Mongodb(whom) => group(stage, plan, &stage.mongo, whom).await,
    }
}

type Victim = OwnedMutexGuard<ManagedProcess>;

fn free(actor: &SharedProcess) -> Option<Victim> {
    Arc::clone(actor).try_lock_owned().ok()
}

/// A worker without a fault. `None` if no other worker could take over its turns.
fn spare_worker(stage: &FaultContext, lot: usize) -> Option<Victim> {
    let workers = &stage.processes.workers;
    let mut free: Vec<Victim> = workers.iter().filter_map(free).collect();
    if free.is_empty() || (free.len() == 1 && workers.len() > 1) {
        return None;
    }
    Some(free.swap_remove(lot % free.len()))
}

async fn process(stage: &FaultContext, plan: Plan, mut process: Victim, has_turns: bool) {
    if plan.fault.harm() == Harm::Pause {
        process.pause();
        stage.note(plan.fault, process.name());
        if let Some(pid) = process.pid().filter(|_| has_turns) {
            stage.recovery.paused(pid).await;
        }
        sleep(plan.lasts).await;
        process.resume();
    } else {
        kill(stage, plan, &mut process, has_turns).await;
        sleep(plan.lasts).await;
        stage.start_again(&mut process);
    }
}

async fn kill(stage: &FaultContext, plan: Plan, process: &mut ManagedProcess, has_turns: bool) {
    let (pid, since) = (process.pid(), Instant::now());
    process.kill().await;
    stage.note(plan.fault, process.name());
    if let Some(pid) = pid.filter(|_| has_turns) {
        stage.recovery.killed(pid, since).await;
    }
}

async fn kill_all_workers(stage: &FaultContext, plan: Plan) {
    let mut workers: Vec<Victim> = stage.processes.workers.iter().filter_map(free).collect();
    for worker in &mut workers {
        kill(stage, plan, worker, true).await;
    }
    sleep(plan.lasts).await;
    for worker in &mut workers {
        stage.start_again(worker);
    }
}

async fn restart_workers(stage: &FaultContext, plan: Plan) {
    for worker in &stage.processes.workers {
        let Some(mut worker) = free(worker) else { continue };
        stage.note(plan.fault, worker.name());
        worker.terminate(DRAIN_TIMEOUT).await;
        stage.start_again(&mut worker);
    }
}

/// Hits a server of a group, unless the group already suffers from another fault.
async fn group<G: ServerGroup>(stage: &FaultContext, plan: Plan, group: &Turnstile<G>, whom: MemberChoice) {
    let Ok(mut group) = group.try_lock() else { return };
    let Ok(leader) = group.leader(plan.lot).await else { return };
    let outage = stage.outages.start();
    if whom == MemberChoice::All {
        rolling(stage, plan, &mut *group).await;
    } else if let Some(victim) = victim(whom, leader, group.members().count(), plan.lot) {
        one(stage, plan, &mut *group, victim, leader).await;
    }
    // Waits until the group is complete before the next fault, so that a majority of the servers is always available.
    if let Err(error) = group.is_whole().await {
        stage.trouble(error.to_string());
    }
    drop(outage);
}

fn victim(whom: MemberChoice, leader: usize, count: usize, lot: usize) -> Option<usize> {
    let follower = || (count > 1).then(|| (leader + 1 + lot / 2 % (count - 1)) % count);
    match whom {
        MemberChoice::Leader => Some(leader),
        MemberChoice::Follower => follower(),
        MemberChoice::Any if lot.is_multiple_of(2) => Some(leader),
        MemberChoice::Any => follower(),
        MemberChoice::All => None,
    }
}

async fn one<G: ServerGroup>(stage: &FaultContext, plan: Plan, group: &mut G, victim: usize, leader: usize) {
    let back = Instant::now() + plan.lasts;
    let leads = if victim == leader && group.members().count() > 1 { " (leads)" } else { "" };
    stage.note(plan.fault, format!("{}{leads}", group.members().name(victim)));
    match plan.fault.harm() {
        Harm::Kill => group.members().kill(victim).await,
        Harm::Pause => group.members().pause(victim),
        Harm::CutOff => group.members().cut_off(victim),
        Harm::HandOver => group.hand_over(plan.lot).await,
        Harm::Restart | Harm::Rolling => group.members().stop(victim).await,
    }
    sleep(back.saturating_duration_since(Instant::now())).await;
    if let Err(error) = group.members().go_on(victim).await {
        stage.trouble(error.to_string());
    }
}

async fn rolling<G: ServerGroup>(stage: &FaultContext, plan: Plan, group: &mut G) {
    for member in 0..group.members().count() {
        stage.note(plan.fault, group.members().name(member));
        group.members().stop(member).await;
        let begun = group.members().go_on(member).await;
        let whole = group.is_whole().await;
        if let Err(error) = begun.and(whole) {
            stage.trouble(error.to_string());
            return;
        }
    }
}
