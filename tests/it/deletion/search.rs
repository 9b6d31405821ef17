//! Search for a user's word in everything that queue and store hold.

use crate::support::engine::Engine;
use base::config::Backend;
use bson::Document;
use futures::TryStreamExt;

/// A word that only the user says.
pub const WORD: &str = "Blauwal-4711";

/// The places that hold the word.
pub async fn everywhere(engine: &Engine) -> Vec<String> {
    let mut found = Vec::new();
    match engine.settings.backend {
        Backend::Cluster => {
            found.extend(collections(engine).await);
            found.extend(streams(engine).await);
        }
        // In memory. `files` searches the bytes of a file.
        Backend::Embedded => found.extend(listed(engine).await),
    }
    found
}

async fn collections(engine: &Engine) -> Vec<String> {
    let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let database = client.database(&engine.settings.mongodb.database);
    let mut found = Vec::new();
    for name in database.list_collection_names().await.unwrap() {
        let all = database.collection::<Document>(&name).find(Document::new()).await.unwrap();
        let all: Vec<Document> = all.try_collect().await.unwrap();
        found.extend(all.iter().filter(|one| one.to_string().contains(WORD)).map(|one| format!("{name}: {one}")));
    }
    found
}

async fn streams(engine: &Engine) -> Vec<String> {
    let client = async_nats::connect(&engine.settings.nats.url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let mut found = Vec::new();
    for part in ["JOBS", "OUT", "DEAD"] {
        let name = format!("{}_{part}", engine.settings.namespace.to_uppercase());
        let stream = context.get_stream(&name).await.unwrap();
        let state = stream.cached_info().state.clone();
        for seq in state.first_sequence..=state.last_sequence {
            let Ok(message) = stream.get_raw_message(seq).await else { continue };
            let text =
                format!("{} {:?} {}", message.subject, message.headers, String::from_utf8_lossy(&message.payload));
            found.extend(text.contains(WORD).then(|| format!("{name} {seq}: {text}")));
        }
    }
    found
}

/// The data of the sessions of the tests that the interfaces of queue and store show.
async fn listed(engine: &Engine) -> Vec<String> {
    let (queue, store) = (&engine.queue, &engine.store);
    let mut texts = Vec::new();
    for session in ["s1", "s2", "s3", "s4", "s5", "r1"] {
        texts.push(format!("{:?}", store.session(session).await.unwrap()));
        for turn in store.turns(session, 1_000).await.unwrap() {
            texts.push(format!("{:?} {turn:?}", store.steps(session, &turn.turn_id).await.unwrap()));
        }
        for turn in ["m-1", "m-2", "m-3"] {
            texts.push(format!("{:?}", store.steps(session, turn).await.unwrap()));
        }
        texts.push(format!("{:?}", engine.events(session).await));
        let job = queue.next_in_lane(session, 0, 0).await.unwrap();
        texts.extend(job.map(|job| String::from_utf8_lossy(&job.payload).into_owned()));
    }
    texts.push(format!("{:?}", store.runs(types::run::RunQuery::default()).await.unwrap()));
    for kept in queue.dead_letters(0, 1_000).await.unwrap() {
        texts.push(String::from_utf8_lossy(&kept.letter.payload).into_owned());
    }
    texts.retain(|text| text.contains(WORD));
    texts
}
