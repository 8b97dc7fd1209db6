//! Who calls: a token's namespace and scope, or those of an anonymous caller on this machine where no token is needed.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use semel::core::token::Granted;
use semel::{Label, Namespace, Scope};

use crate::http::Problem;
use crate::tokens::principal_of;

/// What a caller without a token may do, where none is needed. Everything but what lasts: a process that reaches a port of this
/// machine for a moment must not leave with a token.
pub(crate) const ANONYMOUS: Scope = Scope::Operate;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) namespace: Namespace,
    pub(crate) scope: Scope,
    pub(crate) door: Label,
    /// The token's id, where there is one.
    pub(crate) principal: Option<Label>,
}

impl Caller {
    /// An anonymous caller on this machine, in the server's own namespace.
    pub(crate) fn anonymous(namespace: Namespace) -> Self {
        Self {
            namespace,
            scope: ANONYMOUS,
            door: api(),
            principal: None,
        }
    }

    /// Whoever shows a token.
    pub(crate) fn of(granted: &Granted) -> Self {
        Self {
            namespace: granted.namespace.clone(),
            scope: granted.scope,
            door: api(),
            principal: Label::new(&principal_of(granted)).ok(),
        }
    }

    /// Refuses a caller who may not do this.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.scope.includes(scope) {
            return Ok(());
        }
        let (has, needed) = (self.scope.as_str(), scope.as_str());
        let has = match self.principal {
            Some(_) => format!("this one has `{has}`"),
            None => format!("without one a caller has `{has}`"),
        };
        let text = format!("this call needs a token with scope `{needed}`; {has}");
        let hint = format!("`semel token create --scope {needed}` makes one");
        Err(Problem::new("forbidden", text).hint(hint))
    }

    /// Says who decided something.
    pub(crate) fn by(&self) -> Label {
        self.principal.clone().unwrap_or_else(|| self.door.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Arc<Self>>();
        let caller = caller.ok_or_else(unauthorized)?;
        Ok(Self::clone(caller))
    }
}

/// Names this way in.
fn api() -> Label {
    Label::new("api").expect("it is a short word")
}

/// Says that there is no valid token: the same in all cases, as why is nobody's business.
pub(crate) fn unauthorized() -> Problem {
    Problem::new("unauthorized", "a valid token is needed")
        .hint("send `Authorization: Bearer TOKEN`; `semel token create` makes one")
}

/// Returns what a request shows as its token.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut lines = headers.get_all(header::AUTHORIZATION).into_iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(unauthorized());
    }
    let text = line.to_str().map_err(|_| unauthorized())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(unauthorized)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized());
    }
    Ok(Some(token.trim()))
}
