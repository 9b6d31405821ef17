//! Descriptions of endpoints. Above each handler is its [`Operation`]: texts, the types of query and body, and
//! the response if it succeeds. `openapi` adds the errors.

use super::examples::{self, Examples};
use super::roles::Reach;
use super::schemas::{plain, without_null};
use axum::routing::MethodFilter;
use definitions::knowledge::source::MAX_NAME;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use types::access::Role;
use types::ids::{DottedId, Id};

/// Returns the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The description of an endpoint.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// The method, as the router and as the document name it.
    pub(super) filter: MethodFilter,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    tag: &'static str,
    pub(super) id: &'static str,
    /// Who may call it. Without roles, every caller is refused.
    pub(super) roles: &'static [Role],
    reach: Option<Reach>,
    audited: Option<bool>,
    summary: &'static str,
    details: Option<&'static str>,
    pub(super) query: Option<SchemaOf>,
    last_event_id: Option<&'static str>,
    conditional: bool,
    etag: Option<&'static str>,
    pub(super) body: Option<Body>,
    success: Option<Success>,
    accepted_late: Option<&'static str>,
    no_content: Option<&'static str>,
}

/// The body of a request: JSON, and for files also YAML.
#[derive(Clone, Copy)]
pub(super) struct Body {
    description: Option<&'static str>,
    schema: SchemaOf,
    pub(super) required: bool,
    /// Whether it may be YAML, too.
    pub(super) yaml: bool,
}

/// The response of an operation that succeeds.
#[derive(Clone, Copy)]
struct Success {
    status: u16,
    description: &'static str,
    media_type: &'static str,
    schema: SchemaOf,
}

impl Operation {
    pub(super) const fn get(path: &'static str, tag: &'static str, id: &'static str) -> Self {
        Self::new(MethodFilter::GET, "get", path, tag, id)
    }

    pub(super) const fn post(path: &'static str, tag: &'static str, id: &'static str) -> Self {
        Self::new(MethodFilter::POST, "post", path, tag, id)
    }

    pub(super) const fn put(path: &'static str, tag: &'static str, id: &'static str) -> Self {
        Self::new(MethodFilter::PUT, "put", path, tag, id)
    }

    pub(super) const fn delete(path: &'static str, tag: &'static str, id: &'static str) -> Self {
        Self::new(MethodFilter::DELETE, "delete", path, tag, id)
    }

    const fn new(
        filter: MethodFilter,
        method: &'static str,
        path: &'static str,
        tag: &'static str,
        id: &'static str,
    ) -> Self {
        Self {
            filter,
            method,
            path,
            tag,
            id,
            roles: &[],
            reach: None,
            audited: None,
            summary: "",
            details: None,
            query: None,
            last_event_id: None,
            conditional: false,
            etag: None,
            body: None,
            success: None,
            accepted_late: None,
            no_content: None,
        }
    }

    /// The roles that may call it.
    pub(super) const fn roles(self, roles: &'static [Role]) -> Self {
        Self { roles, ..self }
    }

    /// The sessions that it shows, if the path alone does not say so.
    pub(super) const fn shows(self, reach: Reach) -> Self {
        Self { reach: Some(reach), ..self }
    }

    /// Whether calls enter the audit trail. By default those of all methods except GET do.
    pub(super) const fn audited(self, audited: bool) -> Self {
        Self { audited: Some(audited), ..self }
    }

    /// The sessions that it shows: by default the ones in its path, otherwise all.
    pub(super) fn reach(&self) -> Reach {
        let named = ["{session_id}", "{run_id}", "{agent_id}"].iter().any(|name| self.path.contains(name));
        self.reach.unwrap_or(if named { Reach::Path } else { Reach::Everything })
    }

    pub(super) fn is_audited(&self) -> bool {
        self.audited.unwrap_or(self.method != "get")
    }

    /// One sentence.
    pub(super) const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Everything that a client needs to know besides the summary.
    pub(super) const fn details(self, details: &'static str) -> Self {
        Self { details: Some(details), ..self }
    }

    /// The query has the fields of `Q`, with their doc comments as descriptions.
    pub(super) const fn query<Q: JsonSchema>(self) -> Self {
        Self { query: Some(Q::json_schema), ..self }
    }

