//! A ledger that another machine keeps: `http://` and `https://`.
//!
//! The engine stays what it is: permits, their renewal, waiting and receipts are here. Only the rules run
//! where the store is: each command is sent there as it is, and what the rules said comes back. So this
//! is a store that can be read, and that cannot be committed to.
//!
//! An answer that was lost is asked for again. Every command may be sent twice: the same attempt gets the
//! same grant, the same report the same receipt, and an operator's order names its version. When the
//! server cannot be reached again, whoever asked hears that nobody knows; when nothing was sent, that
//! nothing was written.

mod connect;
mod pool;
mod principal_codes;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use semel_core::clock::{Reading, Stamp};
use semel_core::identity::Kin;
use semel_core::ledger::{Command, Fence, Record, Rejection, Reply};
use semel_core::queue::QueueHash;
use semel_core::{Digest, KeyHash, Namespace, Scope, Timestamp, TokenId, TokenRecord};
use tokio::time::Instant;

use self::pool::{Heard, Pool};
use self::principal_codes::PrincipalCodes;
use self::url::Url;
use crate::store::time::Time;
use crate::store::{
    Change, Chunk, Commit, Current, Logged, Moved, Origin, PAYLOAD_MAX, Page, Pending, Place,
    Progress, Query, Result, Standing, Store, StoreError, Stored, Waiting, state_directory,
};
use crate::wire::{self, Answer, Apply, Brought, Call, Hello, Said, Subject, TokenCall};

/// How long one call may take, all its repetitions included: longer than a busy store lets anybody wait,
/// and short enough that a person does not give up first.
const CALL_MAX: Duration = Duration::from_secs(20);

/// The pauses before a call is sent again whose answer was lost: together they outlast the restart of a
/// server.
const PAUSES: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// A store that a server keeps.
pub struct RemoteStore {
    pool: Pool,
    time: Time,
    hello: Hello,
    notes: Option<PathBuf>,
    passed_over: PassedOver,
    principal_codes: PrincipalCodes,
}

/// How far the log has nothing of ours after a number: whoever follows it asks again and again from the
/// same one while others are busy.
#[derive(Debug, Default)]
struct PassedOver(Mutex<(u64, u64)>);

impl PassedOver {
    fn after(&self, asked: u64) -> u64 {
        let (from, reached) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if from == asked {
            reached.max(asked)
        } else {
            asked
        }
    }

    fn note(&self, asked: u64, reached: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (asked, reached);
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore")
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// What the server said to a command.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Told {
    /// It was carried out.
    Applied {
        /// The answer of the rules.
        reply: Reply,
        /// What is stored.
        current: Current,
        /// When it was decided.
        at: Timestamp,
    },
    /// It was refused.
    Refused {
        /// Why.
        rejection: Rejection,
        /// The record that this rests on.
        record: Option<std::sync::Arc<Record>>,
    },
}

impl RemoteStore {
    /// Opens the store of the server at this URL: `http://HOST:PORT`, `https://HOST[?ca=PATH]` or
    /// `http+unix:PATH`, as the owner of this token.
    ///
    /// # Errors
    /// Says why the server cannot be used, and what to do about it. A token is not sent in plain text to
    /// another machine.
    pub async fn open(url: &str, token: Option<&str>) -> Result<Self> {
        let place = shown_place(url);
        let url = Url::parse(url).map_err(|error| about(&place, error))?;
        if token.is_some() && !url.is_private() {
            return Err(StoreError::Refused(format!(
                "{place}: a token is not sent in plain text to another machine, where others could \
                 read it: use https://"
            )));
        }
        let token = token.map(bearer).transpose()?;
        let mut store = Self {
            pool: Pool::new(url, token)?,
            time: Time::of_server(),
            hello: Hello {
                store: None,
                namespace: Namespace::default(),
                scope: Scope::Read,
            },
            notes: None,
            passed_over: PassedOver::default(),
            principal_codes: PrincipalCodes::default(),
        };
        let Said::Hello(hello) = store.ask(&Call::Hello).await? else {
            return Err(strange());
        };
        let known_by = hello.store.as_deref().unwrap_or(&place);
        // A note is delivered by whoever opens the store next: it must be somebody behind the same wall.
        let parts = [
            known_by.as_bytes(),
            b"\n",
            hello.namespace.as_str().as_bytes(),
        ];
        let number = &Digest::of_parts(&parts).hex()[..32];
        store.notes = state_directory(&format!("remote-{number}-notes"));
        store.hello = hello;
        Ok(store)
    }

