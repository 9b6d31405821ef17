//! Patterns of hosts, in settings and agent files.

use std::fmt;
use url::Url;

/// A host, or `*.` and a domain for all of its subdomains. It has no port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(String);

impl HostPattern {
    /// Reads a pattern. The error is the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("*.").unwrap_or(text);
        let parsed = Url::parse(&format!("http://{host}/")).ok();
        // The URL parser normalises a host, and moves everything else to other parts of the URL.
        let plain = parsed.as_ref().is_some_and(|url| {
            url.path() == "/"
                && url.port().is_none()
                && url.username().is_empty()
                && !host.contains([':', '@', '/', '*'])
        });
        let normal = parsed.filter(|_| plain).and_then(|url| url.host_str().map(str::to_owned));
        let wild = if host.len() < text.len() { "*." } else { "" };
        normal
            .map(|host| Self(format!("{wild}{host}")))
            .ok_or_else(|| "write a host such as `api.example.com`, or `*.example.com` for its subdomains".to_owned())
    }

    /// True if the pattern covers `host`, which is normalised as in a parsed URL.
    pub fn covers(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(domain) => host.len() > domain.len() && host.ends_with(domain),
            None => self.0 == host,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_hosts_and_subdomains() {
        let covers = |pattern: &str, host: &str| HostPattern::parse(pattern).unwrap().covers(host);
        assert!(covers("API.weather.com", "api.weather.com"));
        assert!(covers("*.example.com", "a.b.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("*.example.com", "evilexample.com"));
        for pattern in ["h:80", "", "*", "a/b", "u@h", "*.*.com", "https://h"] {
            assert!(HostPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
