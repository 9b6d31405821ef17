//! The secrets that agent files and workflows may send, each bound to the hosts that may receive it: the entries
//! `NAME@host[,host…]` of the setting `secrets.allow`.

use crate::host_pattern::HostPattern;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// The hosts that may receive a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretHosts {
    /// Every host: a bare name, with the setting `secrets.unbound`.
    Any,
    /// The hosts that any of these patterns covers.
    Only(Vec<HostPattern>),
}

impl SecretHosts {
    /// True if `host`, which is normalised as in a parsed URL, may receive the secret.
    pub fn covers(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(patterns) => patterns.iter().any(|pattern| pattern.covers(host)),
        }
    }

    fn add(&mut self, more: Self) {
        match (&mut *self, more) {
            (Self::Only(hosts), Self::Only(more)) => hosts.extend(more),
            (_, Self::Any) => *self = Self::Any,
            (Self::Any, Self::Only(_)) => {}
        }
    }
}

impl fmt::Display for SecretHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("every host"),
            Self::Only(patterns) if patterns.is_empty() => f.write_str("no host"),
            Self::Only(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(|pattern| format!("`{pattern}`")).collect();
                f.write_str(&patterns.join(", "))
            }
        }
    }
}

/// Why a secret is not sent.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}; {}", self.problem(), self.remedy())]
pub enum SecretRefusal {
    /// The setting does not list the name.
    NotListed {
        /// The name.
        name: String,
        /// The host that would receive it, if it is known.
        host: Option<String>,
    },
    /// The setting lists the name for other hosts.
    ForeignHost {
        /// The name.
        name: String,
        /// The host that would receive it.
        host: String,
        /// The hosts that may receive it.
        hosts: String,
    },
}

impl SecretRefusal {
    /// The problem, without the remedy.
    pub fn problem(&self) -> String {
        match self {
            Self::NotListed { name, .. } => format!("the secret `${{{name}}}` is not allowed"),
            Self::ForeignHost { name, host, hosts } => {
                format!(
                    "the secret `${{{name}}}` may not be sent to `{host}`: the setting `secrets.allow` binds it to {hosts}"
                )
            }
        }
    }

    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            Self::NotListed { name, host } => {
                let host = host.as_deref().unwrap_or("api.example.com");
                format!("add `{name}@{host}` to the setting `secrets.allow` (TURNWHEEL_SECRETS__ALLOW)")
            }
            Self::ForeignHost { name, host, .. } => {
                format!("call a host that it is for, or add `{name}@{host}` to the setting (TURNWHEEL_SECRETS__ALLOW)")
            }
        }
    }
}

/// Why an entry of `secrets.allow` is refused. The text is the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EntryProblem {
    /// The name is no name of an environment variable.
    #[error("write the name of an environment variable and its hosts, such as `ORDERS_TOKEN@api.example.com`")]
    Name,
    /// A bare name.
    #[error(
        "name the hosts that may receive it: `{0}@api.example.com`, or `{0}@api.example.com,api2.example.com`; \
         `secrets.unbound = true` (TURNWHEEL_SECRETS__UNBOUND) accepts names without hosts, which every agent and workflow \
         may then send to any host"
    )]
    Unbound(String),
    /// A host is no host.
    #[error("`{host}` is no host: {remedy}")]
    Host {
        /// The host as written.
        host: String,
        /// The remedy.
        remedy: String,
    },
    /// A host looks like the name of a secret, as in `A@a.example.com,B`.
    #[error("`{0}` looks like a name, but after a comma it is a further host; write `{0}@api.example.com`")]
    NameAsHost(String),
}

/// The secrets of the setting `secrets.allow` by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedSecrets(BTreeMap<String, SecretHosts>);

impl AllowedSecrets {
    /// Reads the entries. Entries with the same name add their hosts. Without `unbound` a bare name may be sent to no host.
    /// The problems have the entry that they are about.
    pub fn read(entries: &[String], unbound: bool) -> (Self, Vec<(String, EntryProblem)>) {
        let (mut allowed, mut problems) = (Self::default(), Vec::new());
        for entry in entries {
            match parse(entry) {
                Ok((name, hosts)) => {
                    let hosts = hosts.map_or(SecretHosts::Any, SecretHosts::Only);
                    let is_refused = hosts == SecretHosts::Any && !unbound;
                    if is_refused {
                        problems.push((entry.clone(), EntryProblem::Unbound(name.clone())));
                    }
                    let hosts = if is_refused { SecretHosts::Only(Vec::new()) } else { hosts };
                    allowed.add(name, hosts);
                }
                Err(problem) => problems.push((entry.clone(), problem)),
            }
        }
        (allowed, problems)
    }

    fn add(&mut self, name: String, hosts: SecretHosts) {
        match self.0.get_mut(&name) {
            Some(known) => known.add(hosts),
            None => drop(self.0.insert(name, hosts)),
        }
    }

