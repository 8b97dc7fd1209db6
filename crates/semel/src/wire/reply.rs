//! What a server answers.

use std::sync::Arc;

use semel_core::breaker;
use semel_core::ledger::{
    AttemptKind, Grant, Ordered, Record, Rejection, Reply, Reported, StateKind,
};
use semel_core::{Digest, Effect, Namespace, Scope, Timestamp, TokenRecord};

use super::FORMAT;
use super::fields::{Malformed, Reader, Result, Writer, wrong};
use super::tokens::{get_token, put_token};
use crate::store::{Chunk, Current, Logged, Moved, Page, Standing, StoreError, Stored};

/// An answer, and the time when it was given.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The store's time.
    pub now: Timestamp,
    /// What is said.
    pub said: Said,
}

/// What is said.
#[derive(Clone, Debug)]
pub enum Said {
    /// Who the caller is to the server.
    Hello(Hello),
    /// The command was carried out.
    Applied {
        /// The answer of the rules.
        reply: Reply,
        /// What is stored.
        current: Current,
        /// When it was decided.
        at: Timestamp,
    },
    /// The command was refused.
    Refused {
        /// Why.
        rejection: Rejection,
        /// The record that this rests on.
        record: Option<Arc<Record>>,
    },
    /// What is stored under a key.
    Found(Current),
    /// What lies at a place.
    Lies(Option<Stored>),
    /// A part of an answer; `None` when there is no answer.
    Payload(Option<Part>),
    /// It was done.
    Taken,
    /// Some pieces of a stream.
    Stream {
        /// The pieces.
        chunks: Vec<Chunk>,
        /// Whether there are more.
        more: bool,
    },
    /// Some records.
    Page(Page),
    /// Some entries of the log.
    Log {
        /// The entries.
        entries: Vec<Logged>,
        /// Up to which number that is all.
        reached: u64,
        /// Whether the log goes on.
        more: bool,
    },
    /// Up to which number the log can be read.
    End(u64),
    /// What may be done with the store.
    Standing(Standing),
    /// The store failed, or the caller may not ask this.
    Failed(StoreError),
    /// The records that were asked for.
    Records(Vec<Stored>),
    /// How many there are.
    Count(u64),
    /// The code of a digest.
    PrincipalCode(Digest),
    /// The tokens that were asked for.
    Tokens(Vec<TokenRecord>),
}

/// Who the caller is to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The number of the store, where it has one.
    pub store: Option<String>,
    /// The wall that the caller is behind.
    pub namespace: Namespace,
    /// What it may do.
    pub scope: Scope,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How long the whole is.
    pub total: u64,
    /// This part.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// Writes it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(FORMAT);
        w.time(self.now);
        put(&mut w, &self.said);
        w.finish()
    }

    /// Reads it from bytes.
    ///
    /// # Errors
    /// Refuses everything that [`Answer::encode`] cannot have written.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, Malformed> {
        let (_, mut r) = Reader::new(bytes, FORMAT..=FORMAT)?;
        let now = r.time("the time")?;
        let said = get(&mut r)?;
        r.finish()?;
        Ok(Self { now, said })
    }
}

fn put(w: &mut Writer, said: &Said) {
    match said {
        Said::Hello(hello) => {
            w.byte(0);
            w.option(hello.store.as_deref(), Writer::text);
            w.text(hello.namespace.as_str());
            w.text(hello.scope.as_str());
        }
        Said::Applied { reply, current, at } => {
            w.byte(1);
            put_reply(w, reply);
            w.current(current);
            w.time(*at);
        }
        Said::Refused { rejection, record } => {
            w.byte(2);
            put_rejection(w, *rejection);
            w.option(record.as_deref(), Writer::record);
        }
        Said::Found(current) => {
            w.byte(3);
            w.current(current);
        }
        Said::Lies(stored) => {
            w.byte(4);
            w.option(stored.as_ref(), Writer::stored);
        }
        Said::Payload(part) => {
            w.byte(5);
            w.option(part.as_ref(), |w, part| {
                w.number(part.total);
                w.bytes(&part.bytes);
            });
        }
        Said::Taken => w.byte(6),
        Said::Stream { chunks, more } => {
            w.byte(7);
            w.all(chunks, Writer::chunk);
            w.bool(*more);
        }
        Said::Page(page) => {
            w.byte(8);
            w.all(&page.items, Writer::stored);
            w.option(page.next, |w, place| w.number(place.0));
        }
        Said::Log {
            entries,
            reached,
            more,
        } => {
            w.byte(9);
            w.all(entries, Writer::logged);
            w.number(*reached);
            w.bool(*more);
        }
        Said::End(end) => {
            w.byte(10);
            w.number(*end);
        }
        Said::Standing(standing) => {
            w.byte(11);
            put_standing(w, standing);
        }
        Said::Failed(error) => {
            w.byte(12);
            put_error(w, error);
        }
        Said::Records(found) => {
            w.byte(13);
            w.all(found, Writer::stored);
        }
        Said::Count(count) => {
            w.byte(14);
            w.number(*count);
        }
        Said::PrincipalCode(code) => {
            w.byte(15);
            w.digest(code);
        }
        Said::Tokens(tokens) => {
            w.byte(16);
            w.all(tokens, put_token);
        }
    }
}

