//! Secrets: the values of `${NAME}` in agent files, and the API keys of models. Nothing in here prints a value.

use super::mask::{MASK, Masker};
use super::nats::NatsAccess;
use super::rotated_tokens::RotatedTokens;
use super::{Environment, Secrets, Settings};
use percent_encoding::percent_decode_str;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};
use thiserror::Error;
use types::allowed_secrets::{AllowedSecrets, SecretRefusal};

static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").ok());

impl Secrets {
    /// The secrets that `allow` lists, with their hosts. Loading the settings has refused illegal entries; in settings that
    /// were made in Rust they allow nothing.
    pub fn allowed(&self) -> AllowedSecrets {
        AllowedSecrets::read(&self.allow, self.unbound).0
    }
}

/// Why `${NAME}` cannot be replaced.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SecretError {
    /// The setting `secrets.allow` does not list the name for the host.
    #[error(transparent)]
    Refused(#[from] SecretRefusal),
    /// The environment variable is not set.
    #[error("`${{{0}}}` is allowed by `secrets.allow`, but the environment variable `{0}` is not set; set it")]
    NotSet(String),
}

/// The names that `text` uses as `${NAME}`.
pub fn references(text: &str) -> Vec<&str> {
    let Some(pattern) = REFERENCE.as_ref() else { return Vec::new() };
    pattern.captures_iter(text).filter_map(|found| found.get(1)).map(|name| name.as_str()).collect()
}

/// The values of secrets, read from the environment once.
#[derive(Clone, Default)]
pub struct SecretValues {
    allowed: AllowedSecrets,
    values: BTreeMap<String, String>,
    /// Values of the variables that `models.<name>.api_key_env`, `connectors.<name>.url_env`, `nats.password_env` and
    /// `nats.token_env` name.
    keys: BTreeMap<String, String>,
    masker: Masker,
    /// Tokens that files have got since the start.
    rotated: Option<Arc<RotatedTokens>>,
}

impl SecretValues {
    /// Reads the secrets that `settings` name from the environment of this process.
    pub fn from_settings(settings: &Settings) -> Self {
        Self::new(settings, &Environment::from_process())
    }

    /// Reads the secrets that `settings` name from `env`: `secrets.allow`, the models' API keys, the connectors' URLs,
    /// password and token of NATS. The tokens of the gateway and the credentials in addresses are added for masking only.
    pub fn new(settings: &Settings, env: &Environment) -> Self {
        let read = |names: BTreeSet<String>| -> BTreeMap<String, String> {
            names.into_iter().filter_map(|name| Some((name.clone(), env.get(&name)?.to_owned()))).collect()
        };
        let allowed = settings.secrets.allowed();
        let of_models = settings.models.values().filter_map(|model| model.api_key_env.clone());
        let of_nats = [&settings.nats.password_env, &settings.nats.token_env].into_iter().flatten().cloned();
        let of_connectors = settings.connectors.values().map(|connector| connector.url_env.clone());
        let named: BTreeSet<String> = of_models.chain(of_nats).chain(of_connectors).collect();
        let (values, keys) = (read(allowed.names().map(str::to_owned).collect()), read(named));
        let addresses = settings.models.values().map(|model| &model.base_url);
        let urls = settings.connectors.values().filter_map(|connector| keys.get(&connector.url_env));
        let addresses = addresses.chain([&settings.nats.url, &settings.mongodb.uri]).chain(urls);
        let addresses = addresses.chain(&settings.telemetry.otlp_endpoint);
        let named = settings.gateway.access.iter().filter_map(|entry| entry.tokens(env).ok()).flatten();
        let hidden = values.values().chain(keys.values()).chain(&settings.gateway.tokens).cloned().chain(named);
        let login = NatsAccess::from_settings(&settings.nats, env).ok().and_then(|access| access.login.secret());
        let masker = Masker::new(hidden.chain(addresses.flat_map(|address| in_address(address))).chain(login));
        let rotated = RotatedTokens::new(&settings.gateway.access).map(Arc::new);
        Self { allowed, values, keys, masker, rotated }
    }

    /// Replaces every `${NAME}` in `text`, which is sent to `host`. The host is normalised as in a parsed URL. A replaced
    /// value is not searched for further references.
    pub fn fill(&self, text: &str, host: &str) -> Result<String, SecretError> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(found) = REFERENCE.as_ref().and_then(|pattern| pattern.captures(rest)) {
            let (Some(whole), Some(name)) = (found.get(0), found.get(1)) else { break };
            filled.push_str(&rest[..whole.start()]);
            filled.push_str(self.value(name.as_str(), host)?);
            rest = &rest[whole.end()..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str, host: &str) -> Result<&str, SecretError> {
        self.allowed.check(name, Some(host))?;
        self.values.get(name).map(String::as_str).ok_or_else(|| SecretError::NotSet(name.to_owned()))
    }

    /// Replaces every secret value in `text` with `***`, also if it is encoded as in a URL, in JSON or in HTML.
    pub fn mask(&self, text: &str) -> String {
        let masked = self.masker.mask(text);
        match &self.rotated {
            Some(rotated) => rotated.mask(&masked),
            None => masked,
        }
    }

    /// The value of the variable that a model's `api_key_env` names.
    pub fn api_key(&self, env_name: &str) -> Option<String> {
        self.keys.get(env_name).cloned()
    }

    /// True if the settings name this variable and it is set.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.keys.contains_key(name)
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValues").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

impl fmt::Display for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allowed secrets, {} of them set", self.allowed.names().count(), self.values.len())
    }
}

