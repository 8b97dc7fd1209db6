//! Methods: which requests take effect once.
//!
//! A profile lists the methods that it protects whether they have a key or not. A request of any other method is protected
//! if it has one, so that a key is never ignored; only methods that ask for no effect pass with it.

use super::profile::Profile;
use crate::policy::{Class, OnDoubt};

/// Headers by which a request asks to be read as one of another method. Many frameworks heed them.
pub const METHOD_OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// What the method of a request says about repeating it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// GET, HEAD, OPTIONS, TRACE: it asks for no effect. Methods are case-sensitive: `get` is none of these.
    Safe,
    /// The profile protects it.
    Protected(Class),
    /// It is one that the profile protects for an upstream that reads methods in any case (`patch`), or that heeds a
    /// header which names another method.
    Disguised,
    /// Any other.
    Other,
}

/// How a request is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// What repeating it would do.
    pub class: Class,
    /// What happens in doubt, where the class does not say.
    pub on_doubt: Option<OnDoubt>,
}

/// Says whether a method asks for no effect (RFC 9110, section 9.2.1).
#[must_use]
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

impl Profile {
    /// Returns what the method of a request says; `overrides` are the values of its [`METHOD_OVERRIDES`].
    #[must_use]
    pub fn method_kind<'a>(
        &self,
        method: &str,
        overrides: impl IntoIterator<Item = &'a [u8]>,
    ) -> MethodKind {
        let written = self.written_kind(method);
        // One that names a safe method, or the request's own, changes nothing that would need more protection.
        let mut others = overrides
            .into_iter()
            .map(|value| String::from_utf8_lossy(value.trim_ascii()).into_owned())
            .filter(|other| !other.is_empty() && other != method && !is_safe(other))
            .peekable();
        if others.peek().is_none() {
            return written;
        }
        let is_listed = |kind| match kind {
            MethodKind::Protected(_) | MethodKind::Disguised => true,
            MethodKind::Safe | MethodKind::Other => false,
        };
        if is_listed(written) || others.any(|other| is_listed(self.written_kind(&other))) {
            MethodKind::Disguised
        } else {
            MethodKind::Other
        }
    }

    fn written_kind(&self, method: &str) -> MethodKind {
        let is_disguised = |(name, _): &(String, Class)| name.eq_ignore_ascii_case(method);
        match self.class(method) {
            Some(class) => MethodKind::Protected(class),
            None if is_safe(method) => MethodKind::Safe,
            None if self.methods.iter().any(is_disguised) => MethodKind::Disguised,
            None => MethodKind::Other,
        }
    }

    /// Returns how a request is protected; `None` where it passes. What the profile does not list is unsafe, and its
    /// doubts are held: what the profile says of doubts is said of the methods that it lists.
    #[must_use]
    pub fn protection(&self, kind: MethodKind, has_key: bool) -> Option<Protection> {
        let unlisted = Protection {
            class: Class::Unsafe,
            on_doubt: None,
        };
        match kind {
            MethodKind::Safe => None,
            MethodKind::Protected(class) => Some(Protection {
                class,
                on_doubt: self.on_doubt,
            }),
            MethodKind::Disguised => Some(unlisted),
            MethodKind::Other => has_key.then_some(unlisted),
        }
    }
}
