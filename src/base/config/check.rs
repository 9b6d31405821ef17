//! Checks that involve several settings, and checks of the meaning of single values.

use super::access::{self, Weakness};
use super::load::{Origin, Problem};
use super::nats::NatsAccess;
use super::{Backend, Connector, Environment, Model, Provider, Python, PythonRunner, Secrets, Settings};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use types::allowed_secrets::AllowedSecrets;
use types::duration;
use types::host_pattern::HostPattern;
use url::Url;

/// Returns all problems of `settings`. `client_only` skips the checks for servers: a command that only sends requests
/// needs neither keys nor tokens.
pub(super) fn check(
    settings: &Settings,
    origins: &BTreeMap<String, Origin>,
    env: &Environment,
    client_only: bool,
) -> Vec<Problem> {
    let mut check = SettingsChecker { origins, problems: Vec::new() };
    check.names(settings);
    check.addresses(settings, env, client_only);
    check.hosts(&settings.http.allow_private);
    check.hosts_of_nodes(&settings.decisions.allowed_hosts);
    check.secrets(&settings.secrets);
    for (name, model) in &settings.models {
        check.model(name, model, env, client_only);
    }
    check.python(&settings.python);
    for (name, connector) in &settings.connectors {
        check.connector(name, connector, env, client_only);
    }
    check.telemetry(settings);
    check.problems.extend(access::problems(&settings.gateway.access, (!client_only).then_some(env)));
    if !client_only {
        check.listeners(settings, env);
    }
    check.problems
}

/// Fields of a request that the engine writes and `extra` must not change.
const ENGINE_FIELDS: [&str; 7] = ["model", "messages", "tools", "stream", "stream_options", "response_format", "n"];

/// The password in example files. Everybody knows it.
const PLACEHOLDER: &str = "change-me";
const PLACEHOLDER_FOUND: &str = "has the password `change-me` of an example file";

/// The longest attempt of a node.
const MAX_NODE_TIME: Duration = Duration::from_secs(300);

struct SettingsChecker<'a> {
    origins: &'a BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

