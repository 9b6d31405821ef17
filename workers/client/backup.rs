//! The request for a backup.

use super::{CONNECT_TIMEOUT, GatewayClient, is_local, reason};
use crate::failure::Failure;
use base::http_client;
use reqwest::{Method, Response};

impl GatewayClient {
    /// Asks for a backup. The gateway is silent while it copies its file, so the response has no time limit.
    pub async fn backup(&self) -> anyhow::Result<Response> {
        let mut http = http_client::builder().connect_timeout(CONNECT_TIMEOUT);
        if is_local(&self.base) {
            http = http.no_proxy();
        }
        let patient = Self { http: http.build()?, ..self.clone() };
        patient.accepted(patient.api(Method::POST, &["backup"]).send().await).await
    }

    /// The next part of a backup; `None` when it is complete.
    pub async fn next_part(&self, backup: &mut Response) -> anyhow::Result<Option<Vec<u8>>> {
        let part = backup.chunk().await.map_err(|error| {
            let message = format!("the backup of {} broke off: {}", self.base(), reason(&error));
            Failure::new(message, "the log of that process has the reason; data_dir needs room for a copy of the file")
        })?;
        Ok(part.map(|part| part.to_vec()))
    }
}
