//! The servers and the login of NATS, from the addresses in `nats.url` and the other settings.
//!
//! The NATS client ignores a user, password or token in an address. This module takes them out of the address and
//! passes them on as credentials. A connection has one login, so credentials that would have no effect are an error.

use super::secrets::masked_address;
use super::{Environment, Nats};
use percent_encoding::percent_decode_str;
use std::path::PathBuf;
use url::Url;

/// The port of an address that has none.
const PORT: u16 = 4222;

/// How a process logs in to NATS. It has no `Debug`, because it holds secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// No credentials, except those of a client certificate.
    Anonymous,
    /// User and password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// The seed of an nkey, in this file.
    Nkey(PathBuf),
    /// A credentials file (JWT and seed).
    Creds(PathBuf),
}

impl Login {
    /// The password or token, to be masked in texts.
    pub fn secret(self) -> Option<String> {
        match self {
            Self::Password { password: secret, .. } | Self::Token(secret) => Some(secret),
            Self::Anonymous | Self::Nkey(_) | Self::Creds(_) => None,
        }
    }
}

/// The servers and the login of a connection.
pub struct NatsAccess {
    /// The addresses in the order of `nats.url`, without credentials.
    pub servers: Vec<String>,
    /// The login. It is the same for all servers.
    pub login: Login,
    /// True if the connection must be encrypted.
    pub tls: bool,
}

/// A problem in the settings of NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsProblem {
    /// The setting, such as `nats.url`.
    pub key: &'static str,
    /// The problem, without secrets.
    pub found: String,
    /// What to do.
    pub remedy: String,
    /// True if an environment variable is not set. Commands that do not connect ignore such a problem.
    pub of_environment: bool,
}

impl NatsAccess {
    /// Derives the access from the settings; `env` has the password and the token. The error lists at least one
    /// problem.
    pub fn from_settings(nats: &Nats, env: &Environment) -> Result<Self, Vec<NatsProblem>> {
        let mut reading = AccessReader::default();
        reading.addresses(&nats.url);
        reading.settings(nats, env);
        reading.certificates(nats);
        let tls = reading.encrypted || nats.ca.is_some() || nats.cert.is_some();
        let login = reading.login();
        if reading.problems.is_empty() {
            Ok(Self { servers: reading.servers, login, tls })
        } else {
            Err(reading.problems)
        }
    }
}

#[derive(Default)]
struct AccessReader {
    servers: Vec<String>,
    /// True if an address begins with `tls://`.
    encrypted: bool,
    /// Every login found, with its setting.
    logins: Vec<(&'static str, Login)>,
    problems: Vec<NatsProblem>,
}

impl AccessReader {
    fn problem(&mut self, key: &'static str, found: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(NatsProblem { key, found: found.into(), remedy: remedy.into(), of_environment: false });
    }

    fn addresses(&mut self, url: &str) {
        let mut logins = Vec::new();
        for (index, entry) in url.split(',').map(str::trim).enumerate().filter(|(_, entry)| !entry.is_empty()) {
            match server(entry) {
                Ok(server) => {
                    self.encrypted |= server.encrypted;
                    self.servers.push(server.address);
                    logins.extend(server.login);
                }
                Err(why) => {
                    let found = format!("entry {}{} {}", index + 1, named(entry, url), why.found);
                    self.problem("nats.url", found, why.remedy);
                }
            }
        }
        if self.servers.is_empty() && self.problems.is_empty() {
            self.problem("nats.url", "names no server", "write it as nats://127.0.0.1:4222 (or tls://…)");
        }
        if logins.iter().any(|login| Some(login) != logins.first()) {
            let remedy = "every server gets the same login: write it into one address, or use the settings nats.user and \
                          nats.password_env";
            self.problem("nats.url", "has different credentials for different servers", remedy);
        }
        self.logins.extend(logins.into_iter().next().map(|login| ("nats.url", login)));
    }

    fn settings(&mut self, nats: &Nats, env: &Environment) {
        match (&nats.user, &nats.password_env) {
            (None, None) => {}
            (Some(user), Some(variable)) => {
                if user.is_empty() {
                    self.problem("nats.user", "is empty", "write the user's name, or remove it");
                }
                let password = self.variable("nats.password_env", variable, env);
                self.logins.push(("nats.user", Login::Password { user: user.clone(), password }));
            }
            (Some(_), None) => {
                let remedy = "name the environment variable that holds the password in nats.password_env";
                self.problem("nats.user", "is set without nats.password_env", remedy);
            }
            (None, Some(_)) => self.problem("nats.password_env", "is set without nats.user", "set nats.user, too"),
        }
        if let Some(variable) = &nats.token_env {
            let token = self.variable("nats.token_env", variable, env);
            self.logins.push(("nats.token_env", Login::Token(token)));
        }
        self.logins.extend(nats.nkey.clone().map(|path| ("nats.nkey", Login::Nkey(path))));
        self.logins.extend(nats.creds.clone().map(|path| ("nats.creds", Login::Creds(path))));
    }

