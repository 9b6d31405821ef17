//! Keeps skills and tools from calling into the operator's own network, unless `http.allow_private` says so.
//!
//! Names are judged by the addresses that they resolve to, at the moment of connecting: a name that changes its answer
//! between a check and the connection gains nothing.

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use thiserror::Error;
use url::{Host, Url};

/// A call to an address that is not public.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{host}` is a private address ({address}); to let skills and tools call it, add it to `http.allow_private`")]
pub struct PrivateTarget {
    /// As the address names it.
    pub host: String,
    /// What it resolves to.
    pub address: IpAddr,
}

/// An entry of `http.allow_private` that is neither a host nor a range.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` in `http.allow_private` is neither a host name, an address, a range such as `10.0.0.0/8`, nor `*`")]
pub struct BadEntry(pub String);

/// Which private targets may be called.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    all: bool,
    hosts: Vec<String>,
    ranges: Vec<IpNet>,
}

impl Guard {
    /// Reads `http.allow_private`.
    pub fn new(allow_private: &[String]) -> Result<Self, BadEntry> {
        let mut guard = Self::default();
        for entry in allow_private {
            let text = entry.trim().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
            if text == "*" {
                guard.all = true;
            } else if let Ok(range) = text.parse::<IpNet>() {
                guard.ranges.push(range);
            } else if let Ok(address) = text.parse::<IpAddr>() {
                guard.ranges.push(address.into());
            } else if !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "/:*@".contains(c)) {
                guard.hosts.push(text);
            } else {
                return Err(BadEntry(entry.clone()));
            }
        }
        Ok(guard)
    }

    /// Checks an address that is written as numbers; names are checked when they are resolved.
    pub fn check(&self, url: &Url) -> Result<(), PrivateTarget> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        self.admits(address).then_some(()).ok_or_else(|| PrivateTarget { host: address.to_string(), address })
    }

    fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.all || !is_private(address) || self.ranges.iter().any(|range| range.contains(&address))
    }

    fn knows(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.all || self.hosts.contains(&host)
    }

    /// Of the addresses that `host` resolves to, those that may be called.
    fn filter(&self, host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, PrivateTarget> {
        if self.knows(host) {
            return Ok(found);
        }
        let refused = found.iter().map(SocketAddr::ip).find(|address| !self.admits(*address));
        let admitted: Vec<_> = found.into_iter().filter(|address| self.admits(address.ip())).collect();
        match refused {
            Some(address) if admitted.is_empty() => Err(PrivateTarget { host: host.to_owned(), address }),
            _ => Ok(admitted),
        }
    }
}

/// Resolves names and leaves out what the guard does not admit.
pub struct GuardedResolver(pub Arc<Guard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let admitted: Addrs = Box::new(guard.filter(name.as_str(), found)?.into_iter());
            Ok(admitted)
        })
    }
}

/// True for every address that is not a public host's.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local() // holds the clouds' metadata address
        || address.is_documentation()
        || a == 0
        || a >= 224 // multicast, reserved, broadcast
        || (a == 100 && b & 0xc0 == 64) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xfe == 18) // benchmarks
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // Addresses that carry an IPv4 address are as private as that one: mapped and compatible, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => is_private_v4(embedded(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_private_v4(embedded(high, low)),
        [0x64, 0xff9b, 1, ..] => true,
        [0x2002, high, low, ..] => is_private_v4(embedded(high, low)),
        [0x2001, 0xdb8, ..] => true,
        // Only 2000::/3 is global unicast; the rest is local, multicast or unassigned.
        _ => s[0] & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> Guard {
        Guard::new(&allow.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn private_addresses_are_refused_however_they_are_written() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0.0.0.0/",
            "http://10.1.2.3/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://100.100.100.200/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[64:ff9b::a00:1]/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]/",
        ] {
            let error = guard(&[]).check(&Url::parse(url).unwrap()).unwrap_err();
            assert!(error.to_string().contains("`http.allow_private`"), "{url}: {error}");
        }
        for url in ["http://8.8.8.8/", "http://[2606:4700::1111]/", "http://example.com/"] {
            guard(&[]).check(&Url::parse(url).unwrap()).unwrap();
        }
    }

    #[test]
    fn ranges_hosts_and_the_star_admit() {
        let url = Url::parse("http://10.1.2.3/").unwrap();
        guard(&["10.0.0.0/8"]).check(&url).unwrap();
        guard(&["10.1.2.3"]).check(&url).unwrap();
        guard(&["*"]).check(&url).unwrap();
        guard(&["192.168.0.0/16", "crm.internal"]).check(&url).unwrap_err();
        let found = vec!["10.1.2.3:0".parse().unwrap()];
        assert_eq!(guard(&["CRM.internal"]).filter("crm.internal", found.clone()).unwrap(), found);
        assert_eq!(guard(&[]).filter("crm.internal", found).unwrap_err().host, "crm.internal");
    }

    #[test]
    fn of_mixed_answers_only_the_public_ones_are_used() {
        let public: SocketAddr = "8.8.8.8:0".parse().unwrap();
        let found = vec!["127.0.0.1:0".parse().unwrap(), public];
        assert_eq!(guard(&[]).filter("rebind.example", found).unwrap(), [public]);
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        for entry in ["10.0.0.0/99", "host:8080", "http://x", "", "*.internal"] {
            assert!(Guard::new(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
