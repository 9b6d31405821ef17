//! Checks of the local files and environment: prompts, models' keys, agent files.

use super::{Finding, Level};
use base::config::{Backend, Provider, SecretValues, Settings, rights};
use definitions::agent::{AgentRecord, load};
use engine::prompt::Prompts;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::store::Store;

/// Checks the prompts, the keys of models and secrets, and settings that have no effect.
pub fn files(settings: &Settings) -> Vec<Finding> {
    let mut findings = prompts(settings);
    findings.extend(keys(settings));
    findings.extend(data_file(settings));
    findings
}

/// Checks who may read the file of the embedded backend.
fn data_file(settings: &Settings) -> Option<Finding> {
    let path = settings.data_dir.join("turnwheel.redb");
    let mode = rights::open_to_others(&path).filter(|_| settings.backend == Backend::Embedded)?;
    // A folder that others cannot enter protects its files.
    rights::open_to_others(&settings.data_dir)?;
    let what = format!("other users of this machine may read the conversations in {} (mode {mode:o})", path.display());
    Some(Finding::problem("data_dir", what, format!("run `chmod 600 {}`", path.display())))
}

fn prompts(settings: &Settings) -> Vec<Finding> {
    let place = format!("prompts_dir = {}", settings.prompts_dir.display());
    if !settings.prompts_dir.is_dir() {
        return vec![Finding::ok(place, "the folder does not exist: the compiled-in prompts are used")];
    }
    let broken = Prompts::new(Some(settings.prompts_dir.clone())).check();
    if broken.is_empty() {
        return vec![Finding::ok(place, "all prompts in it are valid")];
    }
    let remedy = "correct it; until then the compiled-in prompt of that name is used";
    broken.into_iter().map(|error| Finding::problem(place.clone(), error.to_string(), remedy)).collect()
}

fn keys(settings: &Settings) -> Vec<Finding> {
    let secrets = SecretValues::from_settings(settings);
    let models = settings.models.iter().filter(|(_, model)| model.provider == Provider::Openai);
    let mut findings = Vec::new();
    for (name, variable) in models.filter_map(|(name, model)| Some((name, model.api_key_env.as_ref()?))) {
        let place = format!("models.{name}.api_key_env");
        findings.push(match secrets.is_set(variable) {
            true => Finding::ok(place, format!("{variable} is set")),
            false => {
                let remedy = format!("workers need it to start: set {variable} where they run");
                Finding::advice(place, format!("{variable} is not set here"), remedy)
            }
        });
    }
    if settings.secrets.unbound {
        let place = "secrets.unbound = true";
        let what = "every agent and workflow may send the secrets without hosts to any host";
        let remedy = "bind each in `secrets.allow`, such as `ORDERS_TOKEN@api.example.com`, and remove the setting";
        findings.push(Finding::advice(place, what, remedy));
    }
    for name in settings.secrets.allowed().names().filter(|name| !secrets.is_set(name)) {
        let remedy = format!("set {name} where workers run, or remove it from the setting");
        findings.push(Finding::advice("secrets.allow", format!("{name} is not set here"), remedy));
    }
    findings
}

/// Checks the agent files: reports invalid files, and files that the store does not have in this version.
pub async fn unapplied(store: &dyn Store, settings: &Settings) -> Vec<Finding> {
    let place = format!("agents_dir = {}", settings.agents_dir.display());
    if !settings.agents_dir.is_dir() {
        return Vec::new();
    }
    let (mut findings, mut filed) = (Vec::new(), BTreeSet::new());
    for (path, read) in load::read_path(&settings.agents_dir) {
        let path = path.display().to_string();
        let agent = match read {
            Ok(agent) => {
                filed.insert(agent.id().to_owned());
                agent
            }
            Err(problem) => {
                let remedy = format!("correct it, and check it with `turnwheel agents validate {path}`");
                findings.push(Finding::problem(path, problem.to_string(), remedy));
                continue;
            }
        };
        let stored = store.agent(agent.id()).await;
        if stored.is_ok_and(|stored| stored.is_none_or(|stored| stored.hash != agent.hash)) {
            let what = format!("the store has another version of agent `{}` than this file, or none", agent.id());
            findings.push(Finding::advice(
                path,
                what,
                "store it with `turnwheel agents apply`, if it is meant for here",
            ));
        }
    }
    // Without a readable file of every agent it is not known which agents have none.
    if findings.iter().all(|finding| finding.level < Level::Problem) {
        findings.extend(without_file(store, &filed).await);
    }
    if findings.is_empty() {
        findings.push(Finding::ok(place, "all files in it are applied"));
    }
    findings
}

/// Reports stored agents that no file has. `filed` are the ids in the files.
pub async fn without_file(store: &dyn Store, filed: &BTreeSet<String>) -> Vec<Finding> {
    let Ok(stored) = store.agents().await else { return Vec::new() };
    let gone = stored.good.iter().filter(|agent| !filed.contains(agent.id()));
    let finding = |agent: &Arc<AgentRecord>| {
        let id = agent.id();
        let what = "the store has it, and agents_dir has no file of it: it still answers";
        Finding::advice(format!("agent {id}"), what, format!("`turnwheel agents delete {id}`, or restore its file"))
    };
    gone.map(finding).collect()
}