fn get(r: &mut Reader<'_>) -> Result<Said> {
    Ok(match r.byte("the answer")? {
        0 => Said::Hello(Hello {
            store: r.option("the store", |r| r.string("the store"))?,
            namespace: r.namespace()?,
            scope: Scope::from_word(r.text("the scope")?).ok_or_else(|| wrong("the scope"))?,
        }),
        1 => Said::Applied {
            reply: get_reply(r)?,
            current: r.current()?,
            at: r.time("the time")?,
        },
        2 => Said::Refused {
            rejection: get_rejection(r)?,
            record: r.option("the record", Reader::record)?.map(Arc::new),
        },
        3 => Said::Found(r.current()?),
        4 => Said::Lies(r.option("the record", Reader::stored)?),
        5 => Said::Payload(r.option("the payload", |r| {
            Ok(Part {
                total: r.number("the payload")?,
                bytes: r.bytes("the payload")?.to_vec(),
            })
        })?),
        6 => Said::Taken,
        7 => Said::Stream {
            chunks: r.all("the pieces", Reader::chunk)?,
            more: r.bool("the pieces")?,
        },
        8 => Said::Page(Page {
            items: r.all("the records", Reader::stored)?,
            next: r.option("the next page", Reader::place)?,
        }),
        9 => Said::Log {
            entries: r.all("the entries", Reader::logged)?,
            reached: r.number("the end")?,
            more: r.bool("the end")?,
        },
        10 => Said::End(r.number("the end")?),
        11 => Said::Standing(get_standing(r)?),
        12 => Said::Failed(get_error(r)?),
        13 => Said::Records(r.all("the records", Reader::stored)?),
        14 => Said::Count(r.number("the number")?),
        15 => Said::PrincipalCode(r.digest("the code")?),
        16 => Said::Tokens(r.all("the tokens", get_token)?),
        17.. => return Err(wrong("the answer")),
    })
}

fn put_reply(w: &mut Writer, reply: &Reply) {
    match reply {
        Reply::Submitted { created } => {
            w.byte(0);
            w.bool(*created);
        }
        Reply::Granted(grant) => {
            w.byte(1);
            w.bool(grant.kind == AttemptKind::Probe);
            w.number(grant.fence.0);
            w.number(u64::from(grant.number));
            w.time(grant.lease_until);
        }
        Reply::Replay => w.byte(2),
        Reply::Renewed { lease_until } => {
            w.byte(3);
            w.time(*lease_until);
        }
        Reply::Reported(reported) => {
            w.byte(4);
            w.byte(reported.state.code());
            w.bool(reported.repeated);
            w.bool(reported.late);
            w.bool(reported.conflict);
        }
        Reply::Ordered(ordered) => {
            w.byte(5);
            w.byte(ordered.state.code());
            w.bool(ordered.repeated);
            w.option(ordered.previous_effect, |w, effect| w.text(effect.as_str()));
        }
        Reply::Kept => w.byte(6),
        Reply::Refused(rejection) => {
            w.byte(7);
            put_rejection(w, *rejection);
        }
        Reply::Breaker(reply) => {
            w.byte(8);
            put_breaker(w, reply);
        }
    }
}

fn get_reply(r: &mut Reader<'_>) -> Result<Reply> {
    Ok(match r.byte("the reply")? {
        0 => Reply::Submitted {
            created: r.bool("the reply")?,
        },
        1 => Reply::Granted(Grant {
            kind: if r.bool("the grant")? {
                AttemptKind::Probe
            } else {
                AttemptKind::Act
            },
            fence: r.fence()?,
            number: u32::try_from(r.number("the grant")?).map_err(|_| wrong("the grant"))?,
            lease_until: r.time("the grant")?,
        }),
        2 => Reply::Replay,
        3 => Reply::Renewed {
            lease_until: r.time("the lease")?,
        },
        4 => Reply::Reported(Reported {
            state: r.state()?,
            repeated: r.bool("the reply")?,
            late: r.bool("the reply")?,
            conflict: r.bool("the reply")?,
        }),
        5 => Reply::Ordered(Ordered {
            state: r.state()?,
            repeated: r.bool("the reply")?,
            previous_effect: r.option("the effect", get_effect)?,
        }),
        6 => Reply::Kept,
        7 => Reply::Refused(get_rejection(r)?),
        8 => Reply::Breaker(get_breaker(r)?),
        9.. => return Err(wrong("the reply")),
    })
}

fn put_breaker(w: &mut Writer, reply: &breaker::Reply) {
    match reply {
        breaker::Reply::Admitted(admitted) => {
            w.byte(0);
            w.number(admitted.fence.0);
            w.option(admitted.probe_until, Writer::time);
        }
        breaker::Reply::Counted => w.byte(1),
        breaker::Reply::Ignored => w.byte(2),
        breaker::Reply::Ordered { phase, repeated } => {
            w.byte(3);
            w.byte(StateKind::Breaker(*phase).code());
            w.bool(*repeated);
        }
    }
}

