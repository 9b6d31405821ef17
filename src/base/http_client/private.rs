//! Keeps skills and tools from calling into the operator's own network, unless `http.allow_private` permits it.
//!
//! A name is checked by the addresses that it resolves to when the connection is made. A name that resolves differently
//! between a check and the connection gains nothing.

use futures::future::BoxFuture;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use thiserror::Error;
use url::{Host, Url};

/// A call to an address that is not public.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{host}` is a private address ({address}); to let skills and tools call it, add it to `http.allow_private`")]
pub struct PrivateTarget {
    /// The host as the URL has it.
    pub host: String,
    /// The private address that it resolves to.
    pub address: IpAddr,
}

/// An invalid entry of `http.allow_private`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` in `http.allow_private` is neither a host name, an address, a range such as `10.0.0.0/8`, nor `*`")]
pub struct BadEntry(pub String);

/// Decides which private addresses may be called.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    all: bool,
    hosts: Vec<String>,
    ranges: Vec<IpNet>,
}

impl Guard {
    /// Parses `http.allow_private`.
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
            } else {
                guard.name(&text).ok_or_else(|| BadEntry(entry.clone()))?;
            }
        }
        Ok(guard)
    }

    /// Adds a host in the form that URLs have: `内网.example` becomes `xn--…`, and `127.1` becomes `127.0.0.1`.
    fn name(&mut self, text: &str) -> Option<()> {
        match Host::parse(text).ok()? {
            Host::Domain(name) if name.contains(|c: char| c.is_whitespace() || "/:*@".contains(c)) => return None,
            Host::Domain(name) => self.hosts.push(name.trim_end_matches('.').to_ascii_lowercase()),
            Host::Ipv4(address) => self.ranges.push(IpAddr::V4(address).into()),
            Host::Ipv6(address) => self.ranges.push(IpAddr::V6(address).into()),
        }
        Some(())
    }

    /// Checks a URL whose host is an IP address. Names pass here, and are checked when they are resolved.
    pub fn check(&self, url: &Url) -> Result<(), PrivateTarget> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        self.admits(address).then_some(()).ok_or_else(|| PrivateTarget { host: address.to_string(), address })
    }

    /// The host of a URL if it is a private IP address or `localhost` and may not be called.
    pub fn refuses(&self, url: &Url) -> Option<String> {
        match url.host()? {
            Host::Domain(name) if name == "localhost" || name.ends_with(".localhost") => {
                let loopback = self.admits(Ipv4Addr::LOCALHOST.into()) || self.admits(Ipv6Addr::LOCALHOST.into());
                (!self.knows(name) && !loopback).then(|| name.to_owned())
            }
            _ => self.check(url).err().map(|refused| refused.host),
        }
    }

    fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.all || !is_private(address) || self.ranges.iter().any(|range| range.contains(&address))
    }

    fn knows(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.all || self.hosts.contains(&host)
    }

    /// Removes the addresses of `host` that may not be called. Fails if none remains.
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

/// Resolves a name to its addresses.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Resolves names and removes the addresses that the guard does not permit. The client connects to the returned
/// addresses without resolving the name again.
pub struct GuardedResolver {
    guard: Arc<Guard>,
    lookup: Lookup,
}

impl GuardedResolver {
    /// Resolves with the system's resolver.
    pub fn new(guard: Arc<Guard>) -> Self {
        let system = |name: String| async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) };
        Self::with_lookup(guard, Arc::new(move |name| Box::pin(system(name))))
    }

    /// Resolves with another resolver, for tests.
    pub fn with_lookup(guard: Arc<Guard>, lookup: Lookup) -> Self {
        Self { guard, lookup }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, found) = (Arc::clone(&self.guard), (self.lookup)(name.as_str().to_owned()));
        Box::pin(async move {
            let admitted: Addrs = Box::new(guard.filter(name.as_str(), found.await?)?.into_iter());
            Ok(admitted)
        })
    }
}

