//! Agents and workflows with their versions, through the gateway.

use super::{GatewayClient, known};
use anyhow::Context;
use commands::documents::draft::StoredDraft;
use commands::documents::versions::{AgentDetails, AgentVersion, VersionSummary, WorkflowDetails, WorkflowVersion};
use definitions::agent::{AgentRecord, StoredAgent};
use definitions::workflow::definition::{StoredWorkflow, WorkflowRecord};
use reqwest::header::{CONTENT_TYPE, IF_MATCH};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

/// The part of the path for a kind of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// Agents.
    Agents,
    /// Workflows.
    Workflows,
}

impl DocumentKind {
    const fn path(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Workflows => "workflows",
        }
    }
}

/// What a person gives with a change.
#[derive(Clone, Debug, Default)]
pub struct ChangeArgs {
    /// Why.
    pub note: Option<String>,
    /// The hash of the version that it may replace.
    pub if_match: Option<String>,
}

/// A document to send.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    kind: DocumentKind,
    id: &'a str,
    document: &'a Value,
    source: Option<&'a str>,
}

impl<'a> Upload<'a> {
    /// An agent with the text of its file.
    pub fn agent(agent: &'a AgentRecord) -> Self {
        Self { kind: DocumentKind::Agents, id: agent.id(), document: &agent.document, source: agent.source.as_deref() }
    }

    /// A workflow with the text of its file.
    pub fn workflow(workflow: &'a WorkflowRecord) -> Self {
        let (document, source) = (&workflow.document, workflow.source.as_deref());
        Self { kind: DocumentKind::Workflows, id: workflow.id(), document, source }
    }

    /// Adds it to a request: the text of a YAML file with its comments, else the document.
    fn body(&self, request: RequestBuilder, note: Option<&str>) -> RequestBuilder {
        let note: Vec<_> = note.map(|note| ("note", note)).into_iter().collect();
        let request = request.query(&note);
        match self.source.filter(|source| !source.trim_start().starts_with('{')) {
            Some(source) => request.header(CONTENT_TYPE, "application/yaml").body(source.to_owned()),
            None => request.json(self.document),
        }
    }
}

fn conditional(request: RequestBuilder, seen: Option<&str>) -> RequestBuilder {
    match seen {
        Some(hash) => request.header(IF_MATCH, format!("\"{}\"", hash.trim_matches('"'))),
        None => request,
    }
}

impl GatewayClient {
    pub async fn agent(&self, agent_id: &str) -> anyhow::Result<Option<StoredAgent>> {
        Ok(self.agent_details(agent_id).await?.map(|details| details.agent))
    }

    /// An agent with its text, and who applied it.
    pub async fn agent_details(&self, agent_id: &str) -> anyhow::Result<Option<AgentDetails>> {
        known(self.call(self.api(Method::GET, &["agents", agent_id])).await)
    }

    pub async fn workflow(&self, workflow_id: &str) -> anyhow::Result<Option<StoredWorkflow>> {
        Ok(self.workflow_details(workflow_id).await?.map(|details| details.workflow))
    }

    /// A workflow with its text, and who applied it.
    pub async fn workflow_details(&self, workflow_id: &str) -> anyhow::Result<Option<WorkflowDetails>> {
        known(self.call(self.api(Method::GET, &["workflows", workflow_id])).await)
    }

    /// Applies a document. Returns true if it has changed.
    pub async fn apply(&self, upload: Upload<'_>, change: &ChangeArgs) -> anyhow::Result<bool> {
        let request = upload.body(self.api(Method::PUT, &[upload.kind.path(), upload.id]), change.note.as_deref());
        let answer: Value = self.call(conditional(request, change.if_match.as_deref())).await?;
        Ok(answer["changed"].as_bool().unwrap_or(true))
    }

    /// Stores a document as a draft.
    pub async fn store_draft(&self, upload: Upload<'_>, note: Option<&str>) -> anyhow::Result<StoredDraft> {
        let request = self.api(Method::POST, &[upload.kind.path(), upload.id, "versions"]);
        self.call(upload.body(request, note)).await
    }

    /// Applies a stored version. Returns true if another one was the current version.
    pub async fn apply_version(
        &self,
        kind: DocumentKind,
        id: &str,
        hash: &str,
        change: &ChangeArgs,
    ) -> anyhow::Result<bool> {
        let request = self.api(Method::POST, &[kind.path(), id, "versions", hash, "apply"]);
        let request = conditional(request.json(&json!({ "note": change.note })), change.if_match.as_deref());
        let answer: Value = self.call(request).await?;
        Ok(answer["changed"].as_bool().unwrap_or(true))
    }

    /// All versions, the newest first.
    pub async fn versions(&self, kind: DocumentKind, id: &str) -> anyhow::Result<Vec<VersionSummary>> {
        self.entries(self.api(Method::GET, &[kind.path(), id, "versions"]), "versions", usize::MAX).await
    }

    /// The document of a version, and its text.
    pub async fn version(
        &self,
        kind: DocumentKind,
        id: &str,
        hash: &str,
    ) -> anyhow::Result<(VersionSummary, Value, Option<String>)> {
        let request = self.api(Method::GET, &[kind.path(), id, "versions", hash]);
        let asked = async {
            match kind {
                DocumentKind::Agents => {
                    let AgentVersion { version, config, source } = self.call(request).await?;
                    anyhow::Ok((version, config, source))
                }
                DocumentKind::Workflows => {
                    let WorkflowVersion { version, definition, source } = self.call(request).await?;
                    Ok((version, definition, source))
                }
            }
        };
        asked.await.with_context(|| format!("cannot show a version of `{id}`"))
    }
}
