//! The cookie of the console: a login with a token, signed by this installation. It names the token, the rights that
//! the token had, and its end. It ends earlier when the token is removed or replaced, or when its rights change.

use super::caller::Caller;
use super::tokens::Tokens;
use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use base::clock;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;
use storage::store::{Result, Store};
use tokio::sync::OnceCell;
use types::timestamp::Timestamp;

/// The name of the cookie.
const NAME: &str = "turnwheel_session";
/// How long a login lasts.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// The name of the secret in the store.
const SECRET: &str = "console";

/// The bytes of a key.
type Key = [u8; 32];

/// The keys with which all gateways of an installation sign. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cookies {
    store: Arc<dyn Store>,
    keys: Arc<OnceCell<Keys>>,
}

/// Derived from the secret in the store. One key for each purpose, so that no value of one passes as the other.
struct Keys {
    signature: Key,
    token: Key,
}

/// The content of a cookie.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The name of the token.
    name: String,
    /// The fingerprint of its role and scope.
    rights: String,
    /// The digest of the token. Only who knows the token can make it, so the secret alone does not forge a login.
    token: String,
    /// The end, in milliseconds.
    until: i64,
}

impl Cookies {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, keys: Arc::default() }
    }

    async fn keys(&self) -> Result<&Keys> {
        let load = async || {
            let secret = self.store.shared_secret(SECRET, rand::random()).await?;
            let derive = |purpose: &str| digest(&secret, &[purpose.as_bytes()]).finalize().into_bytes().into();
            Ok(Keys { signature: derive("signature of cookies"), token: derive("digest of tokens") })
        };
        self.keys.get_or_try_init(load).await
    }

    /// The value of `Set-Cookie` for a login with this token, and its end.
    pub(super) async fn issue(&self, caller: &Caller, token: &str, secure: bool) -> Result<(String, Timestamp)> {
        let (keys, until) = (self.keys().await?, clock::now().plus(LIFETIME));
        let encode = |mac: Hmac<Sha256>| URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        let content = Content {
            name: caller.name().to_owned(),
            rights: encode(digest(&keys.token, &[b"rights", caller.rights().as_bytes()])),
            token: encode(digest(&keys.token, &[b"token", token.as_bytes()])),
            until: until.as_millis(),
        };
        let content = serde_json::to_vec(&content).map_err(storage::store::StoreError::refused)?;
        let signature = encode(digest(&keys.signature, &[&content]));
        let content = URL_SAFE_NO_PAD.encode(content);
        Ok((set(&format!("{content}.{signature}"), LIFETIME, secure), until))
    }

    /// The caller that a cookie names, and the end of the login. `None` for a forged or ended one, and for one of a
    /// token that no longer is what it was.
    pub(super) async fn caller(&self, tokens: &Tokens, cookie: &str) -> Result<Option<(Caller, Timestamp)>> {
        let keys = self.keys().await?;
        Ok(verified(keys, cookie).and_then(|content| {
            let until = Timestamp::from_millis(content.until);
            let is_of = |token: &str| matches(&keys.token, &[b"token", token.as_bytes()], &content.token);
            let caller = tokens.caller_with(&content.name, is_of)?;
            let same_rights = matches(&keys.token, &[b"rights", caller.rights().as_bytes()], &content.rights);
            (same_rights && clock::now() < until).then_some((caller, until))
        }))
    }
}

/// The content of a cookie with a valid signature.
fn verified(keys: &Keys, cookie: &str) -> Option<Content> {
    let (content, signature) = cookie.split_once('.')?;
    let content = URL_SAFE_NO_PAD.decode(content).ok()?;
    if !matches(&keys.signature, &[&content], signature) {
        return None;
    }
    serde_json::from_slice(&content).ok()
}

/// Authenticates parts, each with its length, so that no two lists of parts have the same bytes.
fn digest(key: &Key, parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC pads a shorter key with zeros itself; a whole block cannot have a wrong length.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// Compares in a time that does not depend on the content.
fn matches(key: &Key, parts: &[&[u8]], encoded: &str) -> bool {
    URL_SAFE_NO_PAD.decode(encoded).is_ok_and(|given| digest(key, parts).verify_slice(&given).is_ok())
}

/// The cookie of a request.
pub(super) fn find(headers: &HeaderMap) -> Option<&str> {
    let mut pairs =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))
}

/// The value of `Set-Cookie` that removes the cookie.
pub(super) fn removal(secure: bool) -> String {
    set("", Duration::ZERO, secure)
}

fn set(value: &str, lifetime: Duration, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{NAME}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", lifetime.as_secs())
}

/// True if the client's request came over HTTPS, as the proxy before the gateway reports it. A client that sends the
/// header itself only keeps its own cookie from plain HTTP.
pub(super) fn is_secure(headers: &HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto").map(HeaderValue::as_bytes).unwrap_or_default();
    proto.split(|byte| *byte == b',').next().is_some_and(|first| first.trim_ascii().eq_ignore_ascii_case(b"https"))
}
