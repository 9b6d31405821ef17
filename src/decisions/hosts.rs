//! Host patterns, and the host of a URL with references.

use crate::reference::{Piece, pieces};
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

/// Why a URL is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrlProblem {
    /// It is no http or https address.
    Unreadable,
    /// A reference stands before the path.
    ReferenceInHost,
}

/// The host of a URL. References may stand in its path, query and fragment only: whatever they become, scheme, user,
/// host and port stay the same.
pub(crate) fn host(text: &str) -> Result<String, UrlProblem> {
    let with = |value: &str| -> String {
        let texts = pieces(text).map(|piece| match piece {
            Piece::Text(text) | Piece::Unreadable(text) => text,
            Piece::Reference(_) => value,
        });
        texts.collect()
    };
    let has_references = pieces(text).any(|piece| matches!(piece, Piece::Reference(_)));
    if !has_references {
        return origin(text).map(|origin| origin.host().to_owned()).ok_or(UrlProblem::Unreadable);
    }
    // Only a reference that is a part of the origin can change it.
    match (origin(&with("a")), origin(&with("b"))) {
        (Some(one), Some(other)) if one == other => Ok(one.host().to_owned()),
        (None, None) if origin(&with("1")).is_none() && !text.starts_with("${") => Err(UrlProblem::Unreadable),
        _ => Err(UrlProblem::ReferenceInHost),
    }
}

/// The part of a URL before its path.
#[derive(PartialEq, Eq)]
struct Origin(Url);

impl Origin {
    fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }
}

fn origin(text: &str) -> Option<Origin> {
    let mut url = Url::parse(text).ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return None;
    }
    url.set_path("/");
    url.set_query(None);
    url.set_fragment(None);
    Some(Origin(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_never_reach_the_host() {
        assert_eq!(host("https://api.Weather.com/v1/${x}?q=${y}"), Ok("api.weather.com".into()));
        for url in [
            "https://${host}/x",
            "${url}",
            "${a}://h/x",
            "https://h.${x}/",
            "https://h:${port}/",
            "https://${user}@h/",
            "https:///${host}/x",
            "https:\\\\${host}/x",
            "https://h${x}",
            "https://evil.com${x}@h/",
        ] {
            assert_eq!(host(url), Err(UrlProblem::ReferenceInHost), "{url}");
        }
        for url in ["ftp://h/x", "h/x", "/x", "mailto:a@b", "", "h/${x}"] {
            assert_eq!(host(url), Err(UrlProblem::Unreadable), "{url}");
        }
    }

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
