//! What a client asks.

use std::num::NonZeroU32;

use semel_core::breaker::Act;
use semel_core::identity::Kin;
use semel_core::ledger::{Command, Fence};
use semel_core::queue::{Limits, QueueHash};
use semel_core::{Digest, KeyHash, Scope};

use super::fields::{Malformed, Reader, Result, Writer, wrong};
use super::tokens::TokenCall;
use super::{FORMAT, FORMAT_CALLED, FORMAT_PRINCIPALS, FORMAT_TASKS, FORMAT_TOKENS};
use crate::engine::{Brought, Bytes, Subject};
use crate::store::{Chunk, Place, Query, Waiting};

/// One thing that a client asks.
#[derive(Clone, Debug)]
pub enum Call {
    /// Who am I to you, and what are you?
    Hello,
    /// Carry a command out.
    Apply(Box<Apply>),
    /// What is stored under a key?
    Load(KeyHash),
    /// What lies at a place?
    LoadAt(Place),
    /// What is the answer of an operation, from this byte on?
    Payload {
        /// The operation.
        place: Place,
        /// How much of it is known.
        offset: u64,
    },
    /// Store the next pieces of a stream.
    Append {
        /// The operation.
        place: Place,
        /// The attempt.
        fence: Fence,
        /// The pieces.
        chunks: Vec<Chunk>,
    },
    /// Take a stream away.
    Discard {
        /// The operation.
        place: Place,
        /// The attempt.
        fence: Fence,
    },
    /// What are the pieces of a stream, after so many?
    Stream {
        /// The operation.
        place: Place,
        /// The attempt.
        fence: Fence,
        /// How many are known.
        skip: u64,
    },
    /// Which records are there?
    List(Box<Query>),
    /// What does the log say, after this number?
    Log {
        /// The number.
        after: u64,
        /// How many entries at most.
        limit: usize,
    },
    /// Up to which number can the log be read?
    End,
    /// What may be done with the store?
    Standing,
    /// Which records count among these kin?
    Kin(Kin),
    /// Which tasks wait and are due?
    Waiting(Waiting),
    /// How many tasks do workers have?
    Taken {
        /// The queue.
        queue: QueueHash,
        /// One lane of it.
        lane: Option<u64>,
        /// How many are counted at most.
        limit: usize,
    },
    /// What is the code of this digest under the ledger's secret key?
    PrincipalCode(Digest),
    /// Something about tokens.
    Tokens(Box<TokenCall>),
}

/// A command and what it brings.
#[derive(Clone, Debug)]
pub struct Apply {
    /// The operation.
    pub subject: Subject,
    /// The command.
    pub command: Command,
    /// What it brings.
    pub brought: Brought,
}

impl Apply {
    /// Says whether it leaves a task for workers, or takes one of which there may be so many only.
    const fn has_task(&self) -> bool {
        let Limits { queue, lane } = self.brought.limits;
        let leaves = matches!(&self.command, Command::Submit(submit) if submit.task.is_some());
        leaves || queue.is_some() || lane.is_some()
    }
}

