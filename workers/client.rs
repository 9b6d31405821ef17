//! A client of the gateway's HTTP API.

mod authoring;
mod backup;
mod deletion;
mod events;
mod handoffs;
mod knowledge;
mod pages;
mod sessions;
mod versions;

pub use events::{Events, Followed};
pub use sessions::SessionFilter;
pub use versions::{ChangeArgs, DocumentKind, Upload};

use crate::failure::Failure;
use base::http_client;
use commands::agents::AgentSummary;
use commands::dead_letters::{DeadLetterDetails, DeadLetterSummary, ReplayedLetter};
use commands::doctor::Finding;
use commands::enqueue::Accepted;
use commands::messages::NewMessage;
use commands::models::ModelList;
use commands::run_answers::{AnsweredRun, NewAnswer};
use commands::run_details::{RunDetails, RunDiagram, RunSummary};
use commands::runs::{NewRun, StartedRun};
use commands::session_decisions::SessionDecision;
use commands::sessions::{SessionDetails, TurnDetails};
use commands::timers::PendingTimer;
use commands::workflows::WorkflowSummary;
use engine::admission::WorkersOverview;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use storage::store::Process;
use types::audit::AuditEntry;
use types::job::{Command, Control};
use types::run::RunQuery;
use types::turn::TurnRecord;
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The gateway sends a comment every 15 s. A longer silence means that the connection is lost.
const MAX_SILENCE: Duration = Duration::from_secs(40);

/// Requests for the details of a listing that run at the same time.
pub const CONCURRENT_REQUESTS: usize = 8;
/// Remedy for an error of the cluster behind a gateway of this process.
const SERVERS_HINT: &str = "check NATS and MongoDB with `turnwheel doctor`";

/// A client of one gateway. Cheap to clone.
#[derive(Clone)]
pub struct GatewayClient {
    http: Client,
    base: Url,
    token: Option<String>,
    /// Whether this process serves the gateway itself.
    is_own: bool,
}

