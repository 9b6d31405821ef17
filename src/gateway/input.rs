//! Extractors for path, query and body that refuse with a [`Reject`] instead of the framework's own responses.

use super::limits::TooSlow;
use super::{MAX_BODY, Reject};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use commands::documents::submitted::Submitted;
use serde::de::DeserializeOwned;
use storage::store::Over;

/// The parameters of the path.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Params<T> {
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Reject> {
        let refused = |problem: axum::extract::rejection::PathRejection| {
            Reject::invalid("invalid_path", problem.body_text(), "ids in paths are percent-encoded UTF-8")
        };
        Path::from_request_parts(parts, state).await.map(|Path(params)| Self(params)).map_err(refused)
    }
}

/// The parameters of the query.
pub(super) struct Filter<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Filter<T> {
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Reject> {
        let refused = |problem: axum::extract::rejection::QueryRejection| {
            Reject::invalid("invalid_query", problem.body_text(), "correct the query parameter that the message names")
        };
        Query::from_request_parts(parts, state).await.map(|Query(query)| Self(query)).map_err(refused)
    }
}

/// A JSON body with a JSON content type.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Reject;

    async fn from_request(request: Request, state: &S) -> Result<Self, Reject> {
        // A web page can post other content types across sites without a preflight request, but not JSON.
        let json = is_json(request.headers());
        let bytes = read(request, state).await?;
        if !json {
            let hint = "send JSON with the header `content-type: application/json`";
            let message = "the body is not declared as JSON";
            return Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message, hint));
        }
        parse(&bytes).map(Self)
    }
}

/// An agent or workflow file: its text as YAML, or the document or `{"source"}` as JSON.
pub(super) struct FileBody(pub(super) Submitted);

impl<S: Send + Sync> FromRequest<S> for FileBody {
    type Rejection = Reject;

    async fn from_request(request: Request, state: &S) -> Result<Self, Reject> {
        // As JSON, YAML is no content type that a web page can post across sites without a preflight request.
        let (json, yaml) = (is_json(request.headers()), is_yaml(request.headers()));
        let bytes = read(request, state).await?;
        if json {
            return parse(&bytes).map(|document| Self(Submitted::from_json(document)));
        }
        if !yaml {
            let hint = "send it with the header `content-type: application/json`, or `application/yaml`";
            let message = "the body is declared neither as JSON nor as YAML";
            return Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message, hint));
        }
        match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Ok(Self(Submitted::Text(text))),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let message = format!("the body is not UTF-8 (byte {at})");
                Err(Reject::invalid("unreadable_body", message, "save the file as UTF-8 in your editor"))
            }
        }
    }
}

/// The version that a change may replace, by the headers `If-Match` and `If-None-Match`.
pub(super) struct Condition(pub(super) Over);

impl<S: Send + Sync> FromRequestParts<S> for Condition {
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Reject> {
        let refused = || {
            let message = "If-Match and If-None-Match: found another condition than one hash between quotes, or `*`";
            Reject::invalid("invalid_condition", message, "send `If-Match: \"<hash>\"`, or `If-None-Match: *`")
        };
        let text = |name| parts.headers.get(name).map(|value| value.to_str().map(str::trim).map_err(|_| refused()));
        let (seen, new) = (text(IF_MATCH).transpose()?, text(IF_NONE_MATCH).transpose()?);
        match (seen, new) {
            (None, None) => Ok(Self(Over::Anything)),
            (None, Some("*")) => Ok(Self(Over::Nothing)),
            (Some(seen), None) => {
                // A proxy that compresses responses marks the tag as weak.
                let hash = seen.strip_prefix("W/").unwrap_or(seen).trim_matches('"');
                let is_hash = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if is_hash { Ok(Self(Over::Version(hash.to_owned()))) } else { Err(refused()) }
            }
            _ => Err(refused()),
        }
    }
}

/// A JSON body that may be absent or `null`. The content type does not matter.
pub(super) struct OptionalBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Reject;

    async fn from_request(request: Request, state: &S) -> Result<Self, Reject> {
        let bytes = read(request, state).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(T::default()));
        }
        parse::<Option<T>>(&bytes).map(|value| Self(value.unwrap_or_default()))
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Reject> {
    Bytes::from_request(request, state).await.map_err(|problem| match problem.status() {
        _ if let Some(slow) = TooSlow::find_in(&problem) => {
            Reject::new(StatusCode::REQUEST_TIMEOUT, "slow_body", slow.to_string(), "send the body without pauses")
        }
        StatusCode::PAYLOAD_TOO_LARGE => Reject::too_large(format!("the body has more than {MAX_BODY} bytes")),
        _ => Reject::invalid("unreadable_body", problem.body_text(), "send the request again"),
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn is_yaml(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(kind.as_str(), "application/yaml" | "application/x-yaml")
}

/// Reads one JSON value; the error names the field.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Reject> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let refused = |message: String| {
        Reject::invalid("invalid_json", message, "send one JSON object; /openapi.json has its fields")
    };
    // Serde would read a list as the fields in the order of their declaration.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(refused("the body is a list".to_owned()));
    }
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        refused(format!("{place}{}", error.inner()))
    })?;
    deserializer.end().map_err(|error| refused(error.to_string()))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code)]
    struct Sample {
        text: String,
    }

    #[test]
    fn errors_name_the_field_or_the_place() {
        let message = |text: &str| parse::<Sample>(text.as_bytes()).unwrap_err().message;
        assert!(message(r#"{"text":1}"#).starts_with("text: "));
        assert!(message("{}").contains("`text`"));
        assert!(message("{").contains("line 1"));
        assert!(message(r#"{"text":"a"} x"#).contains("trailing"));
        assert!(parse::<Sample>(&[0xff]).is_err());
        assert!(message(r#" ["a"]"#).contains("a list"));
    }

    #[test]
    fn json_by_any_spelling_of_its_type() {
        for (kind, json) in
            [("application/json", true), ("Application/JSON; charset=utf-8", true), ("text/plain", false), ("", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            assert_eq!(is_json(&headers), json, "{kind}");
        }
    }
}
