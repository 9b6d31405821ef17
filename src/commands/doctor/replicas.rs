//! Checks of the number of replicas: compares the setting, the streams and the cluster.

use super::Finding;
use async_nats::ServerInfo;
use async_nats::jetstream::stream::Info;
use std::time::Duration;

/// The number of servers from which a cluster survives the failure of one.
const SAFE_REPLICAS: usize = 3;

/// How long a replica may be silent before it counts as offline. Each reports every second.
const OFFLINE_AFTER: Duration = Duration::from_secs(4);

/// The cluster, as a server describes it to its clients.
pub(super) struct Servers {
    clustered: bool,
    /// The number of server addresses that the server announces; 0 when it announces none (`no_advertise`).
    known: usize,
}

impl Servers {
    pub(super) fn known_to(server: &ServerInfo) -> Self {
        Self { clustered: server.cluster.is_some(), known: server.connect_urls.len() }
    }

    /// True when the cluster has enough servers for streams that survive the failure of one.
    fn are_safe(&self) -> bool {
        self.clustered && (self.known == 0 || self.known >= SAFE_REPLICAS)
    }

    fn named(&self) -> String {
        match self.known {
            _ if !self.clustered => "a server without a cluster".to_owned(),
            0 => "a cluster".to_owned(),
            known => format!("a cluster with {known} servers up"),
        }
    }
}

/// Reports a setting that the servers cannot fulfil.
pub(super) fn of_setting(replicas: usize, servers: &Servers) -> Option<Finding> {
    let room = match servers.known {
        _ if !servers.clustered => 1,
        0 => return None,
        known => known,
    };
    (replicas > room).then(|| {
        let what = format!("it is {replicas}, but nats.url names {}: no stream can be created", servers.named());
        let remedy = format!("set nats.replicas to 1, or run NATS as a cluster of {replicas} servers");
        Finding::problem("nats.replicas", what, remedy)
    })
}

/// Reports a stream that has another number of replicas than the setting.
pub(super) fn differs(stream: &str, found: &str, wanted: &str) -> Finding {
    let what = format!("it has {found} replicas, and nats.replicas is {wanted}");
    let remedy = format!("`nats stream edit {stream} --replicas {wanted}`, or set nats.replicas = {found}");
    Finding::problem(stream, what, remedy)
}

/// Reports a single replica where three are possible, and replicas that are offline or behind. `as_set` is true when
/// the number equals the setting.
pub(super) fn of_stream(info: &Info, as_set: bool, servers: &Servers) -> Vec<Finding> {
    let name = &info.config.name;
    let mut findings = Vec::new();
    if as_set && info.config.num_replicas <= 1 {
        let what = format!(
            "it has one replica on {}: it is unavailable while that server is down, and lost with its disk",
            servers.named()
        );
        let edit =
            format!("set nats.replicas = {SAFE_REPLICAS}, then `nats stream edit {name} --replicas {SAFE_REPLICAS}`");
        findings.push(match servers.are_safe() {
            true => Finding::problem(name, what, edit),
            false => Finding::advice(name, what, format!("run NATS as a cluster of {SAFE_REPLICAS} servers; {edit}")),
        });
    }
    let Some(group) = info.cluster.as_ref().filter(|_| info.config.num_replicas > 1) else { return findings };
    if group.leader.is_none() {
        let remedy = "start the servers that are down: a stream needs most of its replicas";
        findings.push(Finding::problem(name, "it has no leader: nothing can be published", remedy));
    }
    for peer in &group.replicas {
        if peer.offline || (!peer.current && peer.active > OFFLINE_AFTER) {
            let what = format!(
                "its replica on {} is offline, last seen {} s ago: the next server that fails may stop it",
                peer.name,
                peer.active.as_secs()
            );
            findings.push(Finding::problem(name, what, format!("start {}, or repair its network", peer.name)));
        } else if !peer.current {
            let what = format!("its replica on {} is {} operations behind", peer.name, peer.lag.unwrap_or_default());
            findings.push(Finding::advice(name, what, "wait until it has caught up before another server is stopped"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn servers(clustered: bool, known: usize) -> Servers {
        Servers { clustered, known }
    }

    #[test]
    fn a_setting_that_the_servers_cannot_fulfil_is_a_problem() {
        assert!(of_setting(1, &servers(false, 0)).is_none() && of_setting(3, &servers(true, 3)).is_none());
        let alone = of_setting(3, &servers(false, 0)).unwrap();
        assert!(alone.level == Level::Problem && alone.what.contains("without a cluster"), "{alone:?}");
        assert!(of_setting(5, &servers(true, 3)).unwrap().what.contains("a cluster with 3 servers up"));
        assert!(of_setting(5, &servers(true, 0)).is_none(), "the size of this cluster is unknown");
    }
}