impl Call {
    /// Says how much a caller must be allowed for this.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Hello
            | Self::Load(_)
            | Self::LoadAt(_)
            | Self::Payload { .. }
            | Self::Stream { .. }
            | Self::List(_)
            | Self::Log { .. }
            | Self::End
            | Self::Standing
            | Self::Kin(_)
            | Self::Waiting(_)
            | Self::Taken { .. } => Scope::Read,
            // Tokens outlast their maker, so a caller needs one itself, of the highest scope.
            Self::Tokens(_) => Scope::Admin,
            // Only callers that record operations need names for those on whose behalf they act. A reader could use
            // it to guess the credentials behind the names that it reads.
            Self::Append { .. } | Self::Discard { .. } | Self::PrincipalCode(_) => Scope::Write,
            Self::Apply(apply) => match apply.command {
                Command::Submit(_)
                | Command::Begin(_)
                | Command::Renew(_)
                | Command::Settle(_)
                | Command::Expire(_)
                | Command::Deliver(_) => Scope::Write,
                Command::Resolve(_)
                | Command::Retry(_)
                | Command::Cancel(_)
                | Command::Forget(_) => Scope::Operate,
                // Nobody may ask for these from afar, whatever their scope: see `answer`.
                Command::Bury(_) | Command::Drop(_) | Command::Adopt(_) => Scope::Admin,
                Command::Breaker(ref ask) => match ask.act {
                    Act::Admit(_) | Act::Report(_) => Scope::Write,
                    Act::Open(..) | Act::Close(_) | Act::Reset(_) => Scope::Operate,
                },
            },
        }
    }

    /// Says whether it may change what is stored.
    #[must_use]
    pub const fn writes(&self) -> bool {
        match self {
            Self::Apply(_) | Self::Append { .. } | Self::Discard { .. } => true,
            Self::Tokens(call) => call.writes(),
            Self::Hello
            | Self::Load(_)
            | Self::LoadAt(_)
            | Self::Payload { .. }
            | Self::Stream { .. }
            | Self::List(_)
            | Self::Log { .. }
            | Self::End
            | Self::Standing
            | Self::Kin(_)
            | Self::Waiting(_)
            | Self::Taken { .. }
            | Self::PrincipalCode(_) => false,
        }
    }

    /// Says whether it may be sent again when its answer was lost. Every command may: the rules know
    /// a repeat; calls that a breaker counts twice move a threshold, and nothing else. The pieces of a stream would be stored twice.
    #[must_use]
    pub const fn may_be_repeated(&self) -> bool {
        !matches!(self, Self::Append { .. })
    }

    /// Writes it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(self.format());
        match self {
            Self::Hello => w.byte(0),
            Self::Apply(apply) => {
                w.byte(1);
                put_apply(&mut w, apply);
            }
            Self::Load(hash) => {
                w.byte(2);
                w.hash(hash);
            }
            Self::LoadAt(place) => {
                w.byte(3);
                w.number(place.0);
            }
            Self::Payload { place, offset } => {
                w.byte(4);
                w.number(place.0);
                w.number(*offset);
            }
            Self::Append {
                place,
                fence,
                chunks,
            } => {
                w.byte(5);
                w.number(place.0);
                w.number(fence.0);
                w.all(chunks, Writer::chunk);
            }
            Self::Discard { place, fence } => {
                w.byte(6);
                w.number(place.0);
                w.number(fence.0);
            }
            Self::Stream { place, fence, skip } => {
                w.byte(7);
                w.number(place.0);
                w.number(fence.0);
                w.number(*skip);
            }
            Self::List(query) => {
                w.byte(8);
                put_query(&mut w, query);
                if let Some(called) = &query.client_key {
                    w.text(called);
                }
            }
            Self::Log { after, limit } => {
                w.byte(9);
                w.number(*after);
                w.number(*limit as u64);
            }
            Self::End => w.byte(10),
            Self::Standing => w.byte(11),
            Self::Kin(kin) => {
                w.byte(12);
                w.number(kin.0);
            }
            Self::Waiting(ask) => {
                w.byte(13);
                w.number(ask.queue.0);
                w.time(ask.now);
                w.number(ask.after_lane);
                w.number(ask.skip as u64);
                w.number(ask.limit as u64);
                w.bool(ask.taken);
                w.bool(ask.inputs);
            }
            Self::Taken { queue, lane, limit } => {
                w.byte(14);
                w.number(queue.0);
                w.option(*lane, Writer::number);
                w.number(*limit as u64);
            }
            Self::PrincipalCode(digest) => {
                w.byte(15);
                w.digest(digest);
            }
            Self::Tokens(call) => {
                w.byte(16);
                call.put(&mut w);
            }
        }
        w.finish()
    }

    /// Reads it from bytes.
    ///
    /// # Errors
    /// Refuses everything that [`Call::encode`] cannot have written.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Malformed> {
        let (format, mut r) = Reader::new(bytes, FORMAT..=FORMAT_PRINCIPALS)?;
        let mut call = get(&mut r)?;
        match (format, &mut call) {
            (FORMAT_CALLED, Self::List(query)) => {
                query.client_key = Some(r.string("a filter")?);
            }
            (FORMAT_TASKS, Self::Apply(apply)) => {
                let input = r.option("the input", |r| r.bytes("the input"))?;
                apply.brought.input = input.map(Into::into);
                apply.brought.limits = Limits {
                    queue: r.option("the limit of a queue", get_limit)?,
                    lane: r.option("the limit of a lane", get_limit)?,
                };
            }
            _ => {}
        }
        r.finish()?;
        if call.format() == format {
            Ok(call)
        } else {
            Err(wrong("the format"))
        }
    }

    /// Returns the format that it is written in: the oldest that can say it.
    const fn format(&self) -> u8 {
        match self {
            Self::List(query) if query.client_key.is_some() => FORMAT_CALLED,
            Self::Apply(apply) if apply.has_task() => FORMAT_TASKS,
            Self::Waiting(_) | Self::Taken { .. } => FORMAT_TASKS,
            Self::Tokens(_) => FORMAT_TOKENS,
            Self::PrincipalCode(_) => FORMAT_PRINCIPALS,
            Self::Hello
            | Self::Apply(_)
            | Self::Load(_)
            | Self::LoadAt(_)
            | Self::Payload { .. }
            | Self::Append { .. }
            | Self::Discard { .. }
            | Self::Stream { .. }
            | Self::List(_)
            | Self::Log { .. }
            | Self::End
            | Self::Standing
            | Self::Kin(_) => FORMAT,
        }
    }
}