impl GatewayClient {
    /// A client for the gateway at `base`, such as `http://127.0.0.1:8080`.
    pub fn new(base: &str, token: Option<String>) -> anyhow::Result<Self> {
        let wrong = |problem: &str| {
            Failure::new(
                format!("`{base}` is not the address of a gateway: {problem}"),
                "write it like http://127.0.0.1:8080",
            )
        };
        let base = Url::parse(base).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong("it must begin with http:// or https://").into());
        }
        let mut builder = http_client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(MAX_SILENCE);
        if is_local(&base) {
            // A proxy cannot reach this machine's loopback address.
            builder = builder.no_proxy();
        }
        Ok(Self { http: builder.build()?, base, token, is_own: false })
    }

    /// Marks the gateway as served by this process: errors name the servers behind it, and no knowledge is refreshed in
    /// it, because workers do so by themselves.
    pub fn of_own_gateway(self) -> Self {
        Self { is_own: true, ..self }
    }

    /// The gateway's address, for messages.
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// True if a gateway responds at the address.
    pub async fn is_alive(&self) -> bool {
        let asked = self.request(Method::GET, &["healthz"]).timeout(Duration::from_secs(2)).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    pub async fn send(&self, message: &NewMessage) -> anyhow::Result<Accepted> {
        self.call(self.api(Method::POST, &["messages"]).json(message)).await
    }

    /// The session, and whether its lane has jobs.
    pub async fn session(&self, session_id: &str) -> anyhow::Result<Option<SessionDetails>> {
        known(self.call(self.api(Method::GET, &["sessions", session_id])).await)
    }

    /// The last turns with their steps, oldest first.
    pub async fn turns(&self, session_id: &str, limit: usize) -> anyhow::Result<Vec<TurnDetails>> {
        let asked = self.api(Method::GET, &["sessions", session_id, "turns"]);
        let mut turns: Vec<TurnRecord> = self.entries(asked, "turns", limit).await?;
        turns.reverse();
        let details = stream::iter(turns).map(async |turn| self.turn(session_id, &turn.turn_id).await);
        details.buffered(CONCURRENT_REQUESTS).try_collect().await
    }

    /// A turn with all of its steps.
    pub async fn turn(&self, session_id: &str, turn_id: &str) -> anyhow::Result<TurnDetails> {
        let asked = self.api(Method::GET, &["sessions", session_id, "turns", turn_id]);
        let Some(first) = asked.try_clone() else { return self.call(asked).await };
        let mut turn: TurnDetails = self.call(first).await?;
        if let Some(next) = turn.next.take() {
            turn.steps.extend(self.entries_from(asked, "steps", usize::MAX, Some(next)).await?);
        }
        Ok(turn)
    }

    /// The decisions of a session's last turns; with `replay` judged again.
    pub async fn decisions(
        &self,
        session_id: &str,
        turns: usize,
        replay: bool,
    ) -> anyhow::Result<Vec<SessionDecision>> {
        let asked = self.api(Method::GET, &["sessions", session_id, "decisions"]);
        let asked = asked.query(&[("replay", replay)]);
        let (mut left, mut next, mut decisions) = (turns, None, Vec::new());
        loop {
            let mut page = self.page(&asked, left, next).await?;
            // A page has its decisions in their order, and the next one earlier ones.
            let mut earlier: Vec<SessionDecision> = serde_json::from_value(page["decisions"].take())?;
            earlier.append(&mut decisions);
            decisions = earlier;
            let covered = page["turns"].as_u64().and_then(|turns| usize::try_from(turns).ok());
            left = left.saturating_sub(covered.unwrap_or(left));
            next = page["next"].as_str().map(str::to_owned);
            if left == 0 || next.is_none() {
                return Ok(decisions);
            }
        }
    }

    /// True if the store has a turn of this id.
    pub async fn has_turn(&self, session_id: &str, turn_id: &str) -> anyhow::Result<bool> {
        let path = ["sessions", session_id, "turns", turn_id];
        Ok(known(self.call::<TurnDetails>(self.api(Method::GET, &path)).await)?.is_some())
    }

    pub async fn control(&self, session_id: &str, order: &Control) -> anyhow::Result<Accepted> {
        let verb: &[&str] = match order.command {
            Command::Cancel => &["cancel"],
            Command::Release => &["release"],
            Command::Close => &["close"],
            Command::CancelTimers => &["timers", "cancel"],
            Command::Note => &["notes"],
            // These have another response: see `change_claim`.
            Command::Claim => &["claim"],
            Command::Unclaim => &["unclaim"],
            Command::Transfer => &["transfer"],
        };
        let body = match order.command {
            Command::Note => json!({ "text": order.note, "by": order.by }),
            _ => json!(order),
        };
        self.call(self.api(Method::POST, &[&["sessions", session_id], verb].concat()).json(&body)).await
    }

    pub async fn timers(&self, session_id: Option<&str>, limit: usize) -> anyhow::Result<Vec<PendingTimer>> {
        let filter: Vec<_> = session_id.map(|session_id| ("session_id", session_id)).into_iter().collect();
        self.entries(self.api(Method::GET, &["timers"]).query(&filter), "timers", limit).await
    }

    pub async fn audit(&self, after: Option<&str>, limit: usize) -> anyhow::Result<Vec<AuditEntry>> {
        self.entries_from(self.api(Method::GET, &["audit"]), "entries", limit, after.map(str::to_owned)).await
    }

    pub async fn letters(&self, limit: usize) -> anyhow::Result<Vec<DeadLetterSummary>> {
        self.entries(self.api(Method::GET, &["dead"]), "letters", limit).await
    }

    pub async fn letter(&self, which: &str) -> anyhow::Result<DeadLetterDetails> {
        self.call(self.api(Method::GET, &["dead", which])).await
    }

    pub async fn replay(&self, which: &str) -> anyhow::Result<ReplayedLetter> {
        self.call(self.api(Method::POST, &["dead", which, "replay"])).await
    }

    pub async fn doctor(&self) -> anyhow::Result<Vec<Finding>> {
        self.listing(self.api(Method::GET, &["doctor"]), "findings").await
    }

    /// The running workers.
    pub async fn workers_overview(&self) -> anyhow::Result<WorkersOverview> {
        Ok(WorkersOverview::new(self.processes().await?))
    }

    /// The running processes; empty if the gateway is of an earlier version.
    async fn processes(&self) -> anyhow::Result<Vec<Process>> {
        match self.entries(self.api(Method::GET, &["processes"]), "processes", usize::MAX).await {
            Err(error) if crate::failure::is_unknown(&error) => Ok(Vec::new()),
            answer => answer,
        }
    }

    pub async fn agents(&self) -> anyhow::Result<Vec<AgentSummary>> {
        self.entries(self.api(Method::GET, &["agents"]), "agents", usize::MAX).await
    }

    pub async fn models(&self) -> anyhow::Result<ModelList> {
        let (asked, mut next) = (self.api(Method::GET, &["models"]), None);
        let mut list = ModelList { agents: Vec::new(), stages: Vec::new(), models: Vec::new(), next: None };
        loop {
            let page: ModelList = serde_json::from_value(self.page(&asked, usize::MAX, next).await?)?;
            list.agents.extend(page.agents);
            list.stages.extend(page.stages);
            list.models.extend(page.models);
            next = page.next;
            if next.is_none() {
                return Ok(list);
            }
        }
    }

    pub async fn workflows(&self) -> anyhow::Result<Vec<WorkflowSummary>> {
        self.entries(self.api(Method::GET, &["workflows"]), "workflows", usize::MAX).await
    }

    /// The plans of a session, the last used first.
    pub async fn plans(&self, session_id: &str) -> anyhow::Result<Vec<WorkflowSummary>> {
        let filter = [("owner_session", session_id)];
        self.entries(self.api(Method::GET, &["workflows"]).query(&filter), "workflows", usize::MAX).await
    }

    pub async fn start_run(&self, new: &NewRun) -> anyhow::Result<StartedRun> {
        let NewRun { query, input, session_id, user_id, channel, run_id, .. } = new;
        let body = json!({
            "query": query, "input": input, "session_id": session_id, "user_id": user_id, "channel": channel, "run_id": run_id,
        });
        self.call(self.api(Method::POST, &["workflows", &new.workflow_id, "runs"]).json(&body)).await
    }

    pub async fn runs(&self, query: &RunQuery) -> anyhow::Result<Vec<RunSummary>> {
        let status = query.status.map(|status| ("status", status.as_str().to_owned()));
        let workflow = query.workflow_id.clone().map(|workflow_id| ("workflow_id", workflow_id));
        let session = query.origin_session.clone().map(|session_id| ("session_id", session_id));
        let filters: Vec<_> = status.into_iter().chain(workflow).chain(session).collect();
        self.entries(self.api(Method::GET, &["runs"]).query(&filters), "runs", query.limit).await
    }

    pub async fn run(&self, run_id: &str) -> anyhow::Result<RunDetails> {
        self.call(self.api(Method::GET, &["runs", run_id])).await
    }

    pub async fn run_diagram(&self, run_id: &str) -> anyhow::Result<RunDiagram> {
        self.call(self.api(Method::GET, &["runs", run_id, "diagram"])).await
    }

    pub async fn cancel_run(
        &self,
        run_id: &str,
        reason: Option<String>,
        by: Option<String>,
    ) -> anyhow::Result<StartedRun> {
        self.order_run(run_id, "cancel", &json!({ "reason": reason, "by": by })).await
    }

    pub async fn resume_run(&self, run_id: &str) -> anyhow::Result<StartedRun> {
        self.order_run(run_id, "resume", &json!({})).await
    }

    pub async fn restart_run(&self, run_id: &str, from_stage: &str) -> anyhow::Result<StartedRun> {
        self.order_run(run_id, "restart", &json!({ "from": from_stage })).await
    }

    pub async fn answer_run(&self, run_id: &str, answer: &NewAnswer) -> anyhow::Result<AnsweredRun> {
        self.call(self.api(Method::POST, &["runs", run_id, "answer"]).json(answer)).await
    }

    async fn order_run(&self, run_id: &str, verb: &str, body: &Value) -> anyhow::Result<StartedRun> {
        self.call(self.api(Method::POST, &["runs", run_id, verb]).json(body)).await
    }

    fn api(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.request(method, &[&["api", "v1"], path].concat())
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // Ids may contain any characters; the URL encodes them.
            segments.pop_if_empty().extend(path);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        self.call_within(RESPONSE_TIMEOUT, request).await
    }

    async fn call_within<T: DeserializeOwned>(&self, limit: Duration, request: RequestBuilder) -> anyhow::Result<T> {
        let response = self.accepted(request.timeout(limit).send().await).await?;
        response.json().await.map_err(|error| {
            let hint = "check that the gateway has the same version as this program";
            Failure::new(format!("cannot read the response of {}: {}", self.base(), reason(&error)), hint).into()
        })
    }

    async fn listing<T: DeserializeOwned>(&self, request: RequestBuilder, field: &str) -> anyhow::Result<Vec<T>> {
        let mut answer: Value = self.call(request).await?;
        Ok(serde_json::from_value(answer[field].take())?)
    }

    /// The response if it is a success, otherwise the error in its body.
    async fn accepted(&self, answer: reqwest::Result<Response>) -> anyhow::Result<Response> {
        let response = answer.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body: Value = response.json().await.unwrap_or_default();
        let text = |field: &str| body["error"][field].as_str().map(str::to_owned);
        Err(Failure {
            message: text("message").unwrap_or_else(|| format!("{} responded {status}", self.base())),
            hint: match text("hint") {
                Some(_) if status == 401 => {
                    "set `gateway.tokens` to a token of the gateway, as in --set gateway.tokens=…".to_owned()
                }
                Some(_) if status == 503 && self.is_own => SERVERS_HINT.to_owned(),
                Some(hint) => hint,
                None => "check that the address is a Turnwheel gateway".to_owned(),
            },
            status: Some(status.as_u16()),
        }
        .into())
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let message = format!("the gateway at {} is unreachable: {}", self.base(), reason(error));
        let hint =
            if self.is_own { SERVERS_HINT } else { "start `turnwheel dev`, or give the address of another gateway" };
        Failure::new(message, hint)
    }
}

fn is_local(base: &Url) -> bool {
    match base.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Turns a 404 into `None`.
fn known<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if crate::failure::is_unknown(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The innermost cause. The outer ones only repeat the address.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_encoded_into_the_path() {
        let client = GatewayClient::new("http://127.0.0.1:8080/behind/", Some("t".into())).unwrap();
        let request = client.api(Method::GET, &["sessions", "会话?1"]).build().unwrap();
        assert_eq!(request.url().as_str(), "http://127.0.0.1:8080/behind/api/v1/sessions/%E4%BC%9A%E8%AF%9D%3F1");
        assert_eq!(request.headers()["authorization"], "Bearer t");
    }

    #[test]
    fn an_address_has_to_be_one() {
        for bad in ["", "127.0.0.1:8080", "localhost:8080", "nats://127.0.0.1"] {
            assert!(GatewayClient::new(bad, None).is_err(), "{bad}");
        }
    }
}
