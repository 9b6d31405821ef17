//! A MongoDB replica set of three members that can be paused, or stop applying replicated operations.

use super::eventually;
use super::servers::Server;
use bson::{Document, doc};
use mongodb::Client;
use std::time::Duration;

/// Time limit for the election of a primary.
const ELECTION: Duration = Duration::from_secs(60);
/// The member that never becomes primary. It has the tag `role: reader`.
pub const READER: usize = 2;

/// The three members. Dropping this stops them.
pub struct ReplicaSet {
    members: Vec<Server>,
}

impl ReplicaSet {
    /// Starts the members and waits for a primary. The members elect a new one after three seconds without the old one.
    pub async fn start() -> Self {
        let set = Self {
            members: (0..3).map(|_| Server::mongod_with(&["--setParameter", "enableTestCommands=1"])).collect(),
        };
        let member = |(id, server): (usize, &Server)| {
            let mut member = doc! {"_id": i32::try_from(id).unwrap(), "host": server.host()};
            if id == READER {
                member.extend(doc! {"priority": 0, "tags": {"role": "reader"}});
            }
            member
        };
        let members: Vec<Document> = set.members.iter().enumerate().map(member).collect();
        let settings = doc! {"electionTimeoutMillis": 3_000, "heartbeatIntervalMillis": 500};
        let config = doc! {"_id": "rs0", "members": members, "settings": settings};
        let first = Client::with_uri_str(set.members[0].address()).await.unwrap();
        first.database("admin").run_command(doc! {"replSetInitiate": config}).await.unwrap();
        let client = Client::with_uri_str(set.uri()).await.unwrap();
        let database = client.database("admin");
        eventually(ELECTION, "the set takes writes by majority", || async {
            let status = database.run_command(doc! {"replSetGetStatus": 1}).await.ok()?;
            let members = status.get_array("members").ok()?.iter().filter_map(bson::Bson::as_document);
            let states: Vec<i32> = members.filter_map(|member| member.get_i32("state").ok()).collect();
            (states.iter().filter(|state| **state == 1).count() == 1
                && states.iter().all(|state| [1, 2].contains(state)))
            .then_some(())
        })
        .await;
        set
    }

    pub fn uri(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(Server::host).collect();
        format!("mongodb://{}/?replicaSet=rs0", hosts.join(","))
    }

    pub fn member(&self, number: usize) -> &Server {
        &self.members[number]
    }

    /// The current secondaries.
    pub async fn secondaries(&self) -> Vec<usize> {
        let mut secondaries = Vec::new();
        for number in 0..self.members.len() {
            let hello = self.ask(number, doc! {"hello": 1}).await;
            if !hello.get_bool("isWritablePrimary").unwrap() {
                secondaries.push(number);
            }
        }
        secondaries
    }

    /// Pauses or resumes the application of replicated operations on a member.
    pub async fn applies(&self, member: usize, applies: bool) {
        let mode = if applies { "off" } else { "alwaysOn" };
        self.ask(member, doc! {"configureFailPoint": "rsSyncApplyStop", "mode": mode}).await;
    }

    async fn ask(&self, member: usize, question: Document) -> Document {
        let client = Client::with_uri_str(self.members[member].address()).await.unwrap();
        client.database("admin").run_command(question).await.unwrap()
    }
}
