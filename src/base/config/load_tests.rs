use super::*;
use crate::config::{Backend, Provider, SecretValues, show};
use std::time::Duration;
use tempfile::TempDir;
use types::access::Role;

#[path = "example_tests.rs"]
mod example;

struct Case {
    directory: TempDir,
    sources: Sources,
}

fn case(toml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Case {
    let directory = tempfile::tempdir().unwrap();
    if !toml.is_empty() {
        std::fs::write(directory.path().join(DEFAULT_FILE), toml).unwrap();
    }
    let sources = Sources {
        overrides: flags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        env: env.iter().copied().collect(),
        directory: directory.path().to_owned(),
        ..Sources::default()
    };
    Case { directory, sources }
}

fn load(toml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<LoadedSettings, SettingsError> {
    let case = case(toml, env, flags);
    Settings::load(&case.sources)
}

fn refusal(toml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    load(toml, env, flags).unwrap_err().to_string()
}

#[test]
fn without_any_source_the_defaults_hold() {
    let loaded = load("", &[("PATH", "/bin")], &[]).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.file.is_none() && !loaded.backend_is_explicit());
    assert!(loaded.origins.values().all(|origin| *origin == Origin::Default));
    assert_eq!(loaded.origins.len(), schema::KEYS.iter().filter(|key| !key.path.contains('*')).count());
}

#[test]
fn later_layers_win_and_every_value_knows_its_origin() {
    let toml = "namespace = \"file\"\n[nats]\nurl = \"nats://file\"\n[worker]\nconcurrency = 10\nack_wait = \"2s\"\nmax_attempts = 7";
    let env = [
        ("NATS_URL", "nats://plain"),
        ("TURNWHEEL_WORKER__CONCURRENCY", "20"),
        ("TURNWHEEL_WORKER__ACK_WAIT", "500ms"),
    ];
    let loaded = load(toml, &env, &[("worker.concurrency", "30"), ("backend", "embedded")]).unwrap();
    let settings = &loaded.settings;
    assert_eq!((settings.namespace.as_str(), settings.nats.url.as_str()), ("file", "nats://plain"));
    assert_eq!((settings.worker.concurrency, settings.worker.max_attempts), (30, 7));
    assert_eq!(settings.worker.ack_wait.0, Duration::from_millis(500));
    assert_eq!(settings.backend, Backend::Embedded);
    let origin = |key: &str| loaded.origins[key].to_string();
    assert!(origin("namespace").ends_with(DEFAULT_FILE));
    assert_eq!(origin("nats.url"), "environment variable NATS_URL");
    assert_eq!(origin("worker.ack_wait"), "environment variable TURNWHEEL_WORKER__ACK_WAIT");
    assert_eq!((origin("worker.concurrency"), origin("lane.max_depth")), ("flag".into(), "default".into()));
    assert!(loaded.backend_is_explicit());

    let own = [("NATS_URL", "nats://plain"), ("TURNWHEEL_NATS__URL", "nats://own")];
    assert_eq!(load("", &own, &[]).unwrap().settings.nats.url, "nats://own");
}

#[test]
fn paths_in_the_file_are_relative_to_it_and_others_are_not() {
    let case = case("", &[("TURNWHEEL_DATA_DIR", "from-env")], &[]);
    let folder = case.directory.path().join("etc");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("t.toml"), "agents_dir = \"my agents\"\nworkflows_dir = \"/abs\"").unwrap();
    let loaded = Settings::load(&Sources { file: Some("etc/t.toml".into()), ..case.sources.clone() }).unwrap();
    assert_eq!(loaded.settings.agents_dir, folder.join("my agents"));
    assert_eq!(loaded.settings.workflows_dir, PathBuf::from("/abs"));
    assert_eq!(loaded.settings.data_dir, PathBuf::from("from-env"));

    let env = [("TURNWHEEL_CONFIG", "etc/t.toml")].into_iter().collect();
    let loaded = Settings::load(&Sources { env, ..case.sources.clone() }).unwrap();
    assert_eq!(loaded.file, Some(folder.join("t.toml")));

    let missing = Settings::load(&Sources { file: Some("gone.toml".into()), ..case.sources.clone() }).unwrap_err();
    assert!(missing.to_string().contains("gone.toml") && missing.to_string().contains("--config"), "{missing}");
    let env = [("TURNWHEEL_CONFIG", "gone.toml")].into_iter().collect();
    assert!(Settings::load(&Sources { env, ..case.sources }).unwrap_err().to_string().contains("TURNWHEEL_CONFIG"));
}

