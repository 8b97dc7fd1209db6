//! What a caller says about an operation.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::{Command, Fence, Parent, Spec, Submit};
use semel_core::{
    Class, Digest, Fingerprint, Input, Key, Label, Lease, Namespace, Note, OnDoubt, Policy,
    Retention, TextError,
};
use serde::Serialize;

use super::queue::Queueing;
use super::replays::Saver;
use crate::error::{Error, Result};
use crate::store::{INPUT_MAX, StoreError};

/// Describes one logical action: what it is called, which key it has, what it is given.
#[derive(Clone, Debug)]
pub struct Request {
    name: std::result::Result<Label, TextError>,
    pub(crate) key: Key,
    pub(crate) namespace: Namespace,
    /// Whether the caller named the namespace.
    walled: bool,
    input: InputBytes,
    class: Class,
    on_doubt: Option<OnDoubt>,
    max_attempts: Option<NonZeroU32>,
    retry_within: Duration,
    settle_delay: Duration,
    retention: Retention,
    pub(crate) lease: Lease,
    pub(crate) wait: Duration,
    pub(crate) parent: Option<Parent>,
    door: Option<Label>,
    behind: Option<Label>,
    /// Whether an answer that is given again is counted where it is found.
    is_counted: bool,
    principal: Option<Label>,
    client_key: Option<Note>,
    occurrence: u32,
    probe_digest: Option<Digest>,
    refused: Option<String>,
}

#[derive(Clone, Debug)]
enum InputBytes {
    None,
    Json(Vec<u8>),
    Bytes(Vec<u8>),
    Apart(Box<Apart>),
}

/// An input whose fingerprint is made of something else.
#[derive(Clone, Debug)]
struct Apart {
    given: Vec<u8>,
    compared: Vec<u8>,
}

