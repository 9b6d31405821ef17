//! The server of a vendor on a local port.

use super::folder;
use super::recording::{Exchange, Recording, Request};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base::config::Settings;
use base::tasks::{OnPanic, Tasks};
use engine::model::{Model, Models};
use figment::providers::{Format, Serialized, Toml};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const KEY: &str = "vendor-key-0123456789";

struct VendorState {
    left: Mutex<VecDeque<Exchange>>,
    wrong: Mutex<Vec<String>>,
    /// Bytes in each network chunk.
    chunk: usize,
}

/// The server of a recording. Dropping it stops the server.
pub struct Vendor {
    inner: Arc<VendorState>,
    tasks: Tasks,
    settings: Settings,
}

impl Vendor {
    pub async fn start(name: &str, recording: &Recording, chunk: usize) -> Self {
        let left = recording.exchanges.iter().cloned().collect();
        let inner = Arc::new(VendorState { left: Mutex::new(left), wrong: Mutex::default(), chunk });
        let router = Router::new().fallback(handle).with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let stop = tasks.stop_token();
        tasks.spawn("vendor", OnPanic::Log, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                ended = async { axum::serve(listener, router).await } => ended.unwrap(),
            }
        });
        let toml = std::fs::read_to_string(folder().join(name).join("settings.toml")).unwrap();
        let figment = figment::Figment::from(Serialized::defaults(Settings::default())).merge(Toml::string(&toml));
        let mut settings: Settings = figment.extract().unwrap();
        for model in settings.models.values_mut() {
            let url = url::Url::parse(&model.base_url).unwrap();
            let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
            model.base_url = format!("http://{address}{}{query}", url.path());
            model.max_retries = 0;
        }
        Self { inner, tasks, settings }
    }

    pub fn model(&self) -> Arc<dyn Model> {
        Models::from_settings(&self.settings, |_| Some(KEY.to_owned())).unwrap().get("default").unwrap()
    }

    /// Asserts that all recorded requests have arrived, and no others.
    pub fn is_content(&self, name: &str) {
        let wrong = self.inner.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
        let left = self.inner.left.lock().unwrap().len();
        assert_eq!(left, 0, "{name}: recorded requests did not arrive");
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn handle(
    State(inner): State<Arc<VendorState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(exchange) = inner.left.lock().unwrap().pop_front() else {
        inner.wrong.lock().unwrap().push(format!("one more request: {}", String::from_utf8_lossy(&body)));
        return StatusCode::IM_A_TEAPOT.into_response();
    };
    let found = Found { method: method.as_str(), uri: &uri, headers: &headers, body: &body };
    if let Err(problem) = found.is(&exchange.request) {
        inner.wrong.lock().unwrap().push(problem);
        return StatusCode::IM_A_TEAPOT.into_response();
    }
    let bytes = exchange.response.body.into_bytes();
    let chunks: Vec<_> = bytes.chunks(inner.chunk.min(bytes.len())).map(Bytes::copy_from_slice).collect();
    let chunks = futures::StreamExt::then(futures::stream::iter(chunks), async |chunk| {
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(chunk)
    });
    let mut response = Body::from_stream(chunks).into_response();
    *response.status_mut() = StatusCode::from_u16(exchange.response.status).unwrap();
    for (name, value) in &exchange.response.headers {
        response
            .headers_mut()
            .insert(axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    response
}

/// A received request.
struct Found<'a> {
    method: &'a str,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl Found<'_> {
    fn is(&self, expected: &Request) -> Result<(), String> {
        let target = self.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        if (self.method, target.as_str()) != (expected.method.as_str(), expected.target.as_str()) {
            return Err(format!("{} {target}, expected {} {}", self.method, expected.method, expected.target));
        }
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // The key must be in one header only.
        for name in ["authorization", "api-key", "x-api-key", "content-type"] {
            let wanted = expected.headers.iter().find(|(known, _)| known == name);
            let wanted = wanted.map(|(_, value)| value.replace("{key}", KEY)).unwrap_or_default();
            if header(name) != wanted {
                return Err(format!("header {name}: `{}`, expected `{wanted}`", header(name)));
            }
        }
        let body: Value = serde_json::from_slice(self.body).map_err(|error| error.to_string())?;
        if body == expected.body {
            return Ok(());
        }
        Err(format!("the body is {body:#}, expected {:#}", expected.body))
    }
}
