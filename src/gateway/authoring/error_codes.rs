//! The error responses that only authoring endpoints have.

use crate::error_codes::{Codes, codes};

pub(super) const NEW_DIALOGUE: Codes = codes! {
    BAD_REQUEST "invalid_action" "action is `make`; it must be `create`, `edit` or `copy`"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "workflow_id_required" "workflow_id: `edit` needs the id of a workflow or agent"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "workflow_id_not_allowed" "workflow_id: `create` takes none; use `edit` or `copy`"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "invalid_request" "artifact is `poem`; it must be `workflow` or `agent`"
        "docs/authoring.md has the fields of a dialogue";
    FORBIDDEN "not_yours" "`research` is not yours" "copy it (`action: copy`), or ask an operator";
    NOT_FOUND "unknown_workflow" "there is no workflow or agent `research`"
        "`turnwheel workflows list` and `turnwheel agents list` show what exists";
    CONFLICT "session_exists" "there is a session `s1`, which another request created"
        "choose another `session_id`, or omit it for a random one";
};
pub(super) const CONFIG: Codes = codes! {
    BAD_REQUEST "invalid_config" "config.max_turns is 501; it must be 1 to 500, or 0 for the default"
        "docs/authoring.md has the fields of a dialogue";
};
pub(super) const DIALOGUE: Codes = codes! {
    NOT_FOUND "unknown_session" "there is no authoring session `s9`" "POST /api/v1/session begins one";
    CONFLICT "not_authoring" "session `s1` is not an authoring dialogue" "/api/v1/sessions/s1 shows other sessions";
};
pub(super) const TURN_GOES_ON: Codes = codes! {
    CONFLICT "busy" "a turn of session `s1` is in progress" "try again when it has ended, or cancel it";
};
pub(super) const TURN_MESSAGE: Codes = codes! {
    BAD_REQUEST "empty_message" "user_message is empty" "give the text as `user_message`";
    GONE "events_expired" "the events of turn `m-1` are no longer stored"
        "/api/v1/chat/history/s1 has the messages";
    PAYLOAD_TOO_LARGE "message_too_large" "user_message has 70000 bytes; the limit is 65536"
        "send the text in several messages";
};
pub(super) const AGAINST: Codes = codes! {
    BAD_REQUEST "invalid_request" "against is `last`; it must be `base` or `published`"
        "without `against` it is `base`";
};
pub(super) const DRAFT: Codes = codes! {
    NOT_FOUND "no_draft" "session `s1` has no such draft"
        "the dialogue writes one once its requirements are agreed on";
};
pub(super) const PUBLICATION: Codes = codes! {
    FORBIDDEN "forbidden" "`force` is for operators" "correct the draft in the dialogue, or ask an operator";
    CONFLICT "stale_hash" "the last draft has the hash 9f86d081884c7d65; check it, and publish this hash"
        "…/draft has the last draft and its hash";
    CONFLICT "source_changed" "`research` has changed since the draft was made: it was 9f86d081, and is 60303ae2; \
        continue the dialogue, which then begins with the new version" "…/diff?against=published has the differences";
    CONFLICT "tests_failed" "the draft has not passed its tests: test `late`, turn 1: calls should be [], and is [\"pay\"]; \
        correct it in the dialogue, or publish it with `force`" "…/draft has the findings";
    CONFLICT "id_taken" "there is a workflow `research` already; set `preferences.target_id` to a free id, or edit it \
        in another session" "set `preferences.target_id` in `config` to a free id";
    CONFLICT "quota_exceeded" "`research` has 1000 stored versions, which is the limit (`quotas.versions`)"
        "delete old versions, or raise `quotas.versions`";
};
pub(super) const UNUSABLE: Codes = codes! {
    UNPROCESSABLE_ENTITY "invalid_workflow" "the document cannot work: nodes[1]: there is no node `b`"
        "describe the change in the dialogue";
    UNPROCESSABLE_ENTITY "invalid_agent" "the document cannot work: skills[0]: the secret `KEY` is not allowed"
        "describe the change in the dialogue";
};
pub(super) const TRIAL: Codes = codes! {
    BAD_REQUEST "invalid_request" "input is for workflows; the draft is an agent"
        "give an agent a `text`, and a workflow an `input`";
    BAD_REQUEST "empty_message" "text is empty" "give the message as `text`";
    FORBIDDEN "forbidden" "`live` is for operators" "give the results of the calls as `answers`, or ask an operator";
    CONFLICT "busy" "the draft is answering another message of this test" "send the next message when it has ended";
    PAYLOAD_TOO_LARGE "message_too_large" "text has 70000 bytes; the limit is 65536" "send a shorter text";
    SERVICE_UNAVAILABLE "too_many_tests" "16 tests of drafts are in progress" "try again in a minute";
    SERVICE_UNAVAILABLE "test_unavailable" "the draft cannot be tried in this process: the environment variable `KEY` is not set"
        "the gateway itself runs the draft: it needs the models of the settings, with their keys";
};
pub(super) const SPENT: Codes = codes! {
    CONFLICT "token_budget" "the day budget of agent `authoring` is spent: 2000000 of 2000000 tokens"
        "wait until tomorrow (UTC), or raise `budget.day` of the agent `authoring`";
};
pub(super) const REPLAY: Codes = codes! {
    BAD_REQUEST "invalid_request" "turns is 51; it must be 1 to 50" "without `turns` it is 20";
    NOT_FOUND "unknown_agent" "there is no agent `sales`"
        "apply its file with `turnwheel agents apply`; `turnwheel agents list` shows the stored agents";
    CONFLICT "not_an_agent" "the draft is a workflow; only turns of agents can be replayed" "POST …/test runs a workflow";
    SERVICE_UNAVAILABLE "too_many_replays" "2 replays are running" "begin this one when another has ended";
    SERVICE_UNAVAILABLE "test_unavailable" "this gateway cannot run drafts"
        "ask a gateway of `turnwheel dev` or `turnwheel serve`; a program serves `Engine::router`";
};
pub(super) const REPORT: Codes = codes! {
    NOT_FOUND "unknown_replay" "there is no replay `5b0c9a3e` of session `s1`"
        "only the gateway that began it has it, among its last 32; begin it again";
};
