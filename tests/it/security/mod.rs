//! The project from an attacker's view: leaks of secrets, injection through params, forbidden targets, and clients that
//! violate the protocol.

mod depth;
mod identity;
mod injection;
mod leaks;
mod limits;
mod nodes;
mod python;
mod python_command;
mod secrets;
mod targets;

use crate::support::background;
use base::config::SecretError;
use engine::action::ActionResult;
use engine::action::http::{HttpCaller, SecretFill};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use types::agent::HttpCall;

type ServerScript = dyn Fn(&str) -> String + Send + Sync;

/// A server that keeps every request as raw text.
#[derive(Clone)]
struct Raw {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Raw {
    /// Responds to each request with the result of `script`: a status line with headers, an empty line, a body.
    async fn start(script: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let raw = Self { port: listener.local_addr().unwrap().port(), seen: Arc::default() };
        let (seen, script): (_, Arc<ServerScript>) = (Arc::clone(&raw.seen), Arc::new(script));
        background(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                background(async move {
                    let _ = answer(stream, &seen, script.as_ref()).await;
                });
            }
        });
        raw
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Handles one request per connection.
async fn answer(mut stream: TcpStream, seen: &Mutex<Vec<String>>, script: &ServerScript) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while !whole(&bytes) {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&bytes).into_owned();
    let response = script(&request);
    seen.lock().unwrap().push(request);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let head = format!("{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

fn whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().filter_map(|line| line.split_once(": ")).find(|(name, _)| *name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse::<usize>().unwrap());
    let begin = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    bytes.len() >= begin + length
}

/// A JSON response with status 200.
fn ok(body: &Value) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
}

/// Calls a skill as an agent would. The only secret is `${TOKEN}`.
async fn call(allow: &[&str], template: Value, params: Value) -> ActionResult {
    let fill = |token: &str, _: &str| match token {
        "${TOKEN}" => Ok("s3cret".to_owned()),
        other => Err(SecretError::NotSet(other.to_owned())),
    };
    let secrets = SecretFill::new(Arc::new(fill), Arc::new(|text| text.replace("s3cret", "***")));
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    let template: HttpCall = serde_json::from_value(template).unwrap();
    let params: Map<String, Value> = serde_json::from_value(params).unwrap();
    HttpCaller::new(secrets, &allow).unwrap().call(&template, &params, "s1/m-1/0/act").await
}

fn text(result: &ActionResult) -> &str {
    result.error.as_deref().unwrap_or_default()
}
