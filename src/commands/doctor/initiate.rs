//! Detecting and initiating a replica set that is not initiated. mongosh can initiate one, too, but mongod comes
//! without it.

use super::{CHECK_TIMEOUT, Finding, in_time};
use base::config::Settings;
use base::config::secrets::masked_address;
use bson::{Document, doc};
use cluster::mongo::connect::ask_admin;
use cluster::mongo::problem::sentence;
use mongodb::Client;
use mongodb::options::ClientOptions;
use std::time::{Duration, Instant};

/// Connects directly to the first server, whatever the state of its replica set.
async fn direct(settings: &Settings) -> Result<(Client, Vec<String>), String> {
    let mut options = ClientOptions::parse(&settings.mongodb.uri).await.map_err(|error| sentence(&error))?;
    let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
    options.hosts.truncate(1);
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.server_selection_timeout = Some(CHECK_TIMEOUT / 2);
    Ok((Client::with_options(options).map_err(|error| sentence(&error))?, hosts))
}

async fn hello(client: &Client) -> Result<Document, String> {
    in_time(ask_admin(client, doc! {"hello": 1})).await
}

pub(super) fn is_uninitiated(hello: &Document) -> bool {
    hello.get_bool("isreplicaset").unwrap_or(false) && !hello.contains_key("setName")
}

/// True when the server waits for its replica set to be initiated.
pub(super) async fn uninitiated(settings: &Settings) -> bool {
    let Ok((client, _)) = direct(settings).await else { return false };
    hello(&client).await.is_ok_and(|hello| is_uninitiated(&hello))
}

/// The finding for a replica set that is not initiated.
pub(super) fn not_initiated(place: &str) -> Finding {
    let what = "mongod is in a replica set that is not initiated: it takes no writes";
    Finding::problem(place, what, "run `turnwheel doctor --initiate`, or `rs.initiate()` in mongosh; once is enough")
}

/// Initiates the replica set of the servers in `mongodb.uri`, and waits for its primary. Does nothing when the set is
/// already initiated.
pub async fn initiate(settings: &Settings) -> Finding {
    let place = format!("mongodb.uri = {}", masked_address(&settings.mongodb.uri));
    match try_initiate(settings).await {
        Ok(what) => Finding::ok(place, what),
        Err(problem) => {
            let remedy = "start mongod with `--replSet rs0`, or correct mongodb.uri (MONGODB_URI)";
            Finding::problem(place, format!("the replica set is not initiated: {problem}"), remedy)
        }
    }
}

async fn try_initiate(settings: &Settings) -> Result<String, String> {
    let (client, hosts) = direct(settings).await?;
    let found = hello(&client).await?;
    if let Ok(name) = found.get_str("setName") {
        return Ok(format!("the replica set `{name}` is initiated already"));
    }
    if !is_uninitiated(&found) {
        return Err("this mongod is not a member of a replica set".to_owned());
    }
    let line = in_time(ask_admin(&client, doc! {"getCmdLineOpts": 1})).await?;
    let parsed = line.get_document("parsed").and_then(|parsed| parsed.get_document("replication"));
    let named = parsed.ok().and_then(|found| found.get_str("replSet").or_else(|_| found.get_str("replSetName")).ok());
    let name = named.unwrap_or("rs0").to_owned();
    let member = |(id, host): (usize, &String)| doc! {"_id": i32::try_from(id).unwrap_or(i32::MAX), "host": host};
    let members: Vec<Document> = hosts.iter().enumerate().map(member).collect();
    let config = doc! {"_id": &name, "members": members};
    in_time(ask_admin(&client, doc! {"replSetInitiate": config})).await?;
    let begun = Instant::now();
    while begun.elapsed() < 2 * CHECK_TIMEOUT {
        if in_time(cluster::mongo::connect::client(settings)).await.is_ok()
            && hello(&client).await.is_ok_and(|hello| hello.contains_key("primary"))
        {
            return Ok(format!("the replica set `{name}` is initiated, with {}", hosts.join(", ")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("`{name}` has no primary after {} s", (2 * CHECK_TIMEOUT).as_secs()))
}