    /// The header `Last-Event-ID`, with its meaning.
    pub(super) const fn last_event_id(self, meaning: &'static str) -> Self {
        Self { last_event_id: Some(meaning), ..self }
    }

    /// The headers `If-Match` and `If-None-Match`, by which a change replaces only a version that the caller has seen.
    pub(super) const fn conditional(self) -> Self {
        Self { conditional: true, ..self }
    }

    /// The header `ETag` of the response, with its meaning.
    pub(super) const fn etag(self, meaning: &'static str) -> Self {
        Self { etag: Some(meaning), ..self }
    }

    /// The body is a `B`.
    pub(super) const fn body<B: JsonSchema>(self) -> Self {
        let schema = SchemaGenerator::subschema_for::<B>;
        Self { body: Some(Body { description: None, schema, required: true, yaml: false }), ..self }
    }

    /// The body is a `B`, `null` or absent.
    pub(super) const fn optional_body<B: JsonSchema>(self) -> Self {
        let schema = SchemaGenerator::subschema_for::<Option<B>>;
        Self { body: Some(Body { description: None, schema, required: false, yaml: false }), ..self }
    }

    /// The body is a file as JSON or YAML, which another page describes.
    pub(super) const fn file_body(self, description: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<Map<String, Value>>;
        Self { body: Some(Body { description: Some(description), schema, required: true, yaml: true }), ..self }
    }

    /// Responds with 200 and an `R`.
    pub(super) const fn ok<R: JsonSchema>(self, description: &'static str) -> Self {
        self.responds::<R>(200, "application/json", description)
    }

    /// Responds with 201 and an `R`.
    pub(super) const fn created<R: JsonSchema>(self, description: &'static str) -> Self {
        self.responds::<R>(201, "application/json", description)
    }

    /// Responds with 202 and an `R`.
    pub(super) const fn accepted<R: JsonSchema>(self, description: &'static str) -> Self {
        self.responds::<R>(202, "application/json", description)
    }

    /// Responds with 202 and the type of [`Operation::ok`] if the work takes longer than the response waits.
    pub(super) const fn or_accepted(self, description: &'static str) -> Self {
        Self { accepted_late: Some(description), ..self }
    }

    /// Responds with 200 and plain text.
    pub(super) const fn text(self, description: &'static str) -> Self {
        self.responds::<String>(200, "text/plain", description)
    }

    /// Responds with 200 and a tar archive.
    pub(super) const fn archive(self, description: &'static str) -> Self {
        self.responds::<String>(200, "application/x-tar", description)
    }

    /// Responds with 200 and server-sent events.
    pub(super) const fn event_stream(self, description: &'static str) -> Self {
        self.responds::<String>(200, "text/event-stream", description)
    }

    /// Responds in some cases with 204.
    pub(super) const fn no_content(self, description: &'static str) -> Self {
        Self { no_content: Some(description), ..self }
    }

    const fn responds<R: JsonSchema>(self, status: u16, media_type: &'static str, description: &'static str) -> Self {
        let schema = SchemaGenerator::subschema_for::<R>;
        Self { success: Some(Success { status, description, media_type, schema }), ..self }
    }

    /// The operation as OpenAPI, without responses. `suffix` ends its id.
    pub(super) fn describe(&self, suffix: &str, schemas: &mut SchemaGenerator) -> Value {
        let parameters = self.parameters(schemas);
        let Examples { request, .. } = examples::of(self.id);
        let body = self.body.map(|Body { description, schema, required, yaml }| {
            let mut content = json!({"application/json": media(schema(schemas), request.as_ref(), None)});
            if yaml {
                let text = "The text of the file. It is kept with its comments as `source` of the version.";
                content["application/yaml"] = json!({"schema": {"type": "string", "description": text}});
            }
            present(json!({"description": description, "content": content, "required": required}))
        });
        present(json!({
            "tags": [self.tag],
            "summary": self.summary,
            "description": self.details,
            "operationId": format!("{}{suffix}", self.id),
            "parameters": (!parameters.is_empty()).then_some(parameters),
            "requestBody": body,
        }))
    }

