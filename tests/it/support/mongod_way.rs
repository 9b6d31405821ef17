//! A proxy to mongod that lets a test see the commands of clients and change the server's responses.

use super::background;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts a proxy to the server at `uri` and returns its address. `asked` gets each message of a client, `answered`
/// each of the server. `answered` may change the bytes, but not their number.
pub async fn way_to_mongod(
    uri: &str,
    asked: impl FnMut(&[u8]) + Clone + Send + 'static,
    answered: impl FnMut(&mut [u8]) + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = uri.trim_start_matches("mongodb://").split('/').next().unwrap().to_owned();
    background(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = TcpStream::connect(&target).await.unwrap().into_split();
            let mut asked = asked.clone();
            background(pass(from_client, to_server, move |message: &mut [u8]| asked(message)));
            background(pass(from_server, to_client, answered.clone()));
        }
    });
    format!("mongodb://{address}/?directConnection=true")
}

/// Passes messages on until one side disconnects. Each message begins with its length.
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut look: impl FnMut(&mut [u8]),
) {
    const LENGTH: usize = 4;
    let mut length = [0; LENGTH];
    while from.read_exact(&mut length).await.is_ok() {
        let mut message = vec![0; usize::try_from(u32::from_le_bytes(length)).unwrap()];
        message[..LENGTH].copy_from_slice(&length);
        if from.read_exact(&mut message[LENGTH..]).await.is_err() {
            return;
        }
        look(&mut message);
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// Position of `part` in a message.
pub fn find(message: &[u8], part: &[u8]) -> Option<usize> {
    message.windows(part.len()).position(|window| window == part)
}