    /// Keeps notes elsewhere on this machine, or none, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_notes(self, notes: Option<PathBuf>) -> Self {
        Self { notes, ..self }
    }

    /// Returns what the owner of the token may do.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.hello.scope
    }

    /// Asks which tokens there are.
    async fn find_tokens(&self, call: TokenCall) -> Result<Vec<TokenRecord>> {
        match self.ask(&Call::Tokens(Box::new(call))).await? {
            Said::Tokens(tokens) => Ok(tokens),
            _ => Err(strange()),
        }
    }

    /// Changes a token; returns whether it is as it was asked for.
    async fn count_tokens(&self, call: TokenCall) -> Result<bool> {
        match self.ask(&Call::Tokens(Box::new(call))).await? {
            Said::Count(count) => Ok(count == 1),
            _ => Err(strange()),
        }
    }

    /// Has the server carry a command out.
    ///
    /// # Errors
    /// `Unavailable` when nothing was written, `Unknown` when nobody can tell.
    #[doc(hidden)]
    pub async fn apply(
        &self,
        subject: &Subject,
        command: &Command,
        brought: &Brought,
    ) -> Result<Told> {
        if let Some(wire::Bytes::Here(bytes)) = &brought.payload {
            check_size(bytes.len())?;
        }
        let apply = Apply {
            subject: subject.clone(),
            command: command.clone(),
            brought: brought.clone(),
        };
        match self.ask(&Call::Apply(Box::new(apply))).await? {
            Said::Applied { reply, current, at } => {
                self.time.stored(at);
                Ok(Told::Applied { reply, current, at })
            }
            Said::Refused { rejection, record } => Ok(Told::Refused { rejection, record }),
            _ => Err(unknown(strange())),
        }
    }

    /// Has the server make the code of a digest under the ledger's secret key, once for each digest that is in use.
    ///
    /// # Errors
    /// Fails when the server cannot be asked, when the token may not write, and when the server is older than this
    /// call.
    #[doc(hidden)]
    pub async fn principal_code(&self, digest: &Digest) -> Result<Digest> {
        if let Some(code) = self.principal_codes.get(digest) {
            return Ok(code);
        }
        let said = self.ask(&Call::PrincipalCode(*digest)).await;
        let said = said.map_err(|error| match error {
            StoreError::Refused(text) => StoreError::Refused(format!(
                "the server cannot name the callers of a proxy or gateway ({text}): use the same version of Semel \
                 on both sides"
            )),
            other => other,
        })?;
        match said {
            Said::PrincipalCode(code) => {
                self.principal_codes.keep(*digest, code);
                Ok(code)
            }
            _ => Err(strange()),
        }
    }

    /// Asks the server; again when its answer was lost.
    async fn ask(&self, call: &Call) -> Result<Said> {
        let body = Bytes::from(call.encode());
        let deadline = Instant::now() + CALL_MAX;
        let mut pauses = PAUSES.into_iter();
        // Whether an earlier sending may have been carried out.
        let mut maybe_done = false;
        loop {
            let sent = self.time.uptime();
            let lost = match self.pool.exchange(&body, deadline).await {
                Ok(heard) if heard.status.is_server_error() => {
                    maybe_done = true;
                    StoreError::Unavailable(text_of(&heard))
                }
                Ok(heard) => {
                    return match told(&heard) {
                        Ok(answer) => {
                            self.time.hear(answer.now, sent);
                            said(answer.said, call, maybe_done)
                        }
                        Err(error)
                            if call.writes() && (maybe_done || heard.status.is_success()) =>
                        {
                            Err(unknown(error))
                        }
                        Err(error) => Err(error),
                    };
                }
                // Nothing of it has ever left this machine.
                Err(lost) if !lost.sent && !maybe_done => return Err(lost.error),
                Err(lost) => {
                    maybe_done |= lost.sent;
                    lost.error
                }
            };
            let pause = pauses.next().filter(|_| call.may_be_repeated());
            match pause {
                Some(pause) if Instant::now() + pause < deadline => tokio::time::sleep(pause).await,
                Some(_) | None if call.writes() => return Err(unknown(lost)),
                Some(_) | None => return Err(lost),
            }
        }
    }
}

