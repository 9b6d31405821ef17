//! Two namespaces share neither a database nor a stream.

use crate::support::engine::sandbox;
use crate::support::servers::cluster;
use base::config::Settings;
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use commands::doctor::{self, Level, Tools};
use connectors::Connectors;
use engine::workflow::Flows;
use tokio_util::sync::CancellationToken;

async fn opened(settings: &Settings) -> Result<(), String> {
    MongoStore::connect(settings, &Tasks::new()).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_belongs_to_the_namespace_that_used_it_first() {
    let settings = cluster().await.settings();
    opened(&settings).await.unwrap();
    opened(&settings).await.unwrap();
    let other = Settings { namespace: "staging".into(), ..settings.clone() };
    let refused = opened(&other).await.unwrap_err();
    for part in [format!("belongs to namespace `{}`", settings.namespace), "set mongodb.database to".into()] {
        assert!(refused.contains(&part), "{part}: {refused}");
    }
    let (sandbox, connectors) = (sandbox(&other), Connectors::default());
    let tools = Tools { sandbox: &sandbox, connectors: &connectors };
    let findings = Box::pin(doctor::cluster(&other, &Flows::builtin(), tools, None)).await;
    let found = findings.iter().find(|finding| finding.place == settings.mongodb.database).unwrap();
    assert!(found.level == Level::Problem && found.what.contains("belongs to namespace"), "{found:?}");
    assert!(found.remedy.contains("mongodb.database"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_that_differ_in_case_alone_are_refused_on_one_nats_server() {
    let settings = cluster().await.settings();
    NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap();
    let other = Settings { namespace: settings.namespace.to_uppercase(), ..settings.clone() };
    let Err(refused) = NatsQueue::connect(&other, CancellationToken::new()).await else {
        panic!("namespaces with the same stream names were accepted");
    };
    let refused = refused.to_string();
    for part in [format!("belongs to namespace `{}`", settings.namespace), "set namespace to another name".into()] {
        assert!(refused.contains(&part), "{part}: {refused}");
    }
}
