//! A proxy to nats-server that lets a test see, change or drop the messages of clients.

use super::background;
use super::servers::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Decision about a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    GetsLost,
}

/// Starts a proxy to `server` and returns its address. `look` gets the subject and the bytes, headers included, of each
/// published message. It may change the bytes, but not their number.
pub async fn way_to(server: &Server, look: impl FnMut(&str, &mut [u8]) -> Fate + Clone + Send + 'static) -> String {
    way_to_address(&server.address(), look).await
}

/// Like [`way_to`], to the server at this address.
pub async fn way_to_address(
    server: &str,
    look: impl FnMut(&str, &mut [u8]) -> Fate + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("nats://{}", listener.local_addr().unwrap());
    let target = server.trim_start_matches("nats://").to_owned();
    background(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = TcpStream::connect(&target).await.unwrap().into_split();
            background(async move { drop(tokio::io::copy(&mut from_server, &mut to_client).await) });
            let mut look = look.clone();
            background(async move {
                let (mut seen, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
                while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                    seen.extend_from_slice(&bytes[..length]);
                    while let Some(whole) = operation(&seen) {
                        let mut operation: Vec<u8> = seen.drain(..whole).collect();
                        if fate(&mut operation, &mut look) == Fate::Passes
                            && to_server.write_all(&operation).await.is_err()
                        {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

fn line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

fn is_message(line: &str) -> bool {
    line.starts_with("PUB ") || line.starts_with("HPUB ")
}

/// Length of the first protocol operation, once it has arrived completely.
fn operation(bytes: &[u8]) -> Option<usize> {
    let end = line(bytes)?;
    let text = std::str::from_utf8(&bytes[..end]).unwrap().trim_end();
    let payload: usize =
        if is_message(text) { text.rsplit(' ').next().unwrap().parse::<usize>().unwrap() + 2 } else { 0 };
    (bytes.len() >= end + payload).then_some(end + payload)
}

fn fate(operation: &mut [u8], look: &mut impl FnMut(&str, &mut [u8]) -> Fate) -> Fate {
    let end = line(operation).unwrap();
    let text = std::str::from_utf8(&operation[..end]).unwrap().to_owned();
    if is_message(&text) { look(text.split(' ').nth(1).unwrap(), &mut operation[end..]) } else { Fate::Passes }
}

/// Changes a direct get so that it asks beyond the end of the lane. The response is that of a replica that has not
/// applied the lane's messages yet.
pub fn lag(request: &mut [u8]) {
    const FIELD: &[u8] = b"\"seq\":";
    let Some(at) = request.windows(FIELD.len()).position(|window| window == FIELD) else { return };
    request[at + FIELD.len()..].iter_mut().take_while(|byte| byte.is_ascii_digit()).for_each(|digit| *digit = b'9');
}
