//! The roles that may call an endpoint, and its view for callers who may see only some sessions.

use types::access::Role;

/// Those who read.
pub(super) const READERS: &[Role] = &[Role::Viewer, Role::Agent, Role::Operator, Role::Admin];
/// Those who read, and front ends for their own sessions.
pub(super) const FRONT_ENDS_AND_READERS: &[Role] =
    &[Role::Channel, Role::Viewer, Role::Agent, Role::Operator, Role::Admin];
/// Those who send users' messages.
pub(super) const FRONT_ENDS: &[Role] = &[Role::Channel, Role::Admin];
/// Those who check their drafts.
pub(super) const AUTHORS_AND_READERS: &[Role] = &[Role::Author, Role::Viewer, Role::Agent, Role::Operator, Role::Admin];
/// The roles that may make workflows and agents in dialogues.
pub(super) const AUTHORS: &[Role] = &[Role::Author, Role::Operator, Role::Admin];
/// Those who talk to users.
pub(super) const AGENTS: &[Role] = &[Role::Agent, Role::Operator, Role::Admin];
/// Those who control sessions and runs.
pub(super) const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];
/// Those who may do everything.
pub(super) const ADMINS: &[Role] = &[Role::Admin];
/// Everybody with a token.
pub(super) const ALL: &[Role] = &Role::ALL;

/// The sessions that an endpoint shows, for callers who may see only some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The session, run or agent in the path.
    Path,
    /// A selection that the handler makes by the caller's scope.
    Selected,
    /// Nothing about sessions.
    Open,
    /// Everything: limited callers are refused.
    Everything,
}