impl SettingsChecker<'_> {
    fn report(&mut self, key: &str, found: impl Into<String>, remedy: impl Into<String>) {
        // A missing value has its origin in the defaults; naming them would not help.
        let origin = self.origins.get(key).filter(|origin| **origin != Origin::Default).cloned();
        self.problems.push(Problem { key: key.into(), origin, found: found.into(), remedy: remedy.into() });
    }

    fn names(&mut self, settings: &Settings) {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if settings.namespace.is_empty() || !settings.namespace.chars().all(legal) {
            let found = format!("found `{}`", settings.namespace);
            self.report("namespace", found, "allowed are the letters A-Z and a-z, digits, `_` and `-`, at least one");
        }
        let database = &settings.mongodb.database;
        if database.is_empty() || database.len() > 63 || database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
            let found = format!("found `{database}`");
            self.report(
                "mongodb.database",
                found,
                r#"allowed are 1 to 63 bytes without `/`, `\`, `.`, `"`, `$` or spaces"#,
            );
        }
    }

    fn addresses(&mut self, settings: &Settings, env: &Environment, client_only: bool) {
        if settings.backend == Backend::Embedded {
            return;
        }
        // A command that talks to a gateway needs no password for NATS. One that connects to NATS fails when it
        // connects.
        match NatsAccess::from_settings(&settings.nats, env) {
            Ok(access) if access.login.clone().secret().as_deref() == Some(PLACEHOLDER) => {
                self.report("nats", PLACEHOLDER_FOUND, "write the password or token that the server expects");
            }
            Ok(_) => {}
            Err(problems) => {
                for problem in problems.into_iter().filter(|problem| !(client_only && problem.of_environment)) {
                    self.report(problem.key, problem.found, problem.remedy);
                }
            }
        }
        self.inbox(settings.nats.inbox_prefix.as_deref());
        let uri = &settings.mongodb.uri;
        if uri.contains(&format!(":{PLACEHOLDER}@")) {
            self.report("mongodb.uri", PLACEHOLDER_FOUND, "write the user's password");
        }
        if !uri.starts_with("mongodb://") && !uri.starts_with("mongodb+srv://") {
            self.report("mongodb.uri", "is not an address of MongoDB", "write it as mongodb://127.0.0.1:27017");
        }
    }

    fn inbox(&mut self, prefix: Option<&str>) {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(prefix) = prefix
            && !prefix.split('.').all(|token| !token.is_empty() && token.chars().all(legal))
        {
            let remedy = "allowed are letters, digits, `_` and `-`, with dots between, such as `_INBOX_worker`";
            self.report("nats.inbox_prefix", format!("found `{prefix}`"), remedy);
        }
    }

    fn python(&mut self, python: &Python) {
        if python.timeout.0 > MAX_NODE_TIME {
            let found = format!("found `{}`", duration::format(python.timeout.0));
            self.report("python.timeout", found, "at most `300s` are allowed");
        }
        let is_empty = python.command.first().is_none_or(|program| program.trim().is_empty());
        if python.runner == PythonRunner::Command && is_empty {
            let remedy = r#"give program and arguments, such as ["python3", "/opt/turnwheel/wasi_runner.py"]"#;
            self.report("python.command", "is empty, while `python.runner` is `command`", remedy);
        }
    }

    fn connector(&mut self, name: &str, connector: &Connector, env: &Environment, client_only: bool) {
        let key = |field: &str| format!("connectors.{name}.{field}");
        if connector.timeout.0 > MAX_NODE_TIME {
            let found = format!("found `{}`", duration::format(connector.timeout.0));
            self.report(&key("timeout"), found, "at most `300s` are allowed");
        }
        let variable = connector.url_env.as_str();
        if variable.trim().is_empty() {
            self.report(&key("url_env"), "is missing", "write the name of the environment variable that has the URL");
        } else if let Some(url) = env.get(variable) {
            // The value is not quoted, because it may have a password.
            if let Err(remedy) = connector.kind.check_url(url) {
                let found = format!("names `{variable}`, whose value is no address of the kind `{}`", connector.kind);
                self.report(&key("url_env"), found, remedy);
            }
        } else if !client_only {
            let found = format!("names the environment variable `{variable}`, which is not set");
            self.report(&key("url_env"), found, format!("set `{variable}` to the URL, or remove the connector"));
        }
    }

    fn telemetry(&mut self, settings: &Settings) {
        let telemetry = &settings.telemetry;
        if let Some(endpoint) = &telemetry.otlp_endpoint
            && !Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        {
            let found = format!("found `{}`", super::secrets::masked_address(endpoint));
            let remedy =
                "allowed is the http or https address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`";
            self.report("telemetry.otlp_endpoint", found, remedy);
        }
        if telemetry.service_name.trim().is_empty() {
            self.report("telemetry.service_name", "is empty", "give it a name, such as `turnwheel`, or remove it");
        }
    }

    fn hosts(&mut self, hosts: &[String]) {
        for host in hosts {
            let legal = match host.split_once('/') {
                None => !host.trim().is_empty() && !host.contains(char::is_whitespace),
                Some((address, bits)) => match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
                    (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
                    (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
                    _ => false,
                },
            };
            if !legal {
                let remedy = "allowed are hosts (`desk.internal`), ranges (`10.0.0.0/8`) and `*` for all";
                self.report("http.allow_private", format!("found `{host}`"), remedy);
            }
        }
    }

    fn hosts_of_nodes(&mut self, hosts: &[String]) {
        for host in hosts {
            if let Err(remedy) = HostPattern::parse(host) {
                self.report("decisions.allowed_hosts", format!("found `{host}`"), remedy);
            }
        }
    }

    fn secrets(&mut self, secrets: &Secrets) {
        let (_, problems) = AllowedSecrets::read(&secrets.allow, secrets.unbound);
        for (entry, problem) in problems {
            self.report("secrets.allow", format!("found `{entry}`"), problem.to_string());
        }
    }

    fn model(&mut self, name: &str, model: &Model, env: &Environment, client_only: bool) {
        if model.provider == Provider::Offline {
            return;
        }
        let key = |field: &str| format!("models.{name}.{field}");
        if name == "offline" {
            let remedy = "`offline` always means the rule model; give this one another name";
            self.report(&key("provider"), "found `openai`", remedy);
        }
        if model.model.trim().is_empty() {
            self.report(&key("model"), "is missing", "write the model's name at its server, such as `deepseek-chat`");
        }
        if model.base_url.trim().is_empty() {
            self.report(
                &key("base_url"),
                "is missing",
                "write the server's address, such as `https://api.example.com/v1`",
            );
        } else if !Url::parse(&model.base_url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            let found = format!("found `{}`", super::secrets::masked_address(&model.base_url));
            self.report(
                &key("base_url"),
                found,
                "allowed is an http or https address, such as `https://api.example.com/v1`",
            );
        }
        self.fields(name, model);
        if let Some(variable) = &model.api_key_env
            && !client_only
            && env.get(variable).is_none()
        {
            let found = format!("names the environment variable `{variable}`, which is not set");
            self.report(&key("api_key_env"), found, format!("set `{variable}` to the key, or remove `api_key_env`"));
        }
    }

    fn fields(&mut self, name: &str, model: &Model) {
        let key = |field: &str| format!("models.{name}.{field}");
        if let Some(field) = ENGINE_FIELDS.iter().find(|field| model.extra.contains_key(**field)) {
            let found = format!("holds `{field}`, which the engine writes itself");
            self.report(&key("extra"), found, format!("remove `{field}`"));
        }
        if let Some(header) = &model.api_key_header
            && (header.is_empty() || !header.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)))
        {
            let found = format!("found `{header}`");
            self.report(&key("api_key_header"), found, "allowed is the name of a header, such as `api-key`");
        }
        if model.max_tokens.is_some() && model.max_completion_tokens.is_some() {
            let remedy = "servers accept one of the two: remove the other";
            self.report(&key("max_completion_tokens"), "is given together with `max_tokens`", remedy);
        }
    }

    fn origins_of_pages(&mut self, cors: &[String], open: bool) {
        for origin in cors.iter().filter(|origin| *origin != "*") {
            // A browser sends only scheme, host and port as the origin, so a longer value would never match.
            let whole = |url: &Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            let legal = Url::parse(origin).is_ok_and(|url| whole(&url) && matches!(url.scheme(), "http" | "https"));
            if !legal {
                let remedy = "allowed are origins, such as `https://chat.example.com` or `http://localhost:5173`, and `*` for all";
                self.report("gateway.cors", format!("found `{origin}`"), remedy);
            }
        }
        if open && cors.iter().any(|origin| origin == "*") {
            let found = "found `*`, while `gateway.tokens` is empty: any web page could call the gateway";
            self.report("gateway.cors", found, "set `gateway.tokens`, or list the origins of your pages");
        }
    }

    fn listeners(&mut self, settings: &Settings, env: &Environment) {
        let gateway = &settings.gateway;
        if gateway.tokens.iter().any(|token| token.trim().is_empty() || token.contains(char::is_whitespace)) {
            self.report("gateway.tokens", "holds a token that is empty or has spaces", "remove it, or write another");
        }
        let addresses = [("gateway.listen", Some(gateway.listen)), ("gateway.grpc_listen", gateway.grpc_listen)];
        let public = addresses.iter().filter_map(|(_, address)| *address).find(|address| !address.ip().is_loopback());
        for (holder, weakness) in access::weak(gateway, env, public.is_some()) {
            let reached = public.filter(|_| weakness != Weakness::NotMasked);
            let reached = reached.map(|address| format!(", while others can reach `{address}`")).unwrap_or_default();
            self.report(
                &holder,
                format!("{}{reached}", weakness.found()),
                "write a random token of at least 16 characters",
            );
        }
        for (key, address) in addresses.into_iter().filter_map(|(key, address)| Some((key, address?))) {
            if address.ip().is_loopback() {
                continue;
            }
            if !gateway.needs_token() {
                let found = format!("found `{address}`, which others can reach, while `gateway.tokens` is empty");
                let remedy = format!(
                    "set `gateway.tokens` (TURNWHEEL_GATEWAY__TOKENS), or listen on `{}`",
                    SocketAddr::from(([127, 0, 0, 1], address.port()))
                );
                self.report(key, found, remedy);
            }
        }
        self.origins_of_pages(&gateway.cors, !gateway.needs_token());
        if gateway.max_streams >= gateway.max_connections {
            let found = format!("found {}, which leaves no connection for other requests", gateway.max_streams);
            let remedy = format!("set it below `gateway.max_connections` ({})", gateway.max_connections);
            self.report("gateway.max_streams", found, remedy);
        }
        for (key, given, other, missing) in [
            ("gateway.grpc_cert", &gateway.grpc_cert, "gateway.grpc_key", gateway.grpc_key.is_none()),
            ("gateway.grpc_key", &gateway.grpc_key, "gateway.grpc_cert", gateway.grpc_cert.is_none()),
        ] {
            if given.is_some() && missing {
                self.report(key, format!("is set without `{other}`"), "set both for TLS, or neither");
            }
        }
        if gateway.grpc_listen == Some(gateway.listen) && gateway.listen.port() != 0 {
            self.report("gateway.grpc_listen", "is the same as `gateway.listen`", "give it another port");
        }
    }
}