fn get_breaker(r: &mut Reader<'_>) -> Result<breaker::Reply> {
    Ok(match r.byte("the breaker")? {
        0 => breaker::Reply::Admitted(breaker::Admitted {
            fence: r.fence()?,
            probe_until: r.option("the probe", |r| r.time("the probe"))?,
        }),
        1 => breaker::Reply::Counted,
        2 => breaker::Reply::Ignored,
        3 => {
            let StateKind::Breaker(phase) = r.state()? else {
                return Err(wrong("the breaker"));
            };
            let repeated = r.bool("the breaker")?;
            breaker::Reply::Ordered { phase, repeated }
        }
        4.. => return Err(wrong("the breaker")),
    })
}

fn get_effect(r: &mut Reader<'_>) -> Result<Effect> {
    Effect::parse(r.text("the effect")?).ok_or_else(|| wrong("the effect"))
}

fn put_rejection(w: &mut Writer, rejection: Rejection) {
    match rejection {
        Rejection::KeyReused => w.byte(0),
        Rejection::InFlight { until } => {
            w.byte(1);
            w.option(until, Writer::time);
        }
        Rejection::InDoubt { own, probe_at } => {
            w.byte(2);
            w.bool(own);
            w.option(probe_at, Writer::time);
        }
        Rejection::Dead => w.byte(3),
        Rejection::Expired => w.byte(4),
        Rejection::Fenced => w.byte(5),
        Rejection::Refused { state } => {
            w.byte(6);
            w.byte(state.code());
        }
        Rejection::NotFound => w.byte(7),
        Rejection::BreakerOpen { retry_at } => {
            w.byte(8);
            w.option(retry_at, Writer::time);
        }
    }
}

fn get_rejection(r: &mut Reader<'_>) -> Result<Rejection> {
    Ok(match r.byte("the refusal")? {
        0 => Rejection::KeyReused,
        1 => Rejection::InFlight {
            until: r.option("the refusal", |r| r.time("the refusal"))?,
        },
        2 => Rejection::InDoubt {
            own: r.bool("the refusal")?,
            probe_at: r.option("the refusal", |r| r.time("the refusal"))?,
        },
        3 => Rejection::Dead,
        4 => Rejection::Expired,
        5 => Rejection::Fenced,
        6 => Rejection::Refused { state: r.state()? },
        7 => Rejection::NotFound,
        8 => Rejection::BreakerOpen {
            retry_at: r.option("the refusal", |r| r.time("the refusal"))?,
        },
        9.. => return Err(wrong("the refusal")),
    })
}

fn put_standing(w: &mut Writer, standing: &Standing) {
    match standing {
        Standing::Open => w.byte(0),
        Standing::Copy | Standing::Copied { .. } => w.byte(1),
        Standing::Closed(moved) => {
            w.byte(2);
            w.text(&moved.to);
            w.text(&moved.id);
        }
    }
}

fn get_standing(r: &mut Reader<'_>) -> Result<Standing> {
    Ok(match r.byte("the standing")? {
        0 => Standing::Open,
        1 => Standing::Copy,
        2 => Standing::Closed(Moved {
            to: r.string("the standing")?,
            id: r.string("the standing")?,
        }),
        3.. => return Err(wrong("the standing")),
    })
}

fn put_error(w: &mut Writer, error: &StoreError) {
    let (code, text) = match error {
        StoreError::Unavailable(text) => (0, text.as_str()),
        StoreError::Unknown(text) => (1, text.as_str()),
        StoreError::Corrupt(text) => (2, text.as_str()),
        StoreError::Refused(text) => (3, text.as_str()),
        StoreError::Unauthorized(text) => (4, text.as_str()),
        StoreError::Forbidden(text) => (5, text.as_str()),
        StoreError::Unusable { text, .. } => (7, text.as_str()),
        StoreError::TooLarge { what, size, limit } => {
            w.byte(6);
            w.text(what);
            w.number(*size as u64);
            w.number(*limit as u64);
            return;
        }
    };
    w.byte(code);
    w.text(text);
}

/// What can be too large, in the words of the stores.
const LARGE: [&str; 1] = ["the payload"];

fn get_error(r: &mut Reader<'_>) -> Result<StoreError> {
    let make = match r.byte("the error")? {
        0 => StoreError::Unavailable,
        1 => StoreError::Unknown,
        2 => StoreError::Corrupt,
        3 => StoreError::Refused,
        4 => StoreError::Unauthorized,
        5 => StoreError::Forbidden,
        6 => {
            let what = r.text("the error")?;
            // A later version may know other things; how large they are is what counts.
            let known = LARGE.into_iter().find(|known| *known == what);
            return Ok(StoreError::TooLarge {
                what: known.unwrap_or("what was sent"),
                size: r.size("the error")?,
                limit: r.size("the error")?,
            });
        }
        7 => |text| StoreError::Unusable {
            text,
            hint: "`semel doctor`, run where the store is, says more",
        },
        8.. => return Err(wrong("the error")),
    };
    Ok(make(r.string("the error")?))
}
