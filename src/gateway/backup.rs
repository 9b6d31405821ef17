//! `POST /api/v1/backup`: a backup of the embedded file, which only this process can open.

use super::operation::Operation;
use super::roles::ADMINS;
use super::{GatewayState, Reject};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use storage::backup::FileCopy;
use tokio::sync::mpsc::{self, Sender};
use tracing::warn;

/// Parts of a backup that wait for the client, of [`PART_BYTES`] each.
const PARTS_AHEAD: usize = 4;
const PART_BYTES: usize = 256 * 1024;

pub(super) const CREATE: Operation = Operation::post("/api/v1/backup", "operation", "create_backup")
    .roles(ADMINS)
    .summary("Returns a backup of the embedded file, as of one moment.")
    .details(
        "A tar archive, which `turnwheel restore` takes. Its last entry is `manifest.json`: an archive without it is not \
         complete. The response begins when the copy is written, which needs as much room in `data_dir` as the data. \
         A cluster is backed up with `turnwheel backup`.",
    )
    .archive("The backup");
pub(super) async fn create(State(state): State<GatewayState>) -> Result<Response, Reject> {
    let copy = state.store.copy_file().await?.ok_or_else(|| {
        let hint = "back up a cluster with `turnwheel backup` where NATS and MongoDB can be reached";
        Reject::new(StatusCode::CONFLICT, "no_file", "this system keeps its data in no file", hint)
    })?;
    let (sender, receiver) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || send(copy, &sender));
    let parts = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(([(CONTENT_TYPE, "application/x-tar")], Body::from_stream(parts)).into_response())
}

/// Sends the archive. An error ends the response early, so that the client sees that it is not complete.
fn send(copy: FileCopy, sender: &Sender<io::Result<Bytes>>) {
    let target = BufWriter::with_capacity(PART_BYTES, Parts(sender.clone()));
    let saved = copy.save(target, Path::new("the response")).map_err(|error| io::Error::other(error.to_string()));
    if let Err(error) = saved.and_then(|(_, mut target)| target.flush()) {
        warn!("a backup was not sent completely: {error}");
        // Sending fails only when the client has gone.
        let _ = sender.blocking_send(Err(error));
    }
}

/// Sends the written bytes as parts of the response.
struct Parts(Sender<io::Result<Bytes>>);

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