    /// The value of an environment variable. Adds a problem if the variable is not set.
    fn variable(&mut self, key: &'static str, variable: &str, env: &Environment) -> String {
        let value = env.get(variable).unwrap_or_default();
        if value.is_empty() {
            let found = format!("names the environment variable `{variable}`, which is not set");
            let remedy = format!("set `{variable}`, or remove {key}");
            self.problems.push(NatsProblem { key, found, remedy, of_environment: true });
        }
        value.to_owned()
    }

    fn certificates(&mut self, nats: &Nats) {
        match (&nats.cert, &nats.key) {
            (Some(_), None) => self.problem("nats.cert", "is set without nats.key", "set nats.key, too"),
            (None, Some(_)) => self.problem("nats.key", "is set without nats.cert", "set nats.cert, too"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// The only login. Adds a problem if there are several.
    fn login(&mut self) -> Login {
        if let [(first, _), (second, _), ..] = self.logins[..] {
            let found = match first {
                "nats.url" => {
                    "is set, and nats.url has credentials, too: a connection to NATS has one login".to_owned()
                }
                first => format!("is set, and {first} is set, too: a connection to NATS has one login"),
            };
            self.problem(second, found, format!("keep either {first} or {second}"));
        }
        self.logins.first().map_or(Login::Anonymous, |(_, login)| login.clone())
    }
}

/// One entry of `nats.url`.
struct Server {
    address: String,
    encrypted: bool,
    login: Option<Login>,
}

/// Why an entry of `nats.url` is invalid.
struct InvalidAddress {
    found: String,
    remedy: &'static str,
}

fn server(entry: &str) -> Result<Server, InvalidAddress> {
    let wrong = |found: &str, remedy| InvalidAddress { found: found.to_owned(), remedy };
    const FORM: &str = "write each server as nats://host:4222 (or tls://…), with commas between them";
    let text = if entry.contains("://") { entry.to_owned() } else { format!("nats://{entry}") };
    let url = Url::parse(&text).map_err(|error| wrong(&format!("is not an address: {error}"), FORM))?;
    let encrypted = match url.scheme() {
        "nats" => false,
        "tls" => true,
        "ws" | "wss" => {
            let remedy =
                "Turnwheel connects without websockets: write the server's client port, such as nats://host:4222";
            return Err(wrong("is the address of a websocket", remedy));
        }
        _ => return Err(wrong("is not the address of a NATS server", FORM)),
    };
    if text.contains('@') && !url.authority().contains('@') {
        let remedy = "write `/`, `?` and `#` of a password percent-encoded (`%2F`, `%3F`, `%23`)";
        return Err(wrong("has credentials that end before the `@`", remedy));
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host", FORM))?;
    let address = format!("{}://{host}:{}", url.scheme(), url.port().unwrap_or(PORT));
    let decoded = |text: &str| match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(wrong("has credentials that are not UTF-8", "write them percent-encoded, as UTF-8")),
    };
    // `Url` does not distinguish an empty password from none. Without the distinction, a user would count as a token.
    let user = text.rsplit_once('@').map_or("", |(user, _)| user);
    let password = if user.ends_with(':') { Some("") } else { url.password() };
    let login = match (url.username(), password) {
        ("", None) => None,
        (token, None) => Some(Login::Token(decoded(token)?)),
        ("", Some(_)) => return Err(wrong("has a password without a user", "write nats://user:password@host:4222")),
        (_, Some("")) => return Err(wrong("has a user without a password", "write nats://user:password@host:4222")),
        (user, Some(password)) => Some(Login::Password { user: decoded(user)?, password: decoded(password)? }),
    };
    Ok(Server { address, encrypted, login })
}

/// Formats an entry for an error message. A comma in a password splits the password over two entries; such an entry is
/// not shown, because part of the password is in it.
fn named(entry: &str, url: &str) -> String {
    if url.contains('@') && !entry.contains('@') { String::new() } else { format!(" (`{}`)", masked_address(entry)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: impl FnOnce(&mut Nats)) -> Result<NatsAccess, String> {
        let mut nats = Nats::default();
        change(&mut nats);
        let env = [("PASSWORD", "p"), ("TOKEN", "t")].into_iter().collect();
        let line = |problem: &NatsProblem| format!("{}: {}; {}", problem.key, problem.found, problem.remedy);
        NatsAccess::from_settings(&nats, &env)
            .map_err(|problems| problems.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    fn at(url: &str) -> Result<NatsAccess, String> {
        of(|nats| nats.url = url.into())
    }

    fn password(user: &str, password: &str) -> Login {
        Login::Password { user: user.into(), password: password.into() }
    }

    #[test]
    fn a_list_names_each_server() {
        let access = at(" nats://a:4221, b ,,tls://[::1]:1,").unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(access.servers, ["nats://a:4221", "nats://b:4222", "tls://[::1]:1"]);
        assert!(access.login == Login::Anonymous && access.tls);
        for (url, part) in [
            ("", "nats.url: names no server; "),
            (" , ", "nats.url: names no server; "),
            ("a,nats://b:port", "nats.url: entry 2 (`nats://b:port`) is not an address: invalid port number; "),
            ("a,wss://b", "entry 2 (`wss://b`) is the address of a websocket; Turnwheel connects without websockets"),
            ("http://u:hidden@a", "entry 1 (`http://u:***@a`) is not the address of a NATS server; "),
            ("nats://u:hid,den@a", "entry 1 is not an address: invalid port number; "),
        ] {
            let problem = at(url).err().unwrap_or_default();
            assert!(problem.contains(part) && !problem.contains("hid"), "{url}: {problem}");
        }
    }

    #[test]
    fn credentials_of_an_address_are_taken_out_of_it() {
        let access = at("nats://me:p%40%2Cw@a,nats://b").unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(access.servers, ["nats://a:4222", "nats://b:4222"]);
        assert!(access.login == password("me", "p@,w") && !access.tls);
        assert!(at("nats://to%3Dken@a,to%3Dken@b").is_ok_and(|access| access.login == Login::Token("to=ken".into())));
        for (url, part) in [
            ("nats://u:p@a,nats://u:q@b", "different credentials"),
            ("nats://u:p@a,nats://t@b", "different credentials"),
            ("nats://:p@a", "a password without a user"),
            ("nats://u:@a", "a user without a password"),
            ("nats://%ff@a", "not UTF-8"),
            ("nats://u:12/w@a", "write `/`, `?` and `#` of a password percent-encoded"),
        ] {
            let problem = at(url).err().unwrap_or_default();
            assert!(problem.starts_with("nats.url: ") && problem.contains(part), "{url}: {problem}");
        }
    }

    #[test]
    fn credentials_that_would_not_be_used_are_refused() {
        type Change = fn(&mut Nats);
        let user: Change = |nats| (nats.user, nats.password_env) = (Some("me".into()), Some("PASSWORD".into()));
        let token: Change = |nats| nats.token_env = Some("TOKEN".into());
        let nkey: Change = |nats| nats.nkey = Some("seed".into());
        let creds: Change = |nats| nats.creds = Some("creds".into());
        let kinds = [
            (user, password("me", "p")),
            (token, Login::Token("t".into())),
            (nkey, Login::Nkey("seed".into())),
            (creds, Login::Creds("creds".into())),
        ];
        for (index, (change, login)) in kinds.iter().enumerate() {
            assert!(of(change).is_ok_and(|access| access.login == *login), "{index}");
            let twice = of(|nats| {
                nats.url = "nats://u:p@a".into();
                change(nats);
            });
            assert!(twice.err().is_some_and(|problem| problem.contains("keep either nats.url or")), "{index}");
            for (other, _) in &kinds[index + 1..] {
                let twice = of(|nats| {
                    change(nats);
                    other(nats);
                });
                assert!(twice.err().is_some_and(|problem| problem.contains("keep either nats.")), "{index}");
            }
        }
        let refused: [(Change, &str); 6] = [
            (|nats| nats.user = Some("me".into()), "nats.user: is set without nats.password_env"),
            (|nats| nats.password_env = Some("PASSWORD".into()), "nats.password_env: is set without nats.user"),
            (|nats| nats.token_env = Some("GONE".into()), "nats.token_env: names the environment variable `GONE`"),
            (|nats| nats.cert = Some("c".into()), "nats.cert: is set without nats.key"),
            (|nats| nats.key = Some("k".into()), "nats.key: is set without nats.cert"),
            (
                |nats| (nats.user, nats.password_env) = (Some(String::new()), Some("PASSWORD".into())),
                "nats.user: is empty",
            ),
        ];
        for (change, part) in refused {
            let problem = of(change).err().unwrap_or_default();
            assert!(problem.starts_with(part), "{part}: {problem}");
        }
        assert!(of(|nats| nats.ca = Some("ca".into())).is_ok_and(|access| access.tls), "a CA asks for TLS");
    }
}