/// The longest that a caller may wait for another one's attempt.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Request {
    /// Starts the description of an action.
    #[must_use]
    pub fn new(name: &str, key: Key) -> Self {
        Self {
            name: Label::new(name),
            key,
            namespace: Namespace::default(),
            walled: false,
            input: InputBytes::None,
            class: Class::Unsafe,
            on_doubt: None,
            max_attempts: None,
            retry_within: Policy::RETRY_WITHIN,
            settle_delay: Duration::ZERO,
            retention: Retention::DEFAULT,
            lease: Lease::DEFAULT,
            wait: Duration::ZERO,
            parent: None,
            door: None,
            behind: None,
            is_counted: true,
            principal: None,
            client_key: None,
            occurrence: 1,
            probe_digest: None,
            refused: None,
        }
    }

    /// Describes the same action under another key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// Puts the key behind a wall.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self.walled = true;
        self
    }

    /// Puts the key behind this wall, unless the caller named another.
    pub(crate) fn settled_in(self, namespace: Namespace) -> Self {
        if self.walled {
            self
        } else {
            self.namespace(namespace)
        }
    }

    /// Gives the action an input: the same key with another input is refused.
    #[must_use]
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        match serde_json::to_vec(input) {
            Ok(json) => self.input = InputBytes::Json(json),
            Err(error) => {
                self.refused = Some(format!("the input cannot be written as JSON: {error}"))
            }
        }
        self
    }

    /// Gives the action an input that is JSON text already.
    #[must_use]
    pub fn input_json(mut self, json: &[u8]) -> Self {
        self.input = InputBytes::Json(json.to_vec());
        self
    }

    /// Gives the action an input that is compared byte for byte.
    #[must_use]
    pub fn input_bytes(mut self, bytes: &[u8]) -> Self {
        self.input = InputBytes::Bytes(bytes.to_vec());
        self
    }

    /// Gives the action an input, and tells repeats by other bytes: what the input holds beside them, such as when it
    /// came, may differ from one call to the next. The first call's input stays.
    #[must_use]
    pub fn input_compared_by(mut self, input: &[u8], compared: &[u8]) -> Self {
        self.input = InputBytes::Apart(Box::new(Apart {
            given: input.to_vec(),
            compared: compared.to_vec(),
        }));
        self
    }

    /// Says what repeating the action would do.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Says what happens when the operation is in doubt.
    #[must_use]
    pub fn on_doubt(mut self, on_doubt: OnDoubt) -> Self {
        self.on_doubt = Some(on_doubt);
        self
    }

    /// Limits the attempts.
    #[must_use]
    pub fn max_attempts(mut self, limit: NonZeroU32) -> Self {
        self.max_attempts = Some(limit);
        self
    }

    /// Limits how long a doubt may be retried.
    #[must_use]
    pub fn retry_within(mut self, window: Duration) -> Self {
        self.retry_within = window;
        self
    }

    /// Says that the effect will be committed together with its report, by
    /// [`Permit::commit`](crate::Permit::commit) or
    /// [`Permit::commit_sqlite`](crate::Permit::commit_sqlite). Then an attempt that was not heard of again did
    /// nothing, or can no longer commit: a doubt is retried, however late.
    #[must_use]
    pub fn transactional(self) -> Self {
        self.on_doubt(OnDoubt::Retry).retry_within(Duration::MAX)
    }

    /// Lets the world settle before a probe looks.
    #[must_use]
    pub fn settle_delay(mut self, delay: Duration) -> Self {
        self.settle_delay = delay;
        self
    }

    /// Limits how long the answer is kept.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Limits how long an attempt may be silent; it is renewed while the permit lives.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Waits up to this long for another caller's attempt, at most [`WAIT_MAX`].
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(WAIT_MAX);
        self
    }

    /// Makes this a step of another operation: it begins only while that one runs with this fence.
    #[must_use]
    pub fn parent(mut self, key: Key, fence: Fence) -> Self {
        self.parent = Some(Parent {
            root: key.clone(),
            key,
            fence,
        });
        self
    }

    /// Records the digest of the probe that the caller looks a doubt up with (see [`Probe::digest`](crate::Probe::digest)).
    /// A doubt of the operation is then settled only by callers that bring the same one.
    #[must_use]
    pub fn probe_digest(mut self, digest: Digest) -> Self {
        self.probe_digest = Some(digest);
        self
    }

    /// Names the way in.
    #[must_use]
    pub fn door(mut self, door: Label) -> Self {
        self.door = Some(door);
        self
    }

    /// Names what is behind the door, such as a server and its tool: answers that are given again are counted for it.
    #[must_use]
    pub fn behind(mut self, name: Label) -> Self {
        self.behind = Some(name);
        self
    }

    /// Leaves the counting of answers that are given again to a door that may not give them.
    pub(crate) const fn uncounted(mut self) -> Self {
        self.is_counted = false;
        self
    }

    /// Returns what an answer that is given again is counted for.
    pub(super) fn saver(&self) -> Option<Saver> {
        let library = || Label::new("library").expect("it is a word");
        self.is_counted.then(|| {
            let door = self.door.clone().unwrap_or_else(library);
            Saver::new(door, self.behind.clone())
        })
    }

    /// Names on whose behalf it is done.
    #[must_use]
    pub fn principal(mut self, principal: Label) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Says what a client calls the operation, where a door scopes keys, and which of several intended
    /// repeats it is.
    #[must_use]
    pub fn identified(mut self, client_key: Option<Note>, occurrence: u32) -> Self {
        self.client_key = client_key;
        self.occurrence = occurrence;
        self
    }

    /// Returns the fingerprint of name and input, by which a door judges a call.
    ///
    /// # Errors
    /// Says what is wrong with the request.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        self.fingerprint_of(&self.name()?)
    }

    fn fingerprint_of(&self, name: &Label) -> Result<Fingerprint> {
        let input = match &self.input {
            InputBytes::None => Input::None,
            InputBytes::Json(json) => Input::Json(json),
            InputBytes::Bytes(bytes) => Input::Bytes(bytes),
            InputBytes::Apart(apart) => Input::Bytes(&apart.compared),
        };
        Ok(Fingerprint::of(name, input)?)
    }

    pub(crate) fn name(&self) -> Result<Label> {
        self.name
            .clone()
            .map_err(|error| Error::InvalidInput(error.to_string()))
    }

    /// Says what its caller does not say.
    pub(super) fn unless_said(
        mut self,
        max_attempts: Option<NonZeroU32>,
        on_doubt: Option<OnDoubt>,
    ) -> Self {
        self.max_attempts = self.max_attempts.or(max_attempts);
        self.on_doubt = self.on_doubt.or(on_doubt);
        self
    }

    /// Says whether the action only reads, so that nothing is to be recorded.
    pub(crate) fn is_safe(&self) -> bool {
        self.class == Class::Safe
    }

    /// Makes the command that leaves the action for somebody else to carry out.
    ///
    /// # Errors
    /// Says what is wrong with the request.
    pub fn submission(&self, to: &Queueing) -> Result<Command> {
        let spec = if to.queue.is_some() {
            self.queued_spec()
        } else {
            self.spec()
        }?;
        Ok(Command::Submit(Submit {
            spec,
            queue: to.queue.clone(),
            run_at: to.run_at,
            task: to.task(&self.key, self.given()?),
        }))
    }

    /// Returns what the workers of a queue are given.
    pub(crate) fn given(&self) -> Result<Option<&[u8]>> {
        let given = match &self.input {
            InputBytes::None => None,
            InputBytes::Json(bytes) | InputBytes::Bytes(bytes) => Some(&bytes[..]),
            InputBytes::Apart(apart) => Some(&apart.given[..]),
        };
        match given {
            Some(bytes) if bytes.len() > INPUT_MAX => Err(StoreError::TooLarge {
                what: "the input of a task",
                size: bytes.len(),
                limit: INPUT_MAX,
            }
            .into()),
            given => Ok(given),
        }
    }

    /// Makes what the ledger stores of a request that a queue's workers carry out.
    pub(crate) fn queued_spec(&self) -> Result<Arc<Spec>> {
        let max_attempts = self.max_attempts.or(Some(Policy::QUEUED_ATTEMPTS));
        Self {
            max_attempts,
            ..self.clone()
        }
        .spec()
    }

    /// Makes what the ledger stores of this request.
    pub(crate) fn spec(&self) -> Result<Arc<Spec>> {
        if self.is_safe() {
            return Err(Error::InvalidInput(
                "a safe action changes nothing and needs no claim: just do it".to_owned(),
            ));
        }
        if let Some(refused) = &self.refused {
            return Err(Error::InvalidInput(refused.clone()));
        }
        let name = self.name()?;
        let ordinary = Policy::direct(self.class);
        Ok(Arc::new(Spec {
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            client_key: self.client_key.clone(),
            fingerprint: self.fingerprint_of(&name)?,
            name,
            policy: Policy {
                on_doubt: self.on_doubt.unwrap_or(ordinary.on_doubt),
                max_attempts: self.max_attempts,
                retry_within: self.retry_within,
                settle_delay: self.settle_delay,
                retention: self.retention,
                ..ordinary
            },
            door: self.door.clone(),
            principal: self.principal.clone(),
            parent: self.parent.clone(),
            occurrence: self.occurrence,
            probe_digest: self.probe_digest,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_told_from_others_by_what_is_compared() {
        let request = || Request::new("stripe", Key::new("k").expect("it is a key"));
        let first = request().input_compared_by(b"first", b"body");
        let second = request().input_compared_by(b"second", b"body");
        let other = request().input_compared_by(b"first", b"other");
        let print = |request: &Request| request.fingerprint().expect("it has one");
        assert_eq!(print(&first), print(&second));
        assert_ne!(print(&first), print(&other));
        assert_eq!(first.given().expect("it fits"), Some(&b"first"[..]));
        assert_eq!(print(&first), print(&request().input_bytes(b"body")));
    }
}