    /// Adds the secrets and hosts of `other`.
    pub fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(name, hosts)| self.add(name, hosts));
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The hosts that may receive a secret; `None` if the setting does not list it.
    pub fn hosts(&self, name: &str) -> Option<&SecretHosts> {
        self.0.get(name)
    }

    /// One entry for each name and host, so that the entries of two processes can be compared.
    pub fn entries(&self) -> Vec<String> {
        let of_name = |(name, hosts): (&String, &SecretHosts)| match hosts {
            SecretHosts::Any => vec![name.clone()],
            SecretHosts::Only(patterns) => patterns.iter().map(|pattern| format!("{name}@{pattern}")).collect(),
        };
        self.0.iter().flat_map(of_name).collect()
    }

    /// Checks that `host`, which is normalised as in a parsed URL, may receive the secret. Without a host it checks the
    /// name alone.
    pub fn check(&self, name: &str, host: Option<&str>) -> Result<(), SecretRefusal> {
        let Some(hosts) = self.hosts(name) else {
            return Err(SecretRefusal::NotListed { name: name.to_owned(), host: host.map(str::to_owned) });
        };
        match host.filter(|host| !hosts.covers(host)) {
            Some(host) => Err(SecretRefusal::ForeignHost {
                name: name.to_owned(),
                host: host.to_owned(),
                hosts: hosts.to_string(),
            }),
            None => Ok(()),
        }
    }
}

/// Name and hosts of an entry; no hosts for a bare name.
fn parse(entry: &str) -> Result<(String, Option<Vec<HostPattern>>), EntryProblem> {
    let (name, hosts) = entry.split_once('@').map_or((entry, None), |(name, hosts)| (name, Some(hosts)));
    let name = name.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(legal) {
        return Err(EntryProblem::Name);
    }
    let hosts = hosts.map(|hosts| hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()).transpose()?;
    Ok((name.to_owned(), hosts))
}

fn host(text: &str) -> Result<HostPattern, EntryProblem> {
    let text = text.trim();
    // People write hosts in lower case, and the names of variables in upper case without a dot.
    if text.contains(|c: char| c.is_ascii_uppercase()) && !text.contains(|c: char| c.is_ascii_lowercase() || c == '.') {
        return Err(EntryProblem::NameAsHost(text.to_owned()));
    }
    HostPattern::parse(text).map_err(|remedy| EntryProblem::Host { host: text.to_owned(), remedy })
}

/// Splits a comma list of entries, as environment variables and flags have it. A part without `@` after a part with `@` is a
/// further host of that entry, so bare names come first.
pub fn split_entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match entries.last_mut().filter(|entry| entry.contains('@') && !part.contains('@')) {
            Some(entry) => entry.extend([",", part]),
            None => entries.push(part.to_owned()),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str], unbound: bool) -> (AllowedSecrets, Vec<(String, EntryProblem)>) {
        AllowedSecrets::read(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>(), unbound)
    }

    #[test]
    fn a_secret_is_for_its_hosts() {
        let (allowed, problems) = read(&["A@API.example.com, *.b.com", "A@c.com", "B"], true);
        assert_eq!(problems, []);
        for host in ["api.example.com", "x.b.com", "c.com"] {
            assert_eq!(allowed.check("A", Some(host)), Ok(()), "{host}");
        }
        for host in ["b.com", "api.example.com.evil.com", "evil.com"] {
            let refused = allowed.check("A", Some(host)).unwrap_err().to_string();
            assert!(
                ["`${A}`", host, "`secrets.allow`", "`c.com`"].iter().all(|part| refused.contains(part)),
                "{refused}"
            );
        }
        assert_eq!((allowed.check("A", None), allowed.check("B", Some("any.com"))), (Ok(()), Ok(())));
        assert!(allowed.check("C", Some("c.com")).unwrap_err().to_string().contains("add `C@c.com`"));
        assert_eq!(allowed.entries(), ["A@api.example.com", "A@*.b.com", "A@c.com", "B"]);
    }

    #[test]
    fn a_bare_name_is_refused_and_sent_nowhere() {
        let (allowed, problems) = read(&["A", "B@b.com"], false);
        assert_eq!(problems, [("A".to_owned(), EntryProblem::Unbound("A".into()))]);
        assert!(problems[0].1.to_string().contains("`A@api.example.com`"));
        assert!(problems[0].1.to_string().contains("secrets.unbound"));
        assert!(allowed.check("A", Some("b.com")).unwrap_err().to_string().contains("no host"));
    }

    #[test]
    fn illegal_entries_are_refused() {
        for (entry, part) in [
            ("", "name of an environment variable"),
            ("1A@b.com", "name of an environment variable"),
            ("A-B@b.com", "name of an environment variable"),
            ("A@", "is no host"),
            ("A@b.com:80", "is no host"),
            ("A@https://b.com", "is no host"),
            ("A@b.com,CRM_TOKEN", "`CRM_TOKEN@api.example.com`"),
        ] {
            let (_, problems) = read(&[entry], true);
            assert!(problems.len() == 1 && problems[0].1.to_string().contains(part), "{entry}: {problems:?}");
        }
    }

    #[test]
    fn a_comma_list_continues_the_entry_before() {
        assert_eq!(split_entries(" A@a.com, b.com ,B@c.com,d,"), ["A@a.com,b.com", "B@c.com,d"]);
        assert_eq!(split_entries("A,B,C@c.com,d.com"), ["A", "B", "C@c.com,d.com"]);
        assert_eq!(split_entries(""), Vec::<String>::new());
    }
}
