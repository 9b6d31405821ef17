//! The codes of error responses, in the groups that endpoints share. `routes` names the groups of each endpoint, and
//! `openapi` describes them. `docs/contract/http.md` has the cause of each code.

use super::operation::present;
use super::reject::Reject;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A kind of error with its status, and an example of its texts.
pub(super) struct ErrorCode {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
    pub(super) hint: &'static str,
}

/// One code, or several that occur together.
pub(super) type Codes = &'static [ErrorCode];

/// Lists errors: status, code, message and hint.
macro_rules! codes {
    ($($status:ident $code:literal $message:literal $hint:literal;)+) => {
        &[$($crate::error_codes::ErrorCode {
            status: axum::http::StatusCode::$status,
            code: $code,
            message: $message,
            hint: $hint,
        }),+]
    };
}
pub(super) use codes;

// Of requests as such: `openapi` adds these groups by the endpoint's parameters, body and security.
pub(super) const PATH: Codes = codes! {
    BAD_REQUEST "invalid_path" "Invalid URL: Invalid UTF-8 in `session_id`" "ids in paths are percent-encoded UTF-8";
};
pub(super) const QUERY: Codes = codes! {
    BAD_REQUEST "invalid_query" "limit: 0 is not between 1 and 1000" "without `limit` the listing has its default length";
};
pub(super) const BODY: Codes = codes! {
    BAD_REQUEST "invalid_json" "the body is a list" "send one JSON object; /openapi.json has its fields";
    BAD_REQUEST "unreadable_body" "Failed to buffer the request body" "send the request again";
    REQUEST_TIMEOUT "slow_body" "the body was not complete within 60s" "send the body without pauses";
    PAYLOAD_TOO_LARGE "too_large" "the body has more than 2162688 bytes"
        "send less text, or put large content somewhere else and send its address as an attachment";
};
pub(super) const CONTENT_TYPE: Codes = codes! {
    UNSUPPORTED_MEDIA_TYPE "not_json" "the body is not declared as JSON"
        "send JSON with the header `content-type: application/json`";
};
pub(super) const TOKEN: Codes = codes! {
    UNAUTHORIZED "unauthorized" "the request has no valid bearer token"
        "send `Authorization: Bearer <token>` with a token of `gateway.tokens` or `[[gateway.access]]`";
};
pub(super) const ROLE: Codes = codes! {
    FORBIDDEN "forbidden" "this needs the role `operator` or `admin`; the token `web` has `channel`"
        "use a token with this role; `[[gateway.access]]` in the gateway's settings has the tokens";
    TOO_MANY_REQUESTS "too_many_requests" "the token `web` has sent 600 requests in a minute"
        "send fewer requests; the setting is `requests_per_minute`";
};
pub(super) const FOREIGN: Codes = codes! {
    FORBIDDEN "foreign_page" "the request's `host` header names another machine"
        "without `gateway.tokens` this gateway serves only programs and pages on its own machine; set tokens";
};

pub(super) const ORIGIN: Codes = codes! {
    FORBIDDEN "foreign_origin" "the request's `Origin` header is not that of this host"
        "with the cookie of a login only pages of this host may call; programs send `Authorization: Bearer <token>`; \
        a proxy has to pass the `Host` header on";
};

// Of the servers behind the gateway.
pub(super) const STORE: Codes = codes! {
    INTERNAL_SERVER_ERROR "internal" "the store refused" "the gateway's log has the details";
    SERVICE_UNAVAILABLE "store_unavailable" "the store is unavailable"
        "retry later; /readyz reports when it is reachable again";
    SERVICE_UNAVAILABLE "newer_format" "session `s1` was written by a newer version of Turnwheel"
        "upgrade this process, or ask one of the newer version";
};
pub(super) const QUEUE: Codes = codes! {
    INTERNAL_SERVER_ERROR "internal" "the queue refused" "the gateway's log has the details";
    SERVICE_UNAVAILABLE "queue_unavailable" "the queue is unavailable"
        "retry later; /readyz reports when it is reachable again";
};
/// The queue stores a job; besides [`QUEUE`].
pub(super) const PUBLISH: Codes = codes! {
    PAYLOAD_TOO_LARGE "too_large" "the payload of 1200000 bytes exceeds the queue's limit of 1048576 bytes"
        "send less text, or put large content somewhere else and send its address as an attachment";
    SERVICE_UNAVAILABLE "queue_full" "the queue is full: session `s1` has 1000 jobs waiting, and \
        `lane.max_depth` is 1000; retry when some are processed, or raise it"
        "retry after some of the waiting messages are processed";
};
/// An event stream opens.
pub(super) const STREAM: Codes = codes! {
    SERVICE_UNAVAILABLE "too_many_streams" "all event streams of this gateway (`gateway.max_streams`) are in use"
        "close unused event streams, raise `gateway.max_streams`, or start another gateway";
};
pub(super) const NOT_READY: Codes = codes! {
    SERVICE_UNAVAILABLE "not_ready" "unreachable: queue"
        "`queue` is NATS (setting nats.url), `store` is MongoDB (setting mongodb.uri); see the gateway's log";
};

