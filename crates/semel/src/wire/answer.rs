//! The server's side: a call is checked against its caller's wall and carried out.

use std::sync::Arc;

use semel_core::ledger::codec::{encode_entry, encode_record};
use semel_core::ledger::{
    Begin, Command, Expire, Fence, Record, Rejection, Resolution, Spec, Submit,
};
use semel_core::{Digest, KeyHash, Payload, Scope, Verdict};

use super::attempt_ids;
use super::call::{Apply, Call};
use super::caller::Caller;
use super::fields::Malformed;
use super::reply::{Answer, Hello, Part, Said};
use super::tokens;
use super::wall::Wall;
use super::{Brought, Bytes, PART_MAX, Subject};
use crate::engine::Engine;
use crate::error::Error;
use crate::incident::Incident;
use crate::store::{
    Current, INPUT, Logged, Moved, PAGE_MAX, Page, Place, Query, Result, Standing, StoreError,
    Stored,
};

/// How many pages of the log one call looks through for entries of its caller: beyond them the answer
/// says how far it came, so that a busy neighbour cannot hold a call up.
const LOG_PAGES_MAX: usize = 16;

/// A message for a caller.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the caller is not told, for the log.
    pub incident: Option<Incident>,
}

/// Answers one call of a caller.
///
/// # Errors
/// Says why the bytes are no call; then nothing was done.
pub async fn answer(
    engine: &Engine,
    caller: &Caller,
    call: &[u8],
) -> std::result::Result<Message, Malformed> {
    let call = Call::decode(call)?;
    let own = match &call {
        Call::Apply(apply) => attempt_ids::named_by(&apply.command).cloned(),
        _ => None,
    };
    let (said, incident) = match said(engine, caller, call).await {
        Ok(said) if caller.scope.includes(Scope::Operate) => (said, None),
        Ok(said) => (attempt_ids::hide(said, own.as_ref()), None),
        Err(Failure::OfCaller(error)) => (Said::Failed(error), None),
        Err(Failure::OfStore(error)) => match error.concealed() {
            Some((error, incident)) => (Said::Failed(error), Some(incident)),
            None => (Said::Failed(error), None),
        },
    };
    let now = engine.store().now();
    let bytes = Answer { now, said }.encode();
    Ok(Message { bytes, incident })
}