#[test]
fn lists_from_the_environment_are_written_either_way() {
    for value in ["aaaa,bbbb", " aaaa , bbbb,", r#"["aaaa","bbbb"]"#] {
        let loaded = load("", &[("TURNWHEEL_GATEWAY__TOKENS", value)], &[]).unwrap();
        assert_eq!(loaded.settings.gateway.tokens, ["aaaa", "bbbb"]);
    }
    assert!(load("", &[("TURNWHEEL_GATEWAY__TOKENS", "")], &[]).unwrap().settings.gateway.tokens.is_empty());
    assert!(refusal("gateway.tokens = \"a,b\"", &[], &[]).contains("a list of texts"));
}

#[test]
fn unknown_keys_are_named_with_their_source_and_what_was_meant() {
    let error = refusal(
        "[worker]\nconcurency = 3\n[colour]\nx = 1",
        &[("TURNWHEEL_WORKER_CONCURRENCY", "3")],
        &[("max_depth", "3")],
    );
    for part in [
        "`worker.concurency` (",
        "turnwheel.toml): there is no such setting; did you mean `worker.concurrency`?",
        "`colour`",
        "(environment variable TURNWHEEL_WORKER_CONCURRENCY): there is no such setting; did you mean `TURNWHEEL_WORKER__CONCURRENCY`?",
        "`max_depth` (flag): there is no such setting; did you mean `lane.max_depth`?",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
}

#[test]
fn wrong_values_are_all_reported_at_once() {
    let toml = "namespace = \"a.b\"\nworker = { concurrency = 0, ack_wait = \"50ms\", max_attempts = \"many\", drain_timeout = 5 }\nlane = 3\n[gateway]\nlisten = \"localhost:1\"";
    let error = refusal(toml, &[("TURNWHEEL_BACKEND", "both"), ("NATS_URL", "http://u:hidden@x")], &[]);
    for part in [
        "`namespace` (",
        "found `a.b`; allowed are the letters",
        "`worker.concurrency` (",
        "found `0`; allowed is a whole number from 1",
        "found `50ms`; allowed is a duration of at least 100ms",
        "found `many`",
        "`worker.drain_timeout`",
        "`lane` (",
        "it is a table of max_depth",
        "found `localhost:1`; allowed is an IP address and a port",
        "`backend` (environment variable TURNWHEEL_BACKEND): found `both`; allowed is `cluster` or `embedded`",
        "`nats.url` (environment variable NATS_URL)",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    assert!(!error.contains("hidden"));
    assert!(refusal("a = [", &[], &[]).contains("is not TOML"));
    assert!(refusal("[http]\nallow_private = [\"10.0.0.0/40\"]", &[], &[]).contains("`10.0.0.0/40`"));
    for host in ["api.example.com:80", "https://a", "*", "a b"] {
        let settings = format!("[decisions]\nallowed_hosts = [\"*.example.com\", \"{host}\"]");
        assert!(refusal(&settings, &[], &[]).contains(&format!("`{host}`")), "{host}");
    }
}

#[test]
fn a_public_gateway_needs_tokens() {
    for key in ["gateway.listen", "gateway.grpc_listen"] {
        let public = [(key, "0.0.0.0:9000")];
        let error = refusal("", &[], &public);
        assert!(error.contains("`gateway.tokens`") && error.contains("`0.0.0.0:9000`"), "{error}");
        let case = case("", &[], &public);
        assert!(Settings::load(&Sources { client_only: true, ..case.sources }).is_ok());
    }
    assert!(
        load("", &[("TURNWHEEL_GATEWAY__TOKENS", "0123456789abcdef")], &[("gateway.listen", "0.0.0.0:9000")]).is_ok()
    );
    assert!(load("", &[], &[("gateway.listen", "[::1]:9000")]).is_ok());
}

#[test]
fn passwords_of_example_files_are_refused() {
    for (name, url, key) in [
        ("NATS_URL", "nats://worker:change-me@nats:4222", "`nats`"),
        ("NATS_URL", "nats://change-me@nats:4222", "`nats`"),
        ("MONGODB_URI", "mongodb://worker:change-me@mongodb/?replicaSet=rs0", "`mongodb.uri`"),
    ] {
        let error = refusal("", &[(name, url)], &[]);
        assert!(error.contains(key) && error.contains("`change-me` of an example file"), "{error}");
    }
    let user = "[nats]\nuser = \"worker\"\npassword_env = \"NATS_PASSWORD\"";
    assert!(refusal(user, &[("NATS_PASSWORD", "change-me")], &[]).contains("`change-me` of an example file"));
    assert!(load(user, &[("NATS_PASSWORD", "another")], &[]).is_ok());
}

#[test]
fn an_inbox_prefix_has_no_wildcards() {
    let file = |prefix: &str| format!("[nats]\ninbox_prefix = \"{prefix}\"");
    for bad in ["", "_INBOX.>", "a.*", ".a", "a b"] {
        assert!(refusal(&file(bad), &[], &[]).contains("`nats.inbox_prefix`"), "{bad}");
    }
    assert!(load(&file("_INBOX_worker"), &[], &[]).is_ok());
    assert!(load(&file("INBOX.worker"), &[], &[]).is_ok());
}

#[test]
fn an_empty_address_is_none() {
    assert!(load("[gateway]\ngrpc_listen = \"127.0.0.1:8081\"", &[], &[]).is_ok());
    for (key, table) in [("grpc_listen", "gateway"), ("listen", "metrics")] {
        assert!(load(&format!("[{table}]\n{key} = \"\""), &[], &[]).is_ok(), "an empty address disables the listener");
        let error = refusal(&format!("[{table}]\n{key} = \"here\""), &[], &[]);
        assert!(error.contains("an IP address and a port") && error.contains("for none"), "{error}");
    }
}

#[test]
fn a_certificate_needs_its_key() {
    for (given, other) in [("grpc_cert", "grpc_key"), ("grpc_key", "grpc_cert")] {
        let error = refusal(&format!("[gateway]\n{given} = \"/etc/grpc.pem\""), &[], &[]);
        assert!(
            error.contains(&format!("`gateway.{given}`")) && error.contains(&format!("`gateway.{other}`")),
            "{error}"
        );
    }
    assert!(load("[gateway]\ngrpc_cert = \"/a.pem\"\ngrpc_key = \"/a.key\"", &[], &[]).is_ok());
}

#[test]
fn origins_of_pages_are_checked() {
    for bad in ["chat.example.com", "https://chat.example.com/path", "file:///tmp", "null"] {
        let error = refusal("", &[], &[("gateway.cors", bad)]);
        assert!(error.contains("`gateway.cors` (flag)") && error.contains(&format!("`{bad}`")), "{error}");
    }
    let error = refusal("", &[], &[("gateway.cors", "*")]);
    assert!(error.contains("`gateway.tokens` is empty"), "{error}");
    let loaded =
        load("", &[("TURNWHEEL_GATEWAY__TOKENS", "0123456789abcdef")], &[("gateway.cors", "*,http://localhost:5173")]);
    assert_eq!(loaded.unwrap().settings.gateway.cors, ["*", "http://localhost:5173"]);
}

#[test]
fn models_are_checked() {
    let toml = "[models.default]\nprovider = \"openai\"\nbase_url = \"ftp://x\"\napi_key_env = \"MY_KEY\"\n[models.other]\nmodel = \"m\"";
    let error = refusal(toml, &[], &[]);
    for part in [
        "`models.default.model`: is missing",
        "`models.default.base_url`",
        "`ftp://x`",
        "`models.default.api_key_env`",
        "`MY_KEY`",
        "`models.other.provider`",
        "provider = \"offline\"",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let toml =
        "[models.\"GPT-4.1\"]\nprovider = \"openai\"\nbase_url = \"https://x/v1\"\nmodel = \"m\"\ntemperature = 1";
    let env = [("TURNWHEEL_MODELS__GPT_4_1__MAX_TOKENS", "9")];
    let loaded = load(toml, &env, &[("models.GPT-4.1.timeout", "5s"), ("models.b.provider", "offline")]).unwrap();
    let model = &loaded.settings.models["GPT-4.1"];
    assert_eq!((model.max_tokens, model.temperature, model.timeout.0), (Some(9), Some(1.0), Duration::from_secs(5)));
    assert_eq!(loaded.settings.models["b"].provider, Provider::Offline);
    assert_eq!(loaded.origins["models.GPT-4.1.max_retries"], Origin::Default);
}

#[test]
fn variables_that_are_no_settings_are_left_alone() {
    let env = [
        ("TURNWHEEL_CONFIG", ""),
        ("TURNWHEEL_LOG", "debug"),
        ("TURNWHEEL_LOG_FORMAT", "json"),
        ("TURNWHEEL_TEST_NATS", "x"),
        ("TURNWHEEL_PORT", "tcp://10.0.0.1:80"),
        ("TURNWHEEL_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("TURNWHEEL_GATEWAY_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("TURNWHEEL_GATEWAY_SERVICE_PORT_HTTP", "80"),
        ("TURNWHEEL_NAMESPACE", ""),
    ];
    assert_eq!(load("", &env, &[]).unwrap().settings, Settings::default());
}

/// The example file documents all settings: each line, uncommented alone in its table, must load.
#[test]
fn connectors_are_checked_and_their_urls_stay_hidden() {
    let toml = "[connectors.Sales-DB]\nkind = \"sqlite\"\nurl_env = \"SALES\"\n";
    let env = [("SALES", "sqlite:///data/sales.db"), ("TURNWHEEL_CONNECTORS__SALES_DB__MAX_ROWS", "5")];
    let loaded = load(toml, &env, &[("connectors.Sales-DB.timeout", "5s")]).unwrap();
    let connector = &loaded.settings.connectors["Sales-DB"];
    assert_eq!((connector.read_only, connector.max_rows, connector.timeout.0.as_secs()), (true, 5, 5));
    assert_eq!(loaded.origins["connectors.Sales-DB.read_only"], Origin::Default);
    let bad = "[connectors.a]\nurl_env = \"A\"\n[connectors.b]\nkind = \"postgres\"\ntimeout = \"301s\"\n\
               [connectors.c]\nkind = \"postgres\"\nurl_env = \"C\"\n[connectors.d]\nkind = \"mysql\"\nurl_env = \"D\"\nuser = \"x\"";
    let text = refusal(bad, &[("A", "sqlite:///a"), ("C", "mysql://u:hidden@h/d")], &[]);
    for part in [
        "`connectors.a.kind`",
        "`connectors.b.url_env`",
        "`connectors.b.timeout`",
        "`connectors.c.url_env`",
        "postgres://user:password@host",
        "`connectors.d.url_env`",
        "`connectors.d.user`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hidden"), "{text}");
    let secrets = SecretValues::new(&loaded.settings, &[("SALES", "postgres://u:hid%2Fden@h/d")].into_iter().collect());
    assert_eq!(secrets.mask("hid/den hid%2Fden postgres://u:hid%2Fden@h/d u"), "*** *** *** u");
}

#[test]
fn secrets_are_bound_to_hosts() {
    let allow = |toml: &str, env: &[(&str, &str)]| load(toml, env, &[]).unwrap().settings.secrets.allow;
    let bound = "[secrets]\nallow = [\"A@a.com,b.com\", \"B@*.c.com\"]\n";
    assert_eq!(allow(bound, &[]), ["A@a.com,b.com", "B@*.c.com"]);
    let name = "TURNWHEEL_SECRETS__ALLOW";
    assert_eq!(allow(bound, &[(name, "A@a.com,b.com, B@c.com")]), ["A@a.com,b.com", "B@c.com"]);
    assert_eq!(allow("", &[(name, r#"["A@a.com,b.com"]"#)]), ["A@a.com,b.com"]);
    let unbound = [(name, "A,B,C@c.com,d.com"), ("TURNWHEEL_SECRETS__UNBOUND", "true")];
    assert_eq!(allow("", &unbound), ["A", "B", "C@c.com,d.com"]);
    for (toml, env, part) in [
        ("[secrets]\nallow = [\"ORDERS_TOKEN\"]\n", vec![], "`ORDERS_TOKEN@api.example.com`"),
        ("", vec![(name, "A@a.com,CRM_TOKEN")], "`CRM_TOKEN@api.example.com`"),
        ("", vec![(name, "A")], "secrets.unbound = true"),
        ("", vec![(name, "A@a.com:8443")], "`a.com:8443` is no host"),
    ] {
        let text = refusal(toml, &env, &[]);
        assert!(text.contains("`secrets.allow`") && text.contains(part), "{text}");
    }
}

#[test]
fn extra_fields_of_a_model_come_from_files_flags_and_the_environment() {
    let toml = "[models.default]\nprovider = \"openai\"\nbase_url = \"http://a/v1\"\nmodel = \"m\"\nmax_completion_tokens = 900\n\
                extra = { top_p = 0.9, thinking = { type = \"enabled\" }, stop = [\"a\"], user = \"7\" }\n";
    let extra = |env: &[(&str, &str)], flags: &[(&str, &str)]| {
        serde_json::to_value(&load(toml, env, flags).unwrap().settings.models["default"].extra).unwrap()
    };
    let file = serde_json::json!({"top_p": 0.9, "thinking": {"type": "enabled"}, "stop": ["a"], "user": "7"});
    assert_eq!(extra(&[], &[]), file);
    let mut mixed = file;
    mixed["top_p"] = 0.5.into();
    mixed["effort"] = "low".into();
    let one = [("TURNWHEEL_MODELS__DEFAULT__EXTRA__TOP_P", "0.5"), ("TURNWHEEL_MODELS__DEFAULT__EXTRA__EFFORT", "low")];
    assert_eq!(extra(&one, &[]), mixed);
    assert_eq!(extra(&[], &[("models.default.extra.top_p", "0.5"), ("models.default.extra.effort", "low")]), mixed);
    let whole = serde_json::json!({"seed": 7});
    assert_eq!(extra(&[("TURNWHEEL_MODELS__DEFAULT__EXTRA", r#"{"seed":7}"#)], &[]), whole);
    assert_eq!(extra(&[], &[("models.default.extra", r#"{"seed":7}"#)]), whole);
}

#[test]
fn fields_that_cannot_be_sent_are_refused() {
    let toml = "[models.default]\nprovider = \"openai\"\nbase_url = \"http://a/v1\"\nmodel = \"m\"\n";
    let text =
        refusal(&format!("{toml}max_tokens = 1\nmax_completion_tokens = 1\nextra = {{ stream = true }}\n"), &[], &[]);
    assert!(
        text.contains("`models.default.max_completion_tokens`") && text.contains("given together with `max_tokens`"),
        "{text}"
    );
    assert!(
        text.contains("`models.default.extra`") && text.contains("holds `stream`, which the engine writes itself"),
        "{text}"
    );
    let text = refusal(&format!("{toml}extra = 7\napi_key_header = \"a b\"\n"), &[], &[]);
    assert!(text.contains("found `7`; allowed is a table such as"), "{text}");
    assert!(text.contains("`models.default.api_key_header`") && text.contains("found `a b`"), "{text}");
}

#[test]
fn named_tokens_are_read_from_files_and_variables_and_stay_hidden() {
    let toml = "[[gateway.access]]\nname = \"web\"\nrole = \"channel\"\ntoken_env = \"WEB\"\nchannels = [\"web\"]\n\
                [[gateway.access]]\nname = \"desk\"\nrole = \"agent\"\ntoken_env = \"DESK\"\n";
    let env = [
        ("WEB", "hidden-web-token"),
        ("DESK", "hidden-desk-token"),
        ("KNOWN", "Change-Me"),
        ("SHORT", "hidden-1234567"),
    ];
    let loaded = load(toml, &env, &[("gateway.listen", "0.0.0.0:8080")]).unwrap();
    let access = &loaded.settings.gateway.access;
    assert_eq!((access[0].name.as_str(), access[1].role), ("web", Role::Agent));
    assert!(!format!("{:?}", show::rows(&loaded)).contains("hidden"));
    let json = r#"[{"name": "web", "role": "viewer", "token_env": "WEB"}]"#;
    let loaded = load("", &[("TURNWHEEL_GATEWAY__ACCESS", json), env[0]], &[]).unwrap();
    assert_eq!(loaded.settings.gateway.access[0].role, Role::Viewer);
    for (toml, found) in [
        ("[[gateway.access]]\nname = \"web\"\nrole = \"boss\"\ntoken_env = \"WEB\"", "boss"),
        ("[[gateway.access]]\nname = \"web\"\nrole = \"admin\"", "either `token_env` or `token_file`"),
        ("[[gateway.access]]\nname = \"web\"\nrole = \"admin\"\ntoken_env = \"NOWHERE\"", "`NOWHERE` is not set"),
        ("[gateway]\naccess = \"web\"", "[[gateway.access]]"),
        ("[gateway]\nlisten = \"0.0.0.0:8080\"\ntokens = [\"change-me\"]", "everybody knows"),
        (
            "[gateway]\nlisten = \"0.0.0.0:8080\"\n[[gateway.access]]\nname = \"web\"\nrole = \"admin\"\ntoken_env = \"KNOWN\"",
            "`gateway.access[0]`: holds a token that everybody knows",
        ),
        (
            "[gateway]\nlisten = \"0.0.0.0:8080\"\n[[gateway.access]]\nname = \"web\"\nrole = \"admin\"\ntoken_env = \"SHORT\"",
            "`gateway.access[0]`: holds a token of fewer than 16 characters",
        ),
        ("[gateway]\nlisten = \"0.0.0.0:8080\"\ntokens = [\"0123456789abcde\"]", "`gateway.tokens`"),
        ("[gateway]\ntokens = [\"abc\"]", "fewer than 4 characters"),
    ] {
        let text = refusal(toml, &env, &[]);
        assert!(text.contains(found), "{text}");
    }
}