/// True for every address that is not that of a public host.
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
        || address.is_link_local() // includes the metadata address of cloud providers
        || address.is_documentation()
        || a == 0
        || a >= 224 // multicast, reserved, broadcast
        || (a == 100 && b & 0xc0 == 64) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99) // deprecated 6to4 relays
        || (a == 198 && b & 0xfe == 18) // benchmarks
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // An address that embeds an IPv4 address is as private as the IPv4 address: mapped and compatible, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => is_private_v4(embedded(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_private_v4(embedded(high, low)),
        [0x64, 0xff9b, 1, ..] => true,
        [0x2002, high, low, ..] => is_private_v4(embedded(high, low)),
        // Teredo and other protocol assignments (2001::/23), and documentation.
        [0x2001, ..=0x1ff | 0xdb8, ..] | [0x3fff, ..=0xfff, ..] => true,
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
            "http://0177.0.0.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.0.1./",
            "http://①②⑦.0.0.1/",
            "http://127。0。0。1/",
            "http://user:8.8.8.8@10.0.0.1/",
            "http://255.255.255.255/",
            "http://224.0.0.1/",
            "http://198.18.0.1/",
            "http://192.0.0.8/",
            "http://192.88.99.1/",
            "http://[::]/",
            "http://[::127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[64:ff9b:1::1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
            "http://[2001:db8::1]/",
            "http://[3fff::1]/",
            "http://[fec0::1]/",
            "http://[ff02::1]/",
            "http://[100::1]/",
        ] {
            let error = guard(&[]).check(&Url::parse(url).unwrap()).unwrap_err();
            assert!(error.to_string().contains("`http.allow_private`"), "{url}: {error}");
        }
        for url in
            ["http://8.8.8.8/", "http://[2606:4700::1111]/", "http://[2001:4860:4860::8888]/", "http://example.com/"]
        {
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
        assert_eq!(guard(&["crm.internal."]).filter("CRM.internal.", found.clone()).unwrap(), found);
        assert_eq!(guard(&[]).filter("crm.internal", found.clone()).unwrap_err().host, "crm.internal");
        for other in ["internal", "m.internal", "crm.internal.example", "xcrm.internal"] {
            guard(&["crm.internal"]).filter(other, found.clone()).unwrap_err();
        }
    }

    #[test]
    fn entries_open_exactly_what_they_say() {
        let allowed = |entries: &[&str], url: &str| guard(entries).check(&Url::parse(url).unwrap()).is_ok();
        assert!(allowed(&["10.1.0.0/16"], "http://10.1.255.255/") && !allowed(&["10.1.0.0/16"], "http://10.2.0.0/"));
        assert!(allowed(&["127.1"], "http://127.0.0.1/") && !allowed(&["127.1"], "http://127.0.0.2/"));
        assert!(allowed(&["10.0.0.0/8"], "http://[::ffff:10.0.0.1]/"), "a mapped address counts as the IPv4 address");
        assert!(!allowed(&["10.0.0.0/8"], "http://[64:ff9b::a00:1]/"), "an address that NAT64 translates does not");
        assert!(allowed(&["[::1]"], "http://[::1]/") && !allowed(&["[::1]"], "http://127.0.0.1/"));
        assert!(!allowed(&["localhost"], "http://127.0.0.1/"), "a name permits no IP address");
        let found: Vec<SocketAddr> = vec!["10.1.2.3:0".parse().unwrap()];
        assert!(guard(&["内网.example"]).filter("xn--v6q792i.example", found).is_ok());
    }

    #[test]
    fn of_mixed_answers_only_the_public_ones_are_used() {
        let public: SocketAddr = "8.8.8.8:0".parse().unwrap();
        let found = vec!["127.0.0.1:0".parse().unwrap(), public];
        assert_eq!(guard(&[]).filter("rebind.example", found).unwrap(), [public]);
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        for entry in ["10.0.0.0/99", "host:8080", "http://x", "", "*.internal", "a b", "user@host", "a..b/c"] {
            assert!(Guard::new(&[entry.to_owned()]).is_err(), "{entry}");
        }
    }
}