/// Why there is no answer. What the store says can name a file or a host and is not told as it is.
enum Failure {
    OfCaller(StoreError),
    OfStore(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::OfStore(error)
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

async fn said(engine: &Engine, caller: &Caller, call: Call) -> Outcome<Said> {
    let needed = call.scope();
    if !caller.scope.includes(needed) {
        let has = match caller.principal {
            Some(_) => "the token",
            None => "a caller without a token",
        };
        return Err(Failure::OfCaller(StoreError::Forbidden(format!(
            "this needs a token with the scope `{needed}`, and {has} has `{}`",
            caller.scope
        ))));
    }
    let store = &**engine.store();
    let namespace = &caller.namespace;
    let wall = Wall { store, namespace };
    Ok(match call {
        Call::Hello => Said::Hello(Hello {
            // A store without a number is one for tests.
            store: store.id().await.ok(),
            namespace: namespace.clone(),
            scope: caller.scope,
        }),
        Call::Apply(apply) => applied(engine, caller, wall, *apply).await?,
        Call::Load(key) => Said::Found(wall.load(&key).await?),
        Call::LoadAt(place) => Said::Lies(wall.load_at(place).await?),
        Call::Payload { place, offset } => Said::Payload(payload(wall, place, offset).await?),
        Call::Append {
            place,
            fence,
            chunks,
        } => {
            check_fence(fence)?;
            if !wall.has_place(place).await? {
                return Err(Failure::OfCaller(StoreError::Corrupt(
                    "a claimed operation is not there".to_owned(),
                )));
            }
            store.append(place, fence, chunks).await?;
            Said::Taken
        }
        Call::Discard { place, fence } => {
            check_fence(fence)?;
            if wall.has_place(place).await? {
                store.discard(place, fence).await?;
            }
            Said::Taken
        }
        Call::Stream { place, fence, skip } => {
            let chunks = if wall.has_place(place).await? {
                store.stream(place, fence).await?
            } else {
                vec![]
            };
            let skip = usize::try_from(skip).unwrap_or(usize::MAX);
            let mut rest = chunks.into_iter().skip(skip).peekable();
            let chunks = part(&mut rest, |chunk| chunk.bytes.len());
            let more = rest.peek().is_some();
            Said::Stream { chunks, more }
        }
        Call::List(query) => Said::Page(list(wall, *query).await?),
        Call::Log { after, limit } => log(wall, after, limit).await?,
        Call::End => Said::End(store.end().await?),
        Call::Standing => Said::Standing(match store.standing().await? {
            standing @ (Standing::Open | Standing::Copy) => standing,
            // The path that a copied file remembers is for the operator, too.
            Standing::Copied { .. } => Standing::Copy,
            // Where the ledger has gone is for the operator: it names a file or a host.
            Standing::Closed(moved) => Standing::Closed(Moved {
                to: "another store".to_owned(),
                ..moved
            }),
        }),
        Call::Kin(kin) => Said::Records(wall.kin(kin).await?),
        Call::Waiting(ask) => Said::Records(wall.waiting(ask).await?),
        Call::Taken { queue, lane, limit } => {
            Said::Count(wall.taken(queue, lane, limit).await? as u64)
        }
        Call::Tokens(call) => tokens::answer(wall, *call).await?,
        Call::PrincipalCode(digest) => match engine.principal_code(&digest).await {
            Ok(code) => Said::PrincipalCode(code),
            Err(Error::Store(error)) => return Err(error.into()),
            Err(other) => return Err(unusual(&other)),
        },
    })
}

/// Takes as many as go into one answer, and at least one.
fn part<T>(
    rest: &mut std::iter::Peekable<impl Iterator<Item = T>>,
    size: impl Fn(&T) -> usize,
) -> Vec<T> {
    let (mut taken, mut total) = (vec![], 0);
    while let Some(next) = rest.next_if(|next| taken.is_empty() || total + size(next) <= PART_MAX) {
        total += size(&next);
        taken.push(next);
    }
    taken
}

async fn payload(wall: Wall<'_>, place: Place, offset: u64) -> Result<Option<Part>> {
    if !wall.has_place(place).await? {
        return Ok(None);
    }
    let whole = wall.store.payload(place).await?;
    Ok(whole.map(|whole| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = from.min(whole.len());
        let to = whole.len().min(from.saturating_add(PART_MAX));
        Part {
            total: whole.len() as u64,
            bytes: whole[from..to].to_vec(),
        }
    }))
}

async fn list(wall: Wall<'_>, mut query: Query) -> Outcome<Page> {
    match &query.namespace {
        Some(named) if named != wall.namespace => return Err(other_namespace(wall)),
        Some(_) | None => query.namespace = Some(wall.namespace.clone()),
    }
    let page = wall.store.list(query).await?;
    let mut own = vec![];
    for stored in page.items {
        // A list does not know whose a stub is.
        if wall.has(&stored).await? {
            own.push(Stored::new(stored.record, stored.place));
        }
    }
    let mut rest = own.into_iter().peekable();
    let size = |stored: &Stored| encode_record(&stored.record).len();
    let items = part(&mut rest, size);
    let next = match (rest.peek(), items.last()) {
        (Some(_), Some(last)) => Some(last.place),
        _ => page.next,
    };
    Ok(Page { items, next })
}

async fn log(wall: Wall<'_>, mut after: u64, limit: usize) -> Result<Said> {
    let limit = limit.clamp(1, PAGE_MAX);
    for _ in 0..LOG_PAGES_MAX {
        let page = wall.store.log(after, limit).await?;
        let Some(last) = page.last() else {
            return Ok(Said::Log {
                entries: vec![],
                reached: after,
                more: false,
            });
        };
        after = last.seq;
        let own = wall.own(page).await?;
        if own.is_empty() {
            continue;
        }
        let mut rest = own.into_iter().peekable();
        let size = |logged: &Logged| encode_entry(&logged.entry).len();
        let entries = part(&mut rest, size);
        let cut = rest
            .peek()
            .and_then(|_| entries.last())
            .map(|last| last.seq);
        return Ok(Said::Log {
            entries,
            reached: cut.unwrap_or(after),
            more: true,
        });
    }
    Ok(Said::Log {
        entries: vec![],
        reached: after,
        more: true,
    })
}

fn other_namespace(wall: Wall<'_>) -> Failure {
    Failure::OfCaller(StoreError::Forbidden(format!(
        "here it is always the namespace `{}`: another one takes another token",
        wall.namespace
    )))
}

/// An error of the engine that is not the store's.
fn unusual(error: &Error) -> Failure {
    Failure::OfCaller(StoreError::Refused(error.to_string()))
}

async fn applied(engine: &Engine, caller: &Caller, wall: Wall<'_>, apply: Apply) -> Outcome<Said> {
    let Apply {
        subject,
        command,
        brought,
    } = apply;
    let command = without_strangers_claim(caller, wall, &subject, command).await?;
    let command = match command {
        Command::Begin(begin) => {
            let spec = owned(caller, wall, &subject, begin.spec)?;
            Command::Begin(Begin { spec, ..begin })
        }
        Command::Submit(submit) => {
            let spec = owned(caller, wall, &subject, submit.spec)?;
            Command::Submit(Submit { spec, ..submit })
        }
        Command::Renew(_)
        | Command::Settle(_)
        | Command::Expire(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Deliver(_) => {
            match &subject.key {
                Some(key) if KeyHash::of(wall.namespace, key) != subject.hash => {
                    return Err(other_namespace(wall));
                }
                Some(_) => {}
                // Only the hash is known, of which nobody can tell whose it is.
                None => {
                    if let Current::Absent(_) = wall.load(&subject.hash).await? {
                        return Ok(refused(Rejection::NotFound, None));
                    }
                }
            }
            command
        }
        Command::Breaker(ask) => {
            if ask.namespace != *wall.namespace || ask.hash() != subject.hash {
                return Err(other_namespace(wall));
            }
            Command::Breaker(ask)
        }
        Command::Bury(_) | Command::Drop(_) | Command::Adopt(_) => {
            return Err(Failure::OfCaller(StoreError::Forbidden(format!(
                "the server does `{}` itself",
                command.name()
            ))));
        }
    };
    if let Some((parent, _)) = &brought.parent
        && let Current::Absent(_) = wall.load(parent).await?
    {
        let record = match wall.load(&subject.hash).await? {
            Current::Absent(_) => None,
            Current::Stored(stored) => Some(stored.record),
        };
        return Ok(refused(Rejection::Fenced, record));
    }
    check_payload(wall, &subject, &command, &brought).await?;
    match engine.apply(&subject, &command, &brought).await {
        Ok(applied) => Ok(Said::Applied {
            reply: applied.reply,
            current: applied.current,
            at: applied.at,
        }),
        Err(Error::Refused(refusal)) => Ok(refused(refusal.rejection, refusal.record)),
        Err(Error::Store(error)) => Err(error.into()),
        Err(other) => Err(unusual(&other)),
    }
}

/// Takes the claim that a holder is gone out of a command, unless the caller may make it.
///
/// The server cannot look for a process on another machine, so it believes the caller. A claim about another caller's
/// attempt would end a lease that is alive: a doubt without a reason, or a second effect where doubts are retried.
/// So a caller is believed about operations of its own, and about all with the scope `operate`.
async fn without_strangers_claim(
    caller: &Caller,
    wall: Wall<'_>,
    subject: &Subject,
    command: Command,
) -> Outcome<Command> {
    let claims_gone = match &command {
        Command::Begin(begin) => begin.sighting.is_some_and(|sighting| !sighting.alive),
        Command::Expire(expire) => expire.gone.is_some(),
        Command::Submit(_)
        | Command::Renew(_)
        | Command::Settle(_)
        | Command::Resolve(_)
        | Command::Retry(_)
        | Command::Cancel(_)
        | Command::Forget(_)
        | Command::Bury(_)
        | Command::Drop(_)
        | Command::Deliver(_)
        | Command::Adopt(_)
        | Command::Breaker(_) => false,
    };
    if !claims_gone || caller.scope.includes(Scope::Operate) {
        return Ok(command);
    }
    let is_own = match wall.load(&subject.hash).await? {
        Current::Stored(stored) => {
            let operation = stored.record.operation();
            operation.is_some_and(|operation| operation.spec.principal == caller.principal)
        }
        Current::Absent(_) => false,
    };
    Ok(match command {
        Command::Begin(begin) if !is_own => Command::Begin(Begin {
            sighting: None,
            ..begin
        }),
        Command::Expire(_) if !is_own => Command::Expire(Expire { gone: None }),
        own => own,
    })
}

const fn refused(rejection: Rejection, record: Option<Arc<Record>>) -> Said {
    Said::Refused { rejection, record }
}

/// Makes an operation the caller's own, or says that it cannot be.
fn owned(
    caller: &Caller,
    wall: Wall<'_>,
    subject: &Subject,
    spec: Arc<Spec>,
) -> Outcome<Arc<Spec>> {
    let named = spec.namespace == *wall.namespace;
    if !named || KeyHash::of(wall.namespace, &spec.key) != subject.hash {
        return Err(other_namespace(wall));
    }
    if spec.principal == caller.principal {
        return Ok(spec);
    }
    Ok(Arc::new(Spec {
        principal: caller.principal.clone(),
        ..Spec::clone(&spec)
    }))
}

/// Attempts store what they produce; what a task is given stays as it was submitted.
fn check_fence(fence: Fence) -> Outcome<()> {
    if fence == INPUT {
        let text = "what a task is given is not changed".to_owned();
        return Err(Failure::OfCaller(StoreError::Refused(text)));
    }
    Ok(())
}

/// Refuses an outcome whose bytes are not there or are others: nobody could read it afterwards.
async fn check_payload(
    wall: Wall<'_>,
    subject: &Subject,
    command: &Command,
    brought: &Brought,
) -> Outcome<()> {
    if let Command::Submit(submit) = command {
        let named = submit.task.as_ref().and_then(|task| task.input);
        let input = brought.input.as_deref().map(Payload::of);
        if named != input {
            return Err(Failure::OfCaller(StoreError::Refused(
                "the input that was sent is not the one that the task names".to_owned(),
            )));
        }
    }
    let named = match command {
        Command::Settle(settle) => match &settle.verdict {
            Verdict::Done(outcome) => outcome.payload,
            Verdict::NotDone { .. } | Verdict::Unknown { .. } => None,
        },
        Command::Resolve(resolve) => match &resolve.resolution {
            Resolution::Done(outcome) => outcome.payload,
            Resolution::NotDone => None,
        },
        _ => None,
    };
    let brought = match &brought.payload {
        None => None,
        Some(Bytes::Here(bytes)) => Some((Digest::of(bytes), bytes.len() as u64)),
        Some(Bytes::Streamed(fence)) => match wall.load(&subject.hash).await? {
            Current::Stored(stored) if stored.record.operation().is_some() => {
                let chunks = wall.store.stream(stored.place, *fence).await?;
                let size = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
                let pieces = chunks.into_iter().map(|chunk| Ok(chunk.bytes));
                let digest = Digest::of_pieces::<StoreError>(pieces)?;
                Some((digest, size))
            }
            // Its pieces went with it, and the rules will not take the report.
            Current::Stored(_) | Current::Absent(_) => return Ok(()),
        },
    };
    // What the caller redacted itself is marked as such, and is what it brings.
    if named.map(|payload| (payload.digest, payload.size)) == brought {
        Ok(())
    } else {
        Err(Failure::OfCaller(StoreError::Refused(
            "the answer that was sent is not the one that the outcome names".to_owned(),
        )))
    }
}
