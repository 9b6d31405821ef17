//! What every outgoing HTTP call shares, whether to a model or to a skill's API: one TLS provider, [`retry`], the guard
//! of [`private`] addresses, and bounded reading.

pub mod private;
pub mod retry;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Response};
use std::sync::Once;

/// A client's builder, with the process's one TLS provider in place.
pub fn builder() -> ClientBuilder {
    static TLS: Once = Once::new();
    TLS.call_once(|| {
        // An error says that a provider is there already, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
    });
    ClientBuilder::new().user_agent(concat!("turnwheel/", env!("CARGO_PKG_VERSION")))
}

/// The value of an `Idempotency-Key` header. Ids may hold any UTF-8, headers only ASCII: the rest is percent-encoded.
pub fn key_header(key: &str) -> HeaderValue {
    let ascii = percent_encoding::utf8_percent_encode(key, percent_encoding::CONTROLS).to_string();
    HeaderValue::from_str(&ascii).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

/// The first `limit` bytes of an answer, and whether there were more.
pub async fn read_bounded(response: &mut Response, limit: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = limit - bytes.len();
        if chunk.len() > room {
            bytes.extend_from_slice(&chunk[..room]);
            return Ok((bytes, true));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, false))
}

/// Bytes as text, in the charset that the headers name: not every Chinese API speaks UTF-8.
pub async fn decode(headers: &HeaderMap, bytes: Vec<u8>) -> String {
    let mut answer = axum::http::Response::new(bytes);
    if let Some(kind) = headers.get(reqwest::header::CONTENT_TYPE) {
        answer.headers_mut().insert(reqwest::header::CONTENT_TYPE, kind.clone());
    }
    // Reading from memory does not fail.
    Response::from(answer).text().await.unwrap_or_default()
}

/// At most `limit` bytes of `text`, cut between characters.
pub fn bounded(text: &str, limit: usize) -> String {
    let text = text.trim();
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_chinese_ids_fit_into_a_header() {
        assert_eq!(key_header("s1/m-1/0/act").to_str().unwrap(), "s1/m-1/0/act");
        assert_eq!(key_header("会/1").to_str().unwrap(), "%E4%BC%9A/1");
    }

    #[tokio::test]
    async fn text_is_read_in_its_own_charset() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "text/plain; charset=gbk".parse().unwrap());
        assert_eq!(decode(&headers, vec![0xc4, 0xe3, 0xba, 0xc3]).await, "你好");
        assert_eq!(decode(&HeaderMap::new(), "你好".into()).await, "你好");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("你好吗", 4), "你…");
        assert_eq!(bounded(" 你好 ", 6), "你好");
    }
}
