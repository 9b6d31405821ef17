//! The error responses that only authoring endpoints have.

use crate::error_codes::{Codes, codes};

pub(super) const NEW_DIALOGUE: Codes = codes! {
    BAD_REQUEST "invalid_action" "action is `make`; it must be `create`, `edit` or `copy`"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "workflow_id_required" "workflow_id: `edit` needs what it begins with"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "workflow_id_not_allowed" "workflow_id: `create` begins with nothing; use `edit` or `copy`"
        "docs/authoring.md has the fields of a dialogue";
    BAD_REQUEST "invalid_request" "artifact is `poem`; it must be `workflow` or `agent`"
        "docs/authoring.md has the fields of a dialogue";
    FORBIDDEN "not_yours" "`research` is not yours" "copy it (`action: copy`), or ask an operator";
    NOT_FOUND "unknown_workflow" "there is no workflow or agent `research`"
        "`turnwheel workflows list` and `turnwheel agents list` show what exists";
    CONFLICT "session_exists" "there is a session `s1`, which was begun otherwise"
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
    CONFLICT "busy" "a turn of session `s1` is going on" "try again when it has ended, or cancel it";
};
pub(super) const TURN_MESSAGE: Codes = codes! {
    BAD_REQUEST "empty_message" "user_message is empty" "give the text as `user_message`";
    GONE "events_expired" "the events of turn `m-1` are no longer stored"
        "/api/v1/chat/history/s1 has the messages";
    PAYLOAD_TOO_LARGE "message_too_large" "user_message has 70000 bytes; the limit is 65536"
        "send the text in several messages";
};