// Of ids and positions.
pub(super) const ID: Codes = codes! {
    BAD_REQUEST "invalid_id" "session_id contains '.'; an id has 1 to 128 bytes without whitespace, control \
        characters, `*`, `>`, `/` or `.` (allowed in `job_id`, `message_id`, `turn_id` and \
        `user_id`), and does not begin with `$`"
        "choose another `session_id`";
};
pub(super) const EVENT_ID: Codes = codes! {
    BAD_REQUEST "invalid_event_id" "Last-Event-ID: found `x`, which is not an event id"
        "send the last `id:` that you received, or 0 for all stored events";
};
pub(super) const SESSION: Codes = codes! {
    NOT_FOUND "unknown_session" "there is no session `s9`" "a session begins with its first message";
};
pub(super) const USER: Codes = codes! {
    NOT_FOUND "unknown_user" "there is no data of user `u9`" "`turnwheel sessions list` shows the users of sessions";
};
pub(super) const OVERTAKEN: Codes = codes! {
    SERVICE_UNAVAILABLE "deletion_overtaken" "session `s1` is being used or deleted by another process"
        "repeat the deletion";
};
pub(super) const AGENT_IN_USE: Codes = codes! {
    CONFLICT "agent_in_use" "agent `sales` is used by session `s1`, session `s2`"
        "close these conversations and change these workflows first, or delete with `force`: their next messages then \
        become dead letters";
};
pub(super) const WORKFLOW_IN_USE: Codes = codes! {
    CONFLICT "builtin_workflow" "workflow `smart_router` is a part of the program"
        "register a workflow with this id to replace it";
    CONFLICT "in_use" "workflow `research` is used by run `r1`"
        "wait for these runs and change these agents and workflows first, or delete with `force`: they then fail when \
        they need it";
};
pub(super) const TURN: Codes = codes! {
    NOT_FOUND "unknown_turn" "session `s1` has no committed turn `m-9`"
        "a turn appears once it is committed and is kept for `retention.turns`; …/turns lists the turns";
};
pub(super) const PROMPT: Codes = codes! {
    NOT_FOUND "unknown_prompt" "no prompt of step `0/decide` of turn `m-1` of session `s1` is stored"
        "set `journal.prompts` of the workers to `full`: later model calls keep their prompts for `retention.turns`";
};
pub(super) const AGENT: Codes = codes! {
    NOT_FOUND "unknown_agent" "there is no agent `sales`"
        "apply its file with `turnwheel agents apply`; `turnwheel agents list` shows the stored agents";
};
pub(super) const WORKFLOW: Codes = codes! {
    NOT_FOUND "unknown_workflow" "there is no workflow `research`"
        "put its file into workflows_dir; `turnwheel workflows list` shows the existing workflows";
};
pub(super) const RUN: Codes = codes! {
    NOT_FOUND "unknown_run" "there is no run `r9`"
        "an ended run is kept for `retention.turns`; `turnwheel runs list` shows the existing runs";
};
pub(super) const LETTER: Codes = codes! {
    NOT_FOUND "unknown_letter" "there is no dead letter `7`, neither by its number nor by its job id"
        "`turnwheel dead list` shows the dead letters; a replayed letter is removed";
    CONFLICT "several_letters" "several dead letters have the job id `m-1`: 7 (s1), 9 (s2)" "name one by its number";
};
pub(super) const LETTER_FILTER: Codes = codes! {
    BAD_REQUEST "invalid_request" "limit: 0 is not between 1 and 200" "the default is 100";
};

