//! Reading listings: as many pages as the caller wants entries.

use super::GatewayClient;
use commands::paging::MAX_LIMIT;
use reqwest::RequestBuilder;
use serde::de::DeserializeOwned;
use serde_json::Value;

impl GatewayClient {
    /// The first `limit` entries of a listing, which the response has under `field`.
    pub(super) async fn entries<T: DeserializeOwned>(
        &self,
        asked: RequestBuilder,
        field: &str,
        limit: usize,
    ) -> anyhow::Result<Vec<T>> {
        self.entries_from(asked, field, limit, None).await
    }

    /// The first `limit` entries behind a cursor.
    pub(super) async fn entries_from<T: DeserializeOwned>(
        &self,
        asked: RequestBuilder,
        field: &str,
        limit: usize,
        after: Option<String>,
    ) -> anyhow::Result<Vec<T>> {
        let (mut entries, mut after) = (Vec::new(), after);
        loop {
            let mut page = self.page(&asked, limit - entries.len(), after).await?;
            let more: Vec<T> = serde_json::from_value(page[field].take())?;
            entries.extend(more);
            after = page["next"].as_str().map(str::to_owned);
            // A page without entries may have a cursor, too. A gateway of an earlier version has no cursors.
            if after.is_none() || entries.len() >= limit {
                return Ok(entries);
            }
        }
    }

    /// One page of at most `left` entries.
    pub(super) async fn page(
        &self,
        asked: &RequestBuilder,
        left: usize,
        after: Option<String>,
    ) -> anyhow::Result<Value> {
        let Some(asked) = asked.try_clone() else { anyhow::bail!("a listing is asked for without a body") };
        let asked = asked.query(&[("limit", left.min(MAX_LIMIT))]);
        let asked = match after {
            Some(after) => asked.query(&[("after", after)]),
            None => asked,
        };
        self.call(asked).await
    }
}