/// Reads what was heard.
fn told(heard: &Heard) -> Result<Answer> {
    match heard.status {
        StatusCode::OK if heard.is_message => {
            Answer::decode(&heard.body).map_err(|error| StoreError::Refused(error.to_string()))
        }
        StatusCode::UNAUTHORIZED => Err(StoreError::Unauthorized(text_of(heard))),
        StatusCode::FORBIDDEN => Err(StoreError::Forbidden(text_of(heard))),
        StatusCode::TOO_MANY_REQUESTS => Err(StoreError::Unavailable(text_of(heard))),
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            Err(StoreError::Refused(text_of(heard)))
        }
        _ => Err(strange()),
    }
}

/// Says what the server answered, in the caller's terms.
fn said(said: Said, call: &Call, maybe_done: bool) -> Result<Said> {
    match said {
        // This time nothing was written, but an earlier sending may have been.
        Said::Failed(error) if maybe_done && call.writes() => Err(unknown(error)),
        Said::Failed(error) => Err(error),
        said => Ok(said),
    }
}

/// Returns the words of a problem (RFC 9457), or its status.
fn text_of(heard: &Heard) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_slice(&heard.body).ok();
    let field = |name| problem.as_ref()?.get(name)?.as_str();
    match field("detail").or_else(|| field("title")) {
        Some(text) => text.to_owned(),
        None => format!("the server answered with status {}", heard.status),
    }
}

/// Makes the error of a call of which nobody knows whether it was carried out.
fn unknown(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) => StoreError::Unknown(text),
        other => StoreError::Unknown(other.to_string()),
    }
}

/// Says that what answers is not what was expected.
fn strange() -> StoreError {
    StoreError::Refused(
        "what answers there is no Semel server that this version understands: check the URL, and use the \
         same version on both sides"
            .to_owned(),
    )
}

/// Says that something is done where the store is.
fn elsewhere(what: &str) -> StoreError {
    StoreError::Refused(format!(
        "{what} where the store is: run it there, with --store naming the store itself"
    ))
}

/// Returns a URL as errors may show it: without its parameters, and without a name and a password, which do not belong
/// there and are told to be wrong.
fn shown_place(url: &str) -> String {
    let place = url.split('?').next().unwrap_or(url);
    match place.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit('@').next().unwrap_or(authority);
            format!("{scheme}://{host}{path}")
        }
        None => place.to_owned(),
    }
}