/// Masks password, token and secret parameters of a connection address or a list of addresses. It masks too much rather
/// than too little: a password with `/` or `?` in it makes an illegal URI, but people write such URIs.
pub fn masked_address(text: &str) -> String {
    listed(text).into_iter().map(mask_one).collect::<Vec<_>>().join(",")
}

/// Splits a list of addresses. The hosts of a replica set belong to one address.
fn listed(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text.split(',').collect();
    if parts.iter().all(|part| part.contains("://")) { parts } else { vec![text] }
}

fn mask_one(text: &str) -> String {
    let Address { scheme, user, host, query } = Address::parse(text);
    let user = match user.map(|user| user.split_once(':')) {
        None => String::new(),
        Some(Some((name, _))) => format!("{name}:{MASK}@"),
        Some(None) => format!("{MASK}@"),
    };
    let Some(query) = query else { return format!("{scheme}{user}{host}") };
    let masked = |parameter: &str| match secret_parameter(parameter) {
        Some((name, _)) => format!("{name}={MASK}"),
        None => parameter.to_owned(),
    };
    format!("{scheme}{user}{host}?{}", query.split('&').map(masked).collect::<Vec<_>>().join("&"))
}

/// The passwords, tokens and secret parameters of an address or a list of addresses, both as written and decoded.
pub fn in_address(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for address in listed(text) {
        let Address { user, query, .. } = Address::parse(address);
        found.extend(user.map(|user| user.split_once(':').map_or(user, |(_, password)| password)));
        found.extend(
            query.into_iter().flat_map(|query| query.split('&')).filter_map(secret_parameter).map(|(_, value)| value),
        );
    }
    let decoded = |value: &&str| percent_decode_str(value).decode_utf8_lossy().into_owned();
    found.iter().map(|value| (*value).to_owned()).chain(found.iter().map(decoded)).collect()
}

/// The parts of an address that can hold secrets, and the host.
struct Address<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    host: &'a str,
    query: Option<&'a str>,
}

impl<'a> Address<'a> {
    fn parse(text: &'a str) -> Self {
        let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let (host, query) = host.split_once('?').map_or((host, None), |(host, query)| (host, Some(query)));
        Self { scheme, user, host, query }
    }
}

/// Name and value of a parameter, if its name indicates a secret.
fn secret_parameter(parameter: &str) -> Option<(&str, &str)> {
    let (name, value) = parameter.split_once('=')?;
    let lower = name.to_lowercase();
    let secret = ["password", "token", "secret", "key", "properties"].iter().any(|word| lower.contains(word));
    secret.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> SecretValues {
        let mut settings = Settings::default();
        settings.secrets.allow = vec!["ORDERS_TOKEN@api.example.com".into(), "GONE@api.example.com".into()];
        settings.gateway.tokens = vec!["tok-1".into()];
        let env = [("ORDERS_TOKEN", "s e/c\"ret ${GONE}"), ("PATH", "/bin")].into_iter().collect();
        SecretValues::new(&settings, &env)
    }

    #[test]
    fn fills_allowed_names_only_and_once() {
        let values = values();
        let fill = |text: &str| values.fill(text, "api.example.com");
        assert_eq!(fill("Bearer ${ORDERS_TOKEN}!").unwrap(), "Bearer s e/c\"ret ${GONE}!");
        assert_eq!(fill("你好 {name} $5 ${}").unwrap(), "你好 {name} $5 ${}");
        let refused = fill("${PATH}").unwrap_err();
        assert!(matches!(refused, SecretError::Refused(SecretRefusal::NotListed { .. })), "{refused}");
        assert!(
            refused.to_string().contains("`${PATH}`") && refused.to_string().contains("`secrets.allow`"),
            "{refused}"
        );
        assert_eq!(fill("${GONE}").unwrap_err(), SecretError::NotSet("GONE".into()));
        let foreign = values.fill("${ORDERS_TOKEN}", "evil.example").unwrap_err();
        assert!(matches!(foreign, SecretError::Refused(SecretRefusal::ForeignHost { .. })), "{foreign}");
        assert_eq!(values.fill("no secret", "evil.example").unwrap(), "no secret");
    }

    #[test]
    fn values_never_show() {
        let values = values();
        let text = values.mask(r#"GET /?t=s+e%2Fc%22ret+%24%7BGONE%7D {"a":"s e/c\"ret ${GONE}"} tok-1"#);
        assert_eq!(text, r#"GET /?t=*** {"a":"***"} ***"#);
        assert!(!format!("{values:?}{values}").contains("s e/c"));
    }

    #[test]
    fn what_addresses_hold_is_hidden_too() {
        let mut settings = Settings::default();
        settings.nats.url = "nats://u:hidden-1@a:4222,nats://hidden-2@b".into();
        settings.mongodb.uri =
            "mongodb://u:hidden%2F3@a:1,b:2/?tlsCertificateKeyFilePassword=hidden-4&w=majority".into();
        let values = SecretValues::new(&settings, &Environment::default());
        let text = values.mask("hidden-1 hidden-2 hidden%2F3 hidden/3 hidden-4 majority");
        assert_eq!(text, "*** *** *** *** *** majority");
    }

    #[test]
    fn addresses_lose_their_passwords() {
        for (address, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://u:p@a:4222,nats://token@b", "nats://u:***@a:4222,nats://***@b"),
            (
                "mongodb://u:p/@x?@a:1,b:2/db?replicaSet=rs&tlsCertificateKeyFilePassword=x",
                "mongodb://u:***@a:1,b:2/db?replicaSet=rs&tlsCertificateKeyFilePassword=***",
            ),
        ] {
            assert_eq!(masked_address(address), shown);
        }
    }
}
