//! Shared parts of all outgoing HTTP calls, to models and to the APIs of skills and tools: one TLS provider, retries
//! ([`retry`]), the guard against [`private`] addresses, and bounded reading.

pub mod private;
pub mod retry;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Response};
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt;
use std::sync::LazyLock;

/// The TLS settings of all clients, with the system's root certificates. `None` if these cannot be read.
static TLS: LazyLock<Option<ClientConfig>> = LazyLock::new(|| {
    // It fails if a provider is installed already, which is good enough.
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut config = ClientConfig::with_platform_verifier().ok()?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Some(config)
});

/// A builder for HTTP clients. The first call installs the TLS provider of the process and reads the root certificates,
/// which each client would otherwise read again.
pub fn builder() -> ClientBuilder {
    let builder = ClientBuilder::new().user_agent(concat!("turnwheel/", env!("CARGO_PKG_VERSION")));
    match TLS.as_ref() {
        Some(config) => builder.tls_backend_preconfigured(config.clone()),
        // The client then says why.
        None => builder,
    }
}

/// The value of an `Idempotency-Key` header. Control characters and non-ASCII characters of ids are percent-encoded.
pub fn key_header(key: &str) -> HeaderValue {
    let ascii = percent_encoding::utf8_percent_encode(key, percent_encoding::CONTROLS).to_string();
    HeaderValue::from_str(&ascii).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

/// Reads at most `limit` bytes of a response. The flag is true if there were more.
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

/// Decodes a body by the charset that the headers name, because not every API uses UTF-8. Undecodable bytes are
/// replaced.
pub async fn decode(headers: &HeaderMap, bytes: Vec<u8>) -> String {
    let mut answer = http::Response::new(bytes);
    if let Some(kind) = headers.get(reqwest::header::CONTENT_TYPE) {
        answer.headers_mut().insert(reqwest::header::CONTENT_TYPE, kind.clone());
    }
    // Reading from memory cannot fail.
    Response::from(answer).text().await.unwrap_or_default()
}

/// Trims `text` and cuts it to at most `limit` bytes, between characters. A cut text ends with `…`.
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
    fn clients_share_the_tls_settings_of_the_process() {
        // Fails if reqwest uses another version of rustls.
        builder().build().unwrap();
        assert!(TLS.is_some());
    }

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