// Of one kind of request.
pub(super) const MESSAGE: Codes = codes! {
    BAD_REQUEST "invalid_message" "text: invalid type: integer `5`, expected a string"
        "send {session_id, agent_id, text, job_id?, user_id?, channel?, metadata?}";
    BAD_REQUEST "invalid_request" "metadata is nested more than 64 levels deep; send it flatter, or as a text"
        "docs/contract/nats.md has the fields of a job";
    BAD_REQUEST "missing_agent" "agent_id is missing, and session `s9` is unknown"
        "give `agent_id` with a session's first message";
};
pub(super) const AGENT_RATE: Codes = codes! {
    TOO_MANY_REQUESTS "too_many_requests" "agent `sales` has got 600 messages in a minute"
        "send it later; the setting is `gateway.agent_messages_per_minute`";
};
pub(super) const TEXT: Codes = codes! {
    BAD_REQUEST "empty_message" "text is empty and there are no attachments" "give `text` or `attachments`";
};
pub(super) const REPLY_TEXT: Codes = codes! {
    BAD_REQUEST "empty_message" "text is empty" "give the reply to the user as `text`";
};
pub(super) const TASK_AGENT: Codes = codes! {
    BAD_REQUEST "task_agent" "agent `writer` is a task agent (it has a `system_prompt`): it takes no chat sessions"
        "name an agent that has an `sop`";
};
pub(super) const NOT_TRANSFERRED: Codes = codes! {
    CONFLICT "not_transferred" "session `s1` is `ready`, not `transferred`"
        "a human can reply only while the session is `transferred`; `claim` with `take_over` takes it over";
};
pub(super) const CLAIMED: Codes = codes! {
    CONFLICT "claimed" "`li` has the claim of session `s1`"
        "wait until the claim ends, or ask an operator to pass it on with `force`";
};
pub(super) const PERSON: Codes = codes! {
    BAD_REQUEST "invalid_name" "by: the name is blank or has more than 256 bytes" "give the name of the person's login";
};
pub(super) const NOTE_TEXT: Codes = codes! {
    BAD_REQUEST "empty_note" "the note is empty" "give its text";
};
pub(super) const UNFIT_LETTER: Codes = codes! {
    UNPROCESSABLE_ENTITY "unfit_letter" "dead letter 7 would fail again: only 65536 of its 90000 bytes are stored"
        "send a corrected message instead; `turnwheel dead show` has the payload";
};
pub(super) const AGENT_FILE: Codes = codes! {
    BAD_REQUEST "other_agent" "id: the document has `support`, the path `sales`" "use the same id in both";
    UNPROCESSABLE_ENTITY "invalid_agent" "sop: is missing"
        "correct the document; `turnwheel agents validate` checks a file";
};
pub(super) const CHANGE: Codes = codes! {
    BAD_REQUEST "invalid_condition" "If-Match and If-None-Match: found another condition than one hash between quotes, \
        or `*`" "send `If-Match: \"<hash>\"`, or `If-None-Match: *`";
    CONFLICT "file_in_the_way" "agents/sales.yaml exists and has another id, or cannot be read, so `sales` has no file \
        to be written to" "correct or remove that file first; nothing is applied";
    PRECONDITION_FAILED "changed" "the current version of agent `sales` is 9e107d9d372bb6826bd81d3542a419d6, which \
        `anna` applied at 2026-01-02T03:04:05.678Z, not the one that the request expects"
        "read it again, merge the changes, and send its hash as `If-Match`";
    INTERNAL_SERVER_ERROR "file_not_written" "its file agents/sales.yaml cannot be written: the file is read-only; \
        nothing is applied" "make the file and its folder writable for `turnwheel dev`, and apply it again";
};
pub(super) const NOTE: Codes = codes! {
    BAD_REQUEST "invalid_note" "note: 1200 characters are more than 1000"
        "say in one sentence why it is changed";
};
pub(super) const VERSION: Codes = codes! {
    NOT_FOUND "unknown_version" "agent `sales` has no version `9e107d9d372bb6826bd81d3542a419d6`"
        "…/versions lists those that are stored; unused ones expire";
};
pub(super) const FILE_TYPE: Codes = codes! {
    UNSUPPORTED_MEDIA_TYPE "not_json" "the body is declared neither as JSON nor as YAML"
        "send it with the header `content-type: application/json`, or `application/yaml`";
};
pub(super) const WORKFLOW_FILE: Codes = codes! {
    BAD_REQUEST "other_workflow" "id: the document has `research`, the path `report`" "use the same id in both";
    UNPROCESSABLE_ENTITY "invalid_workflow" "stages[0].runnable: Runnable not found: writer"
        "correct the document; `turnwheel workflows validate` checks a file";
};
pub(super) const WORKFLOW_ID: Codes = codes! {
    CONFLICT "workflow_id_taken" "`w5d41402abc4b2a76b9719d911017c592` is a plan of session `s1`" "use another `id`";
};
pub(super) const KNOWLEDGE_TEXT: Codes = codes! {
    BAD_REQUEST "invalid_source" "text: it has no text" "send Markdown or plain text";
};
pub(super) const QUOTA: Codes = codes! {
    CONFLICT "quota_exceeded" "agent `sales` has 1000 knowledge sources, and `quotas.knowledge_sources` is 1000"
        "remove sources (`turnwheel knowledge remove`), or raise the setting where the gateway runs";
};
pub(super) const DECISION: Codes = codes! {
    BAD_REQUEST "invalid_decision" "decision_type: there is no type `reply`"
        "the types are in /api/v1/decisions/schema; a payload is an object";
};
pub(super) const NO_FILE: Codes = codes! {
    CONFLICT "no_file" "this system keeps its data in no file"
        "back up a cluster with `turnwheel backup` where NATS and MongoDB can be reached";
};
pub(super) const DECISION_TYPE: Codes = codes! {
    NOT_FOUND "unknown_decision_type" "there is no schema `reply`" "/api/v1/decisions/schema has all schemas by name";
};
pub(super) const SOURCE: Codes = codes! {
    NOT_FOUND "unknown_source" "agent `sales` has no source `kb/returns.md`"
        "`turnwheel knowledge list --agent sales` shows its sources";
};
pub(super) const NEW_RUN: Codes = codes! {
    BAD_REQUEST "empty_query" "query is empty" "give the task for the workflow as `query`";
    BAD_REQUEST "invalid_input" "`input.since` is missing; the workflow needs a text"
        "`global_config.inputs` of the graph declares its inputs";
    PAYLOAD_TOO_LARGE "too_large" "`input` has 1048577 bytes; the limit is 1048576"
        "send less text, or put large content somewhere else and send its address as an attachment";
    CONFLICT "run_id_taken" "`r1` is a chat session, or a run with another workflow, query, input, session, user or \
        channel" "omit `run_id` for a random one";
    CONFLICT "not_ready" "`w5d41402abc4b2a76b9719d911017c592` is RUNNING, not READY or COMPLETED"
        "wait for the end of its run, or let its conversation recover or replan it";
};
pub(super) const RUN_ENDED: Codes = codes! {
    CONFLICT "run_ended" "run `r1` has ended: it is `completed`" "only a pending or running run can be cancelled";
};
pub(super) const NOT_RESUMABLE: Codes = codes! {
    CONFLICT "run_of_turn" "run `r1` was a part of turn `m-1` of session `s1`"
        "restart it from a stage, which starts a run of its own";
    CONFLICT "run_not_failed" "run `r1` is `running`" "only a failed or cancelled run can be resumed";
};
pub(super) const ANSWER_TEXT: Codes = codes! {
    BAD_REQUEST "empty_answer" "text is empty" "give the answer as `text`";
};
pub(super) const NO_OPEN_QUESTION: Codes = codes! {
    CONFLICT "not_waiting" "run `r1` is `running` and has no open question"
        "`turnwheel runs show` lists the open questions of a run";
    CONFLICT "run_of_turn" "run `r1` is a part of turn `m-1` of session `s1`"
        "send the answer as a message of that session";
};
pub(super) const NO_SUCH_STAGE: Codes = codes! {
    BAD_REQUEST "unknown_stage" "`research` has no stage `summry`; it has: plan, summary"
        "`from_stage` is a path, such as `plan` or `outer_loop[2]/parallel_result`";
};
pub(super) const NO_STEPS: Codes = codes! {
    CONFLICT "no_steps" "the steps of run `r1` have expired, or are not recorded yet"
        "steps are kept for `retention.turns`; start a new run";
};