    /// The responses of an operation that succeeds.
    pub(super) fn successes(&self, schemas: &mut SchemaGenerator) -> Map<String, Value> {
        let mut responses = Map::new();
        if let Some(Success { status, description, media_type, schema }) = self.success {
            let Examples { response, events, .. } = examples::of(self.id);
            let blocks = examples::blocks(&events);
            let content = json!({media_type: media(schema(schemas), response.as_ref(), blocks.as_ref())});
            responses.extend(
                self.accepted_late.map(|text| ("202".to_owned(), json!({"description": text, "content": content}))),
            );
            let etag = |meaning| json!({"ETag": {"description": meaning, "schema": {"type": "string"}}});
            let response = json!({"description": description, "headers": self.etag.map(etag), "content": content});
            responses.insert(status.to_string(), present(response));
        }
        responses.extend(self.no_content.map(|text| ("204".to_owned(), json!({"description": text}))));
        responses
    }

    fn parameters(&self, schemas: &mut SchemaGenerator) -> Vec<Value> {
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = names.map(|name| path_parameter(name, schemas)).collect();
        parameters.extend(self.query.into_iter().flat_map(|query| query_parameters(query(schemas))));
        parameters.extend(self.last_event_id.map(|meaning| header_parameter("Last-Event-ID", meaning)));
        if self.conditional {
            let (seen, new) = (
                "The hash between quotes, as `ETag` has it: 412 unless this version is the current one",
                "`*`: 412 if the id is in use",
            );
            parameters.extend([header_parameter("If-Match", seen), header_parameter("If-None-Match", new)]);
        }
        parameters
    }
}

fn header_parameter(name: &str, meaning: &str) -> Value {
    json!({"name": name, "in": "header", "description": meaning, "required": false, "schema": {"type": "string"}})
}

/// Describes a parameter of the path. Each name has the same meaning in all paths.
fn path_parameter(name: &str, schemas: &mut SchemaGenerator) -> Value {
    let (id, text) = (schemas.subschema_for::<Id>(), json_schema!({"type": "string"}));
    let (description, example, schema) = match name {
        "session_id" => ("The session", "s1", id),
        "user_id" => ("The user, as the channel names it", "u1", schemas.subschema_for::<DottedId>()),
        "key" => ("The key of the model call's step", "0/decide", schemas.subschema_for::<String>()),
        "turn_id" => ("The turn", "m-1", schemas.subschema_for::<DottedId>()),
        "agent_id" => ("The agent", "sales", id),
        "workflow_id" => ("The workflow. For a run also a task agent", "research_workflow", id),
        "run_id" => ("The run", "r1", id),
        "replay_id" => ("The replay", "5b0c9a3e-2a7e-4f0d-8a35-0c2f6b9d1e77", text),
        "hash" => ("The md5 hash of a version", "9e107d9d372bb6826bd81d3542a419d6", text),
        "action_type" => ("A type of decisions, or the name of an answer's schema", "respond", text),
        "source" => {
            let name = json_schema!({"type": "string", "minLength": 1, "maxLength": MAX_NAME});
            ("Name of the text, percent-encoded", "kb/returns.md", name)
        }
        "which" => ("Number of the dead letter, or id of its job", "7", text),
        _ => ("", "", text),
    };
    json!({
        "name": name,
        "in": "path",
        "description": description,
        "required": true,
        "schema": schema,
        "example": example,
    })
}

/// Describes the fields of a query.
fn query_parameters(mut query: Schema) -> Vec<Value> {
    plain(&mut query);
    let required = query.remove("required").unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
    let Some(Value::Object(fields)) = query.remove("properties") else { return Vec::new() };
    let parameter = |(name, schema)| {
        let Value::Object(mut schema) = schema else { return Value::Null };
        without_null(&mut schema);
        let (description, example) = (schema.remove("description"), schema.remove("example"));
        present(json!({
            "name": name,
            "in": "query",
            "description": description,
            "required": is_required(&name),
            "schema": schema,
            "example": example,
        }))
    };
    fields.into_iter().map(parameter).collect()
}

/// A body with its schema and examples.
fn media(mut schema: Schema, example: Option<&Value>, examples: Option<&Value>) -> Value {
    // The schema of any value is `true`, but many tools know only objects.
    schema.ensure_object();
    present(json!({"schema": schema, "example": example, "examples": examples}))
}

/// The object without the fields that are null.
pub(super) fn present(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, field| !field.is_null());
    }
    object
}