fn about(place: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Refused(text) => {
            StoreError::Refused(format!("`{place}` is no URL of a server: {text}"))
        }
        other => other,
    }
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        StoreError::Unauthorized("the token has a character that no token has".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// A payload that no store takes is not sent.
fn check_size(size: usize) -> Result<()> {
    if size > PAYLOAD_MAX {
        return Err(StoreError::TooLarge {
            what: "the payload",
            size,
            limit: PAYLOAD_MAX,
        });
    }
    Ok(())
}

impl Store for RemoteStore {
    fn now(&self) -> Timestamp {
        self.time.now()
    }

    fn reading(&self) -> Reading {
        self.time.reading()
    }

    fn load<'a>(&'a self, key: &'a KeyHash) -> Pending<'a, Result<Current>> {
        Box::pin(async {
            match self.ask(&Call::Load(*key)).await? {
                Said::Found(current) => Ok(current),
                _ => Err(strange()),
            }
        })
    }

    fn load_at(&self, place: Place) -> Pending<'_, Result<Option<Stored>>> {
        Box::pin(async move {
            match self.ask(&Call::LoadAt(place)).await? {
                Said::Lies(stored) => Ok(stored),
                _ => Err(strange()),
            }
        })
    }

    fn commit(&self, _change: Change) -> Pending<'_, Result<Commit>> {
        Box::pin(async {
            Err(elsewhere(
                "what was decided here cannot be stored: it is decided",
            ))
        })
    }

    fn payload<'a>(&'a self, place: Place) -> Pending<'a, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let mut whole = vec![];
            loop {
                let offset = whole.len() as u64;
                let part = match self.ask(&Call::Payload { place, offset }).await? {
                    Said::Payload(Some(part)) => part,
                    Said::Payload(None) => return Ok(None),
                    _ => return Err(strange()),
                };
                let is_stuck = part.bytes.is_empty();
                whole.extend(part.bytes);
                if is_stuck || whole.len() as u64 >= part.total {
                    return Ok(Some(whole));
                }
            }
        })
    }

    fn append(&self, place: Place, fence: Fence, chunks: Vec<Chunk>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            for chunk in &chunks {
                check_size(chunk.bytes.len())?;
            }
            let mut rest = chunks.into_iter().peekable();
            while rest.peek().is_some() {
                let (mut chunks, mut total) = (vec![], 0);
                while let Some(chunk) = rest.next_if(|chunk: &Chunk| {
                    chunks.is_empty() || total + chunk.bytes.len() <= wire::PART_MAX
                }) {
                    total += chunk.bytes.len();
                    chunks.push(chunk);
                }
                let call = Call::Append {
                    place,
                    fence,
                    chunks,
                };
                match self.ask(&call).await? {
                    Said::Taken => {}
                    _ => return Err(unknown(strange())),
                }
            }
            Ok(())
        })
    }

    fn discard(&self, place: Place, fence: Fence) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            match self.ask(&Call::Discard { place, fence }).await? {
                Said::Taken => Ok(()),
                _ => Err(unknown(strange())),
            }
        })
    }

    fn stream(&self, place: Place, fence: Fence) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move {
            let mut whole = vec![];
            loop {
                let skip = whole.len() as u64;
                match self.ask(&Call::Stream { place, fence, skip }).await? {
                    Said::Stream { chunks, more } => {
                        let is_over = !more || chunks.is_empty();
                        whole.extend(chunks);
                        if is_over {
                            return Ok(whole);
                        }
                    }
                    _ => return Err(strange()),
                }
            }
        })
    }

    fn kin(&self, kin: Kin) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move {
            match self.ask(&Call::Kin(kin)).await? {
                Said::Records(found) => Ok(found),
                _ => Err(strange()),
            }
        })
    }

    fn waiting(&self, ask: Waiting) -> Pending<'_, Result<Vec<Stored>>> {
        Box::pin(async move {
            match self.ask(&Call::Waiting(ask)).await? {
                Said::Records(found) => Ok(found),
                _ => Err(strange()),
            }
        })
    }

    fn taken(
        &self,
        queue: QueueHash,
        lane: Option<u64>,
        limit: usize,
    ) -> Pending<'_, Result<usize>> {
        Box::pin(async move {
            match self.ask(&Call::Taken { queue, lane, limit }).await? {
                Said::Count(count) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
                _ => Err(strange()),
            }
        })
    }

    fn list(&self, query: Query) -> Pending<'_, Result<Page>> {
        Box::pin(async move {
            match self.ask(&Call::List(Box::new(query))).await? {
                Said::Page(page) => Ok(page),
                _ => Err(strange()),
            }
        })
    }

    fn end(&self) -> Pending<'_, Result<u64>> {
        Box::pin(async move {
            match self.ask(&Call::End).await? {
                Said::End(end) => Ok(end),
                _ => Err(strange()),
            }
        })
    }

    /// Those of other namespaces are not seen.
    fn has_gaps(&self) -> bool {
        true
    }

    fn log(&self, asked: u64, limit: usize) -> Pending<'_, Result<Vec<Logged>>> {
        Box::pin(async move {
            let mut after = self.passed_over.after(asked);
            loop {
                let Said::Log {
                    entries,
                    reached,
                    more,
                } = self.ask(&Call::Log { after, limit }).await?
                else {
                    return Err(strange());
                };
                if !entries.is_empty() {
                    return Ok(entries);
                }
                self.passed_over.note(asked, reached);
                if !more || reached <= after {
                    return Ok(entries);
                }
                after = reached;
            }
        })
    }

    fn sweep_mark(&self, _next: Option<Stamp>) -> Pending<'_, Result<Option<Stamp>>> {
        Box::pin(async { Err(elsewhere("a ledger is swept")) })
    }

    fn sweep_progress(&self, _next: Option<Progress>) -> Pending<'_, Result<Progress>> {
        Box::pin(async { Err(elsewhere("a ledger is swept")) })
    }

    fn as_remote(&self) -> Option<&RemoteStore> {
        Some(self)
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.hello.namespace)
    }

    fn notes(&self) -> Option<PathBuf> {
        self.notes.clone()
    }

    fn backup(&self, _to: PathBuf) -> Pending<'_, Result<()>> {
        Box::pin(async { Err(elsewhere("a backup is made")) })
    }

    fn id(&self) -> Pending<'_, Result<String>> {
        Box::pin(async { Err(elsewhere("a ledger is copied")) })
    }

    fn standing(&self) -> Pending<'_, Result<Standing>> {
        Box::pin(async {
            match self.ask(&Call::Standing).await? {
                Said::Standing(standing) => Ok(standing),
                _ => Err(strange()),
            }
        })
    }

    fn become_copy(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Err(elsewhere("a ledger is copied")) })
    }

    fn close(&self, _moved: Moved) -> Pending<'_, Result<()>> {
        Box::pin(async { Err(elsewhere("a ledger is moved")) })
    }

    fn origin(&self, next: Option<Origin>) -> Pending<'_, Result<Option<Origin>>> {
        Box::pin(async move {
            match next {
                None => Ok(None),
                Some(_) => Err(elsewhere("a ledger is copied")),
            }
        })
    }

    fn adopted(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Err(elsewhere("a copy is adopted")) })
    }

    fn add_token(&self, token: TokenRecord) -> Pending<'_, Result<bool>> {
        Box::pin(async move { self.count_tokens(TokenCall::Add(token)).await })
    }

    fn token(&self, id: TokenId) -> Pending<'_, Result<Option<TokenRecord>>> {
        Box::pin(async move { Ok(self.find_tokens(TokenCall::Find(id)).await?.pop()) })
    }

    fn tokens(
        &self,
        after: Option<TokenId>,
        limit: usize,
    ) -> Pending<'_, Result<Vec<TokenRecord>>> {
        Box::pin(self.find_tokens(TokenCall::List { after, limit }))
    }

    /// The server says when.
    fn revoke_token(&self, id: TokenId, _at: Timestamp) -> Pending<'_, Result<bool>> {
        Box::pin(self.count_tokens(TokenCall::Revoke(id)))
    }

    /// The server tidies up.
    fn tidy(&self) -> Pending<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
}
