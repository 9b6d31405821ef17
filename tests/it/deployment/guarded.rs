//! NATS and MongoDB as `deploy/` configures them: TLS with the certificates of `deploy/certificates`, the users of
//! `nats-permissions.conf`, and those of `mongodb/setup.js`. The password of each user is its name.

use super::{file, printed, tool};
use crate::support::process::Process;
use crate::support::servers::Server;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use base::config::{Backend, Settings};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub(super) const MONGODB_USERS: [(&str, &str); 5] = [
    ("TW_MONGODB_ADMIN", "admin"),
    ("TW_MONGODB_WORKER", "worker"),
    ("TW_MONGODB_GATEWAY", "gateway"),
    ("TW_MONGODB_SCHEDULER", "scheduler"),
    ("TW_MONGODB_OPERATOR", "operator"),
];
const NATS_USERS: [(&str, &str); 5] = [
    ("TW_NATS_WORKER", "worker"),
    ("TW_NATS_GATEWAY", "gateway"),
    ("TW_NATS_SCHEDULER", "scheduler"),
    ("TW_NATS_CHANNEL_WEB", "channel-web"),
    ("TW_NATS_OPERATOR", "operator"),
];

pub(super) struct Guarded {
    nats: Server,
    mongod: Server,
    dir: TempDir,
    /// The size of mongod's log after the setup.
    set_up: usize,
}

impl Guarded {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tls = dir.path().join("tls");
        printed(Command::new(file("certificates")).arg(&tls));
        let path = |path: &Path| path.display().to_string();
        let mut envs = NATS_USERS.map(|(name, user)| (name.to_owned(), user.to_owned())).to_vec();
        envs.push(("TW_NATS_CERTIFICATE".into(), path(&tls.join("nats/server.pem"))));
        envs.push(("TW_NATS_KEY".into(), path(&tls.join("nats/server.key"))));
        let nats = Server::nats_from(&file("nats-secure.conf"), &dir.path().join("nats.log"), envs);
        let mongod = Server::mongod_with(&[
            "--keyFile",
            &path(&tls.join("mongodb/keyfile")),
            "--tlsMode",
            "requireTLS",
            "--tlsCertificateKeyFile",
            &path(&tls.join("mongodb/server.pem")),
            "--tlsCAFile",
            &path(&tls.join("ca/ca.pem")),
            "--tlsAllowConnectionsWithoutCertificates",
            "--logpath",
            &path(&dir.path().join("mongod.log")),
        ]);
        let mut guarded = Self { nats, mongod, dir, set_up: 0 };
        guarded.set_up(&MONGODB_USERS);
        guarded
    }

    /// Runs the script that creates the users with these passwords, and returns its output.
    pub(super) fn set_up(&mut self, passwords: &[(&str, &str)]) -> String {
        let program = tool("DEPLOY_TOOLS", "npm-", "").join("node_modules/.bin/mongosh");
        let mut shell = Command::new(program);
        shell.arg(self.uri("")).args(["--quiet", "--norc", "--file"]).arg(file("mongodb/setup.js"));
        shell.envs(passwords.iter().copied()).env("MONGODB_HOST", self.mongod.host()).env("HOME", self.dir.path());
        let printed = printed(&mut shell);
        self.set_up = self.log("mongod.log").len();
        printed
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("tls/ca/ca.pem")
    }

    /// The address of MongoDB for `login`, which is empty or ends in `@`.
    pub(super) fn uri(&self, login: &str) -> String {
        let (host, ca) = (self.mongod.host(), self.ca().display().to_string());
        let login_of = if login.is_empty() { "" } else { "&authSource=admin" };
        format!("mongodb://{login}{host}/?directConnection=true{login_of}&tls=true&tlsCAFile={ca}")
    }

    /// The addresses for the role `user`. [`Guarded::process`] adds the rest.
    pub(super) fn settings(&self, user: &str) -> Settings {
        let mut settings = Settings { backend: Backend::Cluster, ..Settings::default() };
        settings.nats.url = self.nats.address().replace("nats://", "tls://");
        settings.mongodb.uri = self.uri(&format!("{user}:{user}@"));
        settings
    }

    /// Starts a role with the user of the same name.
    pub(super) fn process(&self, settings: &Settings, role: &str) -> Process {
        let dir = self.dir.path().join(role);
        std::fs::create_dir_all(&dir).unwrap();
        let (ca, inbox) = (self.ca().display().to_string(), format!("_INBOX_{role}"));
        let env = [
            ("TURNWHEEL_NATS__CA", ca.as_str()),
            ("TURNWHEEL_NATS__USER", role),
            ("TURNWHEEL_NATS__PASSWORD_ENV", "NATS_PASSWORD"),
            ("TURNWHEEL_NATS__INBOX_PREFIX", &inbox),
            ("NATS_PASSWORD", role),
        ];
        Process::start_with(&dir, settings, &[role], &env)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Requests that NATS and MongoDB have refused so far.
    pub(super) fn violations(&self) -> Vec<String> {
        let (nats, mongod) = (self.log("nats.log"), self.log("mongod.log"));
        let of_nats = nats.lines().filter(|line| line.contains("Violation"));
        let of_mongod = mongod.get(self.set_up..).unwrap_or_default().lines();
        of_nats.chain(of_mongod.filter(|line| line.contains("not authorized on"))).map(str::to_owned).collect()
    }

    /// A client of NATS with this user and its inbox prefix.
    pub(super) async fn client(&self, user: &str) -> Client {
        let prefix = format!("_INBOX_{}", user.trim_start_matches("channel-"));
        let options = ConnectOptions::with_user_and_password(user.into(), user.into());
        let options = options.custom_inbox_prefix(prefix).add_root_certificates(self.ca()).require_tls(true);
        options.connect(self.nats.address()).await.unwrap()
    }

    /// JetStream for this user. The server does not respond to a request without permission, so it times out.
    pub(super) async fn context(&self, user: &str, timeout: Duration) -> Context {
        let mut context = jetstream::new(self.client(user).await);
        context.set_timeout(timeout);
        context
    }

    /// The database for this user.
    pub(super) async fn database(&self, user: &str) -> mongodb::Database {
        let client = mongodb::Client::with_uri_str(self.uri(&format!("{user}:{user}@"))).await.unwrap();
        client.database("turnwheel")
    }
}