fn get(r: &mut Reader<'_>) -> Result<Call> {
    Ok(match r.byte("the call")? {
        0 => Call::Hello,
        1 => Call::Apply(Box::new(get_apply(r)?)),
        2 => Call::Load(r.hash("the key's hash")?),
        3 => Call::LoadAt(r.place()?),
        4 => Call::Payload {
            place: r.place()?,
            offset: r.number("the offset")?,
        },
        5 => Call::Append {
            place: r.place()?,
            fence: r.fence()?,
            chunks: r.all("the pieces", Reader::chunk)?,
        },
        6 => Call::Discard {
            place: r.place()?,
            fence: r.fence()?,
        },
        7 => Call::Stream {
            place: r.place()?,
            fence: r.fence()?,
            skip: r.number("the number of pieces")?,
        },
        8 => Call::List(Box::new(get_query(r)?)),
        9 => Call::Log {
            after: r.number("the number")?,
            limit: r.size("the limit")?,
        },
        10 => Call::End,
        11 => Call::Standing,
        12 => Call::Kin(Kin(r.number("the kin")?)),
        13 => Call::Waiting(Waiting {
            queue: QueueHash(r.number("the queue")?),
            now: r.time("the time")?,
            after_lane: r.number("the lane")?,
            skip: r.size("the number of tasks")?,
            limit: r.size("the limit")?,
            taken: r.bool("which tasks")?,
            inputs: r.bool("their inputs")?,
        }),
        14 => Call::Taken {
            queue: QueueHash(r.number("the queue")?),
            lane: r.option("the lane", |r| r.number("the lane"))?,
            limit: r.size("the limit")?,
        },
        15 => Call::PrincipalCode(r.digest("the digest")?),
        16 => Call::Tokens(Box::new(TokenCall::get(r)?)),
        17.. => return Err(wrong("the call")),
    })
}

fn put_apply(w: &mut Writer, apply: &Apply) {
    let Apply {
        subject,
        command,
        brought,
    } = apply;
    w.hash(&subject.hash);
    w.option(subject.key.as_ref(), |w, key| w.text(key.as_str()));
    w.command(command);
    match &brought.payload {
        None => w.byte(0),
        Some(Bytes::Here(bytes)) => {
            w.byte(1);
            w.bytes(bytes);
        }
        Some(Bytes::Streamed(fence)) => {
            w.byte(2);
            w.number(fence.0);
        }
    }
    w.option(brought.parent.as_ref(), |w, (parent, fence)| {
        w.hash(parent);
        w.number(fence.0);
    });
    if apply.has_task() {
        w.option(brought.input.as_deref(), Writer::bytes);
        for limit in [brought.limits.queue, brought.limits.lane] {
            w.option(limit, |w, limit| w.number(limit.get().into()));
        }
    }
}

fn get_limit(r: &mut Reader<'_>) -> Result<NonZeroU32> {
    let number = r.number("a limit")?;
    let limit = u32::try_from(number).ok().and_then(NonZeroU32::new);
    limit.ok_or_else(|| wrong("a limit"))
}

fn get_apply(r: &mut Reader<'_>) -> Result<Apply> {
    Ok(Apply {
        subject: Subject {
            hash: r.hash("the key's hash")?,
            key: r.option("the key", Reader::key)?,
        },
        command: r.command()?,
        brought: Brought {
            payload: match r.byte("the payload")? {
                0 => None,
                1 => Some(Bytes::Here(r.bytes("the payload")?.into())),
                2 => Some(Bytes::Streamed(r.fence()?)),
                3.. => return Err(wrong("the payload")),
            },
            parent: r.option("the parent", |r| Ok((r.hash("the parent")?, r.fence()?)))?,
            ..Brought::default()
        },
    })
}

fn put_query(w: &mut Writer, query: &Query) {
    let text = |w: &mut Writer, text: &Option<String>| w.option(text.as_deref(), Writer::text);
    w.option(query.namespace.as_ref(), |w, it| w.text(it.as_str()));
    w.all(&query.states, |w, state| w.byte(state.code()));
    text(w, &query.name);
    text(w, &query.door);
    text(w, &query.queue);
    text(w, &query.prefix);
    w.option(query.since, Writer::time);
    w.option(query.until, Writer::time);
    w.bool(query.oldest_first);
    w.option(query.cursor, |w, place| w.number(place.0));
    w.number(query.limit as u64);
}

fn get_query(r: &mut Reader<'_>) -> Result<Query> {
    let text = |r: &mut Reader<'_>| r.option("a filter", |r| r.string("a filter"));
    let time = |r: &mut Reader<'_>| r.option("a time", |r| r.time("a time"));
    Ok(Query {
        namespace: r.option("the namespace", Reader::namespace)?,
        states: r.all("the states", Reader::state)?,
        name: text(r)?,
        door: text(r)?,
        queue: text(r)?,
        // It follows at the end, in the format that has it.
        client_key: None,
        prefix: text(r)?,
        since: time(r)?,
        until: time(r)?,
        oldest_first: r.bool("the order")?,
        cursor: r.option("the cursor", Reader::place)?,
        limit: r.size("the limit")?,
    })
}
