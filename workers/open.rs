//! Opening what the settings name: queue, store, and the services that turns work with.

use std::path::Path;
use std::sync::Arc;
use turnwheel::action::http::{HttpCaller, SecretFill};
use turnwheel::action::tool::Tools;
use turnwheel::config::secrets::SecretValues;
use turnwheel::config::{Backend, Settings};
use turnwheel::model::Models;
use turnwheel::prompt::Prompts;
use turnwheel::queue::Queue;
use turnwheel::queue::embedded::EmbeddedQueue;
use turnwheel::queue::nats::NatsQueue;
use turnwheel::store::Store;
use turnwheel::store::embedded::{self, EmbeddedFile, EmbeddedStore};
use turnwheel::store::mongo::MongoStore;
use turnwheel::tasks::Tasks;
use turnwheel::turn::Services;
use turnwheel::workflow::Flows;

/// A queue and a store.
pub type Opened = (Arc<dyn Queue>, Arc<dyn Store>);

/// Opens the backend that the settings name. The cluster's servers are waited for, with a log line while they are away.
pub async fn backend(settings: &Settings, tasks: &Tasks) -> anyhow::Result<Opened> {
    match settings.backend {
        Backend::Embedded => {
            let file = EmbeddedFile::open(&embedded::path(settings))?;
            let queue = EmbeddedQueue::new(Arc::clone(&file), settings, tasks).await?;
            Ok((queue, EmbeddedStore::new(file, settings)?))
        }
        Backend::Cluster => {
            let queue = NatsQueue::connect(settings, tasks.stop_token()).await?;
            let store = MongoStore::connect(settings, tasks).await?;
            Ok((Arc::new(queue), Arc::new(store)))
        }
    }
}

/// What turns of a worker work with.
pub fn services(settings: &Settings, (queue, store): Opened) -> anyhow::Result<Services> {
    let secrets = Arc::new(SecretValues::from_settings(settings));
    let (fill, mask) = (Arc::clone(&secrets), Arc::clone(&secrets));
    let http = HttpCaller::new(
        SecretFill::new(
            Arc::new(move |text: &str| fill.fill(text).map_err(|error| error.to_string())),
            Arc::new(move |text: &str| mask.mask(text)),
        ),
        &settings.http.allow_private,
    )?;
    let prompts = Some(settings.prompts_dir.clone()).filter(|dir| Path::new(dir).is_dir());
    Ok(Services {
        queue,
        store,
        models: Models::from_settings(settings, |name| secrets.api_key(name))?,
        prompts: Prompts::new(prompts),
        http,
        tools: Tools::default(),
        flows: Flows::builtin(),
    })
}
