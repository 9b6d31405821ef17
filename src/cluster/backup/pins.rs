//! The first steps of turns that have begun. Such a step has the sequence of the last message that its turn has merged, in
//! the former stream. The restored turn continues from its steps only with the sequence in the new stream.

use super::jobs::{BATCH, Jobs, Place};
use base::error::SharedError;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::Database;
use storage::backup::{BackupError, Result};

/// The key of the first step.
const BEGIN: &str = "begin";

/// Changes the sequences in the first steps of turns that continue. If the new sequence is not known, all steps of the turn
/// are removed, and the turn begins again, under the same idempotency keys.
pub(super) async fn renumber(database: &Database, jobs: &Jobs) -> Result<()> {
    let steps = database.collection::<Document>("steps");
    let open: Vec<&(String, String)> = jobs.open_ids.iter().collect();
    for open in open.chunks(BATCH) {
        let ids: Vec<String> = open.iter().map(|(session, job)| format!("{session}/{job}/{BEGIN}")).collect();
        let find = steps.find(doc! {"_id": {"$in": ids}});
        let found: Vec<Document> = async { find.await?.try_collect().await }.await.map_err(failed)?;
        for step in found {
            let (session_id, turn_id) = (step.get_str("session_id"), step.get_str("turn_id"));
            let (Ok(session_id), Ok(turn_id)) = (session_id, turn_id) else { continue };
            let through = step.get_document("output").ok().and_then(|output| number(output.get("through")?));
            let lane = jobs.lanes.get(session_id).map_or(&[][..], Vec::as_slice);
            match through.and_then(|through| last_merged(lane, turn_id, through)) {
                Some(new) => {
                    let new = i64::try_from(new).unwrap_or(i64::MAX);
                    let update = doc! {"$set": {"output.through": new}};
                    steps.update_one(doc! {"_id": step.get("_id")}, update).await.map_err(failed)?;
                }
                None => {
                    let turn = format!("{session_id}/{turn_id}");
                    // The character after `/` is `0`.
                    let range = doc! {"$gte": format!("{turn}/"), "$lt": format!("{turn}0")};
                    steps.delete_many(doc! {"_id": range}).await.map_err(failed)?;
                }
            }
        }
    }
    Ok(())
}

/// The new sequence of the last message of a turn that had merged the messages up to `through`. `None` if the former
/// sequence of a message is unknown, so that it may have been merged or not.
fn last_merged(lane: &[Place], turn_id: &str, through: u64) -> Option<u64> {
    let own = lane.iter().position(|place| place.job_id == turn_id)?;
    let mut last = None;
    for place in lane.get(own..)? {
        if place.former? > through {
            break;
        }
        last = Some(place.new);
    }
    last
}

fn number(value: &Bson) -> Option<u64> {
    let number = value.as_i64().or_else(|| value.as_i32().map(i64::from))?;
    u64::try_from(number).ok()
}

fn failed(error: mongodb::error::Error) -> BackupError {
    BackupError::backend("`steps` cannot be read or written", SharedError::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_merged_message_is_found_in_the_new_stream() {
        let place = |job_id: &str, former, new| Place { job_id: job_id.into(), former, new };
        let lane = [place("a", Some(7), 1), place("b", Some(9), 4), place("c", Some(12), 5), place("d", None, 6)];
        assert_eq!(last_merged(&lane, "a", 7), Some(1));
        assert_eq!(last_merged(&lane, "a", 10), Some(4), "a message between them belonged to another lane");
        assert_eq!(last_merged(&lane, "b", 11), Some(4));
        assert_eq!(last_merged(&lane, "c", 20), None, "`d` may have been merged");
        assert_eq!(last_merged(&lane, "d", 20), None);
        assert_eq!(last_merged(&lane, "x", 7), None);
    }
}
