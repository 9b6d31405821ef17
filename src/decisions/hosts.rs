//! The host of a URL with references, and the fields that may send it secrets.

use crate::reference::{Piece, pieces};
use url::Url;

/// The fields of an HTTP node that may have secrets.
pub const SECRET_FIELDS: [&str; 3] = ["params", "headers", "body"];

/// Why a URL is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlProblem {
    /// It is no http or https address.
    Unreadable,
    /// A reference stands before the path.
    ReferenceInHost,
}

/// The host of a URL. References may stand in its path, query and fragment only: whatever they become, scheme, user,
/// host and port stay the same.
pub fn host(text: &str) -> Result<String, UrlProblem> {
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
}
