//! Who sends a request, and what this caller may do.

use super::Reject;
use super::quota::Quota;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base::config::NamedToken;
use commands::authoring::Author;
use std::sync::Arc;
use types::access::{Role, Scope};
use types::handoff::NAMELESS as NAMELESS_PERSON;

/// The name of a caller without a token, on a gateway that serves only its own machine.
const LOCAL: &str = NAMELESS_PERSON;
/// The user of the dialogues that a caller without a token begins.
const LOCAL_USER: &str = "dev";
/// The name of a caller with one of `gateway.tokens`.
const NAMELESS: &str = "token";

/// The caller of a request. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Caller(Arc<CallerInfo>);

#[derive(Debug)]
struct CallerInfo {
    name: String,
    role: Role,
    scope: Scope,
    /// Whether the `by` of a request counts as it is. A named caller may only add to its own name.
    speaks_for_others: bool,
    quota: Quota,
}

impl Caller {
    /// A caller without a name of its own, who may do everything and speak for others.
    fn nameless(name: &str) -> Self {
        let (role, scope, quota) = (Role::Admin, Scope::default(), Quota::none());
        Self(Arc::new(CallerInfo { name: name.to_owned(), role, scope, speaks_for_others: true, quota }))
    }

    /// The caller on this machine, if no tokens are set.
    pub(super) fn local() -> Self {
        Self::nameless(LOCAL)
    }

    /// The caller with one of `gateway.tokens`. A command that serves its own gateway has a `name`.
    pub(super) fn administrator(name: Option<&str>) -> Self {
        Self::nameless(name.unwrap_or(NAMELESS))
    }

    /// The caller with a named token.
    pub(super) fn named(entry: &NamedToken) -> Self {
        let scope = Scope {
            channels: entry.channels.clone(),
            agents: entry.agents.clone(),
            session_prefix: entry.session_prefix.clone(),
        };
        let quota = Quota::new(&entry.name, entry.requests_per_minute, entry.max_in_flight);
        let (name, role) = (entry.name.clone(), entry.role);
        Self(Arc::new(CallerInfo { name, role, scope, speaks_for_others: false, quota }))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn role(&self) -> Role {
        self.0.role
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// The role and the scope as a text, which differs when one of them differs.
    pub(super) fn rights(&self) -> String {
        format!("{:?} {:?}", self.0.role, self.0.scope)
    }

    pub(super) fn quota(&self) -> &Quota {
        &self.0.quota
    }

    /// The `by` of an action: the caller's name, and after it the name that a person gave in the request. So no caller
    /// can act under the name of another token.
    pub(super) fn speaks_as(&self, given: Option<String>) -> Option<String> {
        let given = given.filter(|given| !given.trim().is_empty());
        match given {
            Some(given) if self.0.speaks_for_others => Some(given),
            Some(given) if given != self.0.name => Some(format!("{}/{given}", self.0.name)),
            // Without tokens everybody has the same name, which says nothing.
            None if self.0.name == LOCAL => None,
            _ => Some(self.0.name.clone()),
        }
    }

    /// The name under which the caller handles conversations: like [`Caller::speaks_as`], and never without a name.
    pub(super) fn acts_as(&self, given: Option<String>) -> String {
        self.speaks_as(given).unwrap_or_else(|| LOCAL.to_owned())
    }

    /// Returns the view of the caller on authoring dialogues: their own ones, or all.
    pub(super) fn author(&self) -> Author {
        match self.role() {
            Role::Author => Author::User(self.name().to_owned()),
            _ if self.name() == LOCAL => Author::Operator(LOCAL_USER.to_owned()),
            _ => Author::Operator(self.name().to_owned()),
        }
    }

    /// 403: the caller has another role than the `needed` ones.
    pub(super) fn lacks(&self, needed: &[Role]) -> Reject {
        let names: Vec<String> = needed.iter().map(|role| format!("`{role}`")).collect();
        let message =
            format!("this needs the role {}; the token `{}` has `{}`", names.join(" or "), self.name(), self.role());
        Reject::forbidden(
            message,
            "use a token with this role; `[[gateway.access]]` in the gateway's settings has the tokens",
        )
    }

    /// 403: the caller's sessions are limited, and this request is not about one of them.
    pub(super) fn is_limited(&self, found: &str) -> Reject {
        let message = format!("the token `{}` is limited to some sessions: {found}", self.name());
        Reject::forbidden(message, "use a token without `channels`, `agents` and `session_prefix`")
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Reject> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Reject::unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Caller {
        let entry = serde_json::json!({"name": "desk", "token_env": "DESK", "role": "agent"});
        Caller::named(&serde_json::from_value(entry).unwrap())
    }

    #[test]
    fn a_named_caller_acts_under_its_own_name() {
        let given = |name: &str| Some(name.to_owned());
        assert_eq!(named().speaks_as(None), given("desk"));
        assert_eq!(named().speaks_as(given("李雷")), given("desk/李雷"));
        assert_eq!(named().speaks_as(given("desk")), given("desk"));
        assert_eq!(named().speaks_as(given(" ")), given("desk"));
        assert_eq!(Caller::administrator(None).speaks_as(None), given("token"));
        assert_eq!(Caller::administrator(Some("cli")).speaks_as(given("anna")), given("anna"));
        assert_eq!(Caller::local().speaks_as(None), None);
        assert_eq!(Caller::local().speaks_as(given("anna")), given("anna"));
    }
}