/// Describes the error responses with these codes: one for each status, with an example of each code. `schema` is that
/// of their body.
pub(super) fn responses<'c>(codes: impl IntoIterator<Item = &'c ErrorCode>, schema: &Value) -> Map<String, Value> {
    let mut by_status: BTreeMap<StatusCode, BTreeMap<&str, &ErrorCode>> = BTreeMap::new();
    for error in codes {
        by_status.entry(error.status).or_default().entry(error.code).or_insert(error);
    }
    let described =
        by_status.into_iter().map(|(status, errors)| (status.as_str().to_owned(), response(status, &errors, schema)));
    described.collect()
}

fn response(status: StatusCode, errors: &BTreeMap<&str, &ErrorCode>, schema: &Value) -> Value {
    let codes: Vec<String> = errors.keys().map(|code| format!("`{code}`")).collect();
    let example = |error: &ErrorCode| {
        let body = Reject::new(error.status, error.code, error.message, error.hint).body();
        (error.code.to_owned(), json!({"value": body}))
    };
    let examples: Map<_, _> = errors.values().map(|error| example(error)).collect();
    let seconds = json!({"schema": {"type": "integer", "minimum": 1}, "description": "Seconds until the next try"});
    present(json!({
        "description": format!("{}: {}", status.canonical_reason().unwrap_or_default(), codes.join(", ")),
        "headers": matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS).then(|| json!({"Retry-After": seconds})),
        "content": {"application/json": {"schema": schema, "examples": examples}},
    }))
}
