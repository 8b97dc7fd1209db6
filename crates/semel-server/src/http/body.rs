//! Reading requests: bounded in size and time, strict about what they say.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use semel::core::canonical::{self, Limits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::problem::Problem;

/// The most calls in one array: what one group of the store takes twice over.
pub(crate) const BATCH_MAX: usize = 1_000;

/// The most bytes of request bodies that are held at once: beyond it nobody's body is read on, however
/// many connections there are.
const HELD_MAX: usize = 256 * 1024 * 1024;

/// Counts the bytes of bodies that are held.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

/// Bytes that are held until it is dropped.
#[derive(Debug)]
struct Share<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Share<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes += bytes;
        let held = self.budget.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > HELD_MAX {
            return Err(
                Problem::new("rate_limited", "the server holds too many request bodies")
                    .hint("send it again in a moment")
                    .after(Duration::from_secs(1)),
            );
        }
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body that was read whole.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) bytes: Vec<u8>,
    _share: Share<'a>,
}

/// Reads a whole body, at most so large and for at most so long.
pub(crate) async fn read(
    body: Body,
    budget: &Budget,
    limit: usize,
    patience: Duration,
) -> Result<Received<'_>, Problem> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let whole = tokio::time::timeout(patience, frames(body, budget, limit));
    whole.await.unwrap_or_else(|_| {
        let seconds = patience.as_secs_f64();
        Err(Problem::input(format!(
            "the body did not arrive within {seconds} s"
        )))
    })
}

async fn frames(mut body: Body, budget: &Budget, limit: usize) -> Result<Received<'_>, Problem> {
    let mut share = Share { budget, bytes: 0 };
    let mut bytes = vec![];
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Problem::input(format!("the body did not arrive whole: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        share.grow(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(Received {
        bytes,
        _share: share,
    })
}

pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::new("too_large", format!("a body may have {limit} bytes"))
}

/// One call, or many in an array.
pub(crate) enum Calls<'a> {
    One(&'a [u8]),
    Many(Vec<&'a RawValue>),
}

impl<'a> Calls<'a> {
    /// Reads them, at most so many.
    pub(crate) fn read(body: &'a [u8], limit: usize) -> Result<Self, Problem> {
        let is_array = body.trim_ascii_start().first() == Some(&b'[');
        if !is_array {
            return Ok(Self::One(body));
        }
        let calls: Vec<&RawValue> = parse(body)?;
        if calls.len() > limit {
            let text = format!("an array may hold {limit} calls; it has {}", calls.len());
            return Err(Problem::new("too_large", text));
        }
        Ok(Self::Many(calls))
    }
}

/// Reads one JSON value of a known shape.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| {
        Problem::input(format!("the body is not what it should be: {error}"))
            .hint("/openapi.json says what each call takes")
    })
}

/// Reads one call. The members of an array would be taken for those of an object, in their order.
pub(crate) fn call<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Problem> {
    if json.trim_ascii_start().starts_with(b"[") {
        return Err(
            Problem::input("the body is an array, and this call is an object")
                .hint("/openapi.json says what each call takes"),
        );
    }
    parse(json)
}

/// What one call is answered with.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Writes what was asked for.
    pub(crate) fn ok<T: serde::Serialize>(body: &T) -> Result<Self, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| {
            Problem::new("internal", format!("no answer can be written: {error}"))
        })?;
        Ok(Self { status: 200, body })
    }

    /// Writes itself as an item of an array, with its status.
    fn push_to(&self, array: &mut Vec<u8>) {
        let rest = self.body.strip_prefix(b"{").unwrap_or(b"}");
        array.extend_from_slice(format!("{{\"status\":{}", self.status).as_bytes());
        if rest != b"}" {
            array.push(b',');
        }
        array.extend_from_slice(rest);
    }
}

/// Answers many calls at once, in their order; at most [`BATCH_MAX`] are under way.
pub(crate) async fn answer_each<T, F, A>(calls: &[&RawValue], answer: F) -> Vec<u8>
where
    T: DeserializeOwned,
    F: Fn(T) -> A,
    A: Future<Output = Result<Answer, Problem>>,
{
    let mut array = vec![b'['];
    for some in calls.chunks(BATCH_MAX) {
        let answers = some.iter().map(|item| {
            let asked = call::<T>(item.get().as_bytes()).map(&answer);
            async {
                match asked {
                    Ok(answer) => answer.await,
                    Err(problem) => Err(problem),
                }
            }
        });
        // They are written together: a group's sync is shared by all of them.
        for answer in semel::together(join_all(answers)).await {
            if array.len() > 1 {
                array.push(b',');
            }
            match answer {
                Ok(answer) => answer.push_to(&mut array),
                // A problem names its status already.
                Err(problem) => array.extend_from_slice(&problem.body()),
            }
        }
    }
    array.push(b']');
    array
}

/// Keeps `null` apart from nothing.
pub(crate) fn given<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Keeps a member that is `null` apart from one that is not there.
pub(crate) fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Reads a member that is an object. The members of an array would be taken for those of an object, in their order.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let Some(json) = Option::<Box<RawValue>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    if json.get().starts_with('[') {
        let expected = "an array is there, and this is an object";
        return Err(serde::de::Error::custom(expected));
    }
    let read = serde_json::from_str(json.get());
    read.map(Some).map_err(serde::de::Error::custom)
}

/// Checks that an answer means one thing to everybody: no member twice, not too deep. It is stored as
/// it was written.
pub(crate) fn answer_data(data: Option<Box<RawValue>>) -> Result<Option<Vec<u8>>, Problem> {
    let Some(data) = data else { return Ok(None) };
    let json = data.get().as_bytes();
    let limits = Limits {
        size: json.len(),
        ..Limits::default()
    };
    canonical::canonicalize(json, &limits)
        .map_err(|error| Problem::input(format!("data is not JSON with one meaning: {error}")))?;
    Ok(Some(json.to_vec()))
}
