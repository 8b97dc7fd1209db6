//! Surgery on JSON that leaves every other byte as it is: numbers, escapes, white space and order.
//!
//! A place is named by its members from the outermost on, `["params", "_meta"]`; within an array by
//! the number of the item, as in a JSON pointer. Nothing here recurses, so that nesting costs no stack.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use semel::core::canonical::{self, Limits};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::message::{MESSAGE_MAX, quoted, range_in};

/// Says why something cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// A part of the way is neither an object nor an array.
    #[error("`{0}` is within something that has no members")]
    NoMembers(String),
    /// An array has no such item.
    #[error("`{0}` is no item of the array")]
    NoItem(String),
    /// An object on the way has the member twice, and readers disagree which one counts.
    #[error("the member `{0}` is there twice")]
    Twice(String),
    /// The value to append to is no array.
    #[error("it is not an array")]
    NotArray,
}

/// Returns the value at a place as it was written; nothing where a member on the way is there twice.
pub(crate) fn get<'a, S: AsRef<str>>(json: &'a str, path: &[S]) -> Option<&'a str> {
    let place = find(json, path).ok()?;
    match place {
        Place::At(found) => Some(&json[found.value]),
        Place::Missing(..) => None,
    }
}

/// Returns the text at a place, escapes undone.
pub(crate) fn text<S: AsRef<str>>(json: &str, path: &[S]) -> Option<String> {
    serde_json::from_str(get(json, path)?).ok()
}

/// Says whether the value at a place is `true`.
pub(crate) fn is_true<S: AsRef<str>>(json: &str, path: &[S]) -> bool {
    get(json, path) == Some("true")
}

/// Replaces the value at a place, or inserts it last where there is none; objects that are missing
/// on the way are made.
pub(crate) fn set<S: AsRef<str>>(json: &str, path: &[S], value: &str) -> Result<String, EditError> {
    match find(json, path)? {
        Place::At(found) => Ok(spliced(json, found.value, value)),
        Place::Missing(within, depth) => {
            let name = path[depth].as_ref();
            let object = Object::read(&json[within.clone()])
                .ok_or_else(|| EditError::NoItem(name.to_owned()))?;
            let inner = path[depth + 1..]
                .iter()
                .rev()
                .fold(value.to_owned(), |inner, name| {
                    format!("{{{}:{inner}}}", quoted(name.as_ref()))
                });
            let member = format!("{}:{inner}", quoted(name));
            Ok(match object.members.last() {
                Some(last) => {
                    let at = within.start + last.value.end;
                    spliced(json, at..at, &format!(",{member}"))
                }
                None => {
                    let at = within.start + 1;
                    spliced(json, at..at, &member)
                }
            })
        }
    }
}

/// Takes a member or an item out; where there is none, nothing changes.
pub(crate) fn remove<'a, S: AsRef<str>>(
    json: &'a str,
    path: &[S],
) -> Result<Cow<'a, str>, EditError> {
    Ok(match find(json, path)? {
        Place::At(found) => Cow::Owned(spliced(json, found.whole, "")),
        Place::Missing(..) => Cow::Borrowed(json),
    })
}

/// Takes a member out, and makes an item null: the other items keep their numbers.
pub(crate) fn blank<'a, S: AsRef<str>>(
    json: &'a str,
    path: &[S],
) -> Result<Cow<'a, str>, EditError> {
    Ok(match find(json, path)? {
        Place::At(found) if found.is_item => Cow::Owned(spliced(json, found.value, "null")),
        Place::At(found) => Cow::Owned(spliced(json, found.whole, "")),
        Place::Missing(..) => Cow::Borrowed(json),
    })
}

/// Appends an item to the array at a place, which is made where there is none.
pub(crate) fn push<S: AsRef<str>>(json: &str, path: &[S], item: &str) -> Result<String, EditError> {
    let Place::At(found) = find(json, path)? else {
        return set(json, path, &format!("[{item}]"));
    };
    let Some(items) = items_of(&json[found.value.clone()]) else {
        return Err(EditError::NotArray);
    };
    Ok(match items.last() {
        Some(last) => {
            let at = found.value.start + last.end;
            spliced(json, at..at, &format!(",{item}"))
        }
        None => {
            let at = found.value.start + 1;
            spliced(json, at..at, item)
        }
    })
}

/// Makes sure that a value reads the same to everybody: no member is there twice, however deep, and
/// no text is half a character.
///
/// What is fingerprinted is then what is forwarded, whichever reader the server has.
pub(crate) fn check(json: &str) -> Result<(), canonical::Error> {
    let limits = Limits {
        size: MESSAGE_MAX,
        depth: Limits::DEFAULT_DEPTH,
    };
    canonical::canonicalize(json.as_bytes(), &limits).map(drop)
}

/// Where a way leads.
enum Place {
    /// To a value.
    At(Found),
    /// To nothing: the innermost value on the way that is there, and how many steps led to it.
    Missing(Range<usize>, usize),
}

/// A value and what would go with it.
struct Found {
    value: Range<usize>,
    /// With its name and the comma that would be left over.
    whole: Range<usize>,
    is_item: bool,
}

fn find<S: AsRef<str>>(json: &str, path: &[S]) -> Result<Place, EditError> {
    let start = json.len() - json.trim_ascii_start().len();
    let mut found = Found {
        value: start..json.trim_ascii_end().len().max(start),
        whole: 0..json.len(),
        is_item: false,
    };
    for (depth, token) in path.iter().enumerate() {
        let token = token.as_ref();
        let within = found.value.clone();
        let value = &json[within.clone()];
        let step = match value.as_bytes().first() {
            Some(b'{') => step_into_object(value, token)?,
            Some(b'[') => step_into_array(value, token),
            _ => return Err(EditError::NoMembers(token.to_owned())),
        };
        let Some(step) = step else {
            return Ok(Place::Missing(within, depth));
        };
        let shifted = |range: Range<usize>| within.start + range.start..within.start + range.end;
        found = Found {
            value: shifted(step.value),
            whole: shifted(step.whole),
            is_item: step.is_item,
        };
    }
    Ok(Place::At(found))
}

fn step_into_object(value: &str, token: &str) -> Result<Option<Found>, EditError> {
    let object = Object::read(value).ok_or_else(|| EditError::NoMembers(token.to_owned()))?;
    let mut named = (0..object.members.len()).filter(|at| object.members[*at].name == token);
    let Some(at) = named.next() else {
        return Ok(None);
    };
    if named.next().is_some() {
        return Err(EditError::Twice(token.to_owned()));
    }
    let ranges: Vec<_> = object.members.iter().map(|it| it.value.clone()).collect();
    Ok(Some(found_at(value, &ranges, at)))
}

fn step_into_array(value: &str, token: &str) -> Option<Found> {
    let is_number = token == "0" || !token.starts_with(['0', '+']);
    let at: usize = token.parse().ok().filter(|_| is_number)?;
    let items = items_of(value)?;
    (at < items.len()).then(|| found_at(value, &items, at))
}

/// Says what goes with one of the values of a container: from the end of the one before it, or else
/// up to the start of the one after it.
fn found_at(container: &str, values: &[Range<usize>], at: usize) -> Found {
    let value = values[at].clone();
    // The first byte after the opening bracket, or the comma, that is no white space.
    let start_after = |mark: usize| {
        let rest = &container[mark + 1..];
        mark + 1 + rest.len() - rest.trim_ascii_start().len()
    };
    let start_of = |at: usize| match at.checked_sub(1) {
        None => start_after(0),
        Some(before) => {
            let end = values[before].end;
            // Between two values of one container stands white space, and one comma in it.
            let comma = container[end..].find(',').map_or(end, |comma| end + comma);
            start_after(comma)
        }
    };
    let whole = match at.checked_sub(1) {
        Some(before) => values[before].end..value.end,
        None if values.len() > 1 => start_of(0)..start_of(1),
        None => start_of(0)..value.end,
    };
    Found {
        value,
        whole,
        is_item: container.starts_with('['),
    }
}

fn spliced(json: &str, at: Range<usize>, with: &str) -> String {
    [&json[..at.start], with, &json[at.end..]].concat()
}

/// The members of one object in their order, their values not looked into.
struct Object<'a> {
    members: Vec<Member<'a>>,
}

struct Member<'a> {
    name: Cow<'a, str>,
    value: Range<usize>,
}

impl<'a> Object<'a> {
    fn read(json: &'a str) -> Option<Self> {
        let Members(members) = serde_json::from_str(json).ok()?;
        let members = members.into_iter().map(|(name, value)| Member {
            name,
            value: range_in(json.as_bytes(), value),
        });
        Some(Self {
            members: members.collect(),
        })
    }
}

/// Returns the names and values of an object as they were written; nothing for anything else.
pub(crate) fn members(json: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let Members(members) = serde_json::from_str(json).ok()?;
    let members = members.into_iter().map(|(name, value)| (name, value.get()));
    Some(members.collect())
}

/// Returns the items of an array as they were written; nothing for anything else.
pub(crate) fn items(json: &str) -> Option<Vec<&str>> {
    let Items(items) = serde_json::from_str(json).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

fn items_of(json: &str) -> Option<Vec<Range<usize>>> {
    let Items(items) = serde_json::from_str(json).ok()?;
    let items = items.into_iter();
    Some(items.map(|item| range_in(json.as_bytes(), item)).collect())
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);
struct Items<'a>(Vec<&'a RawValue>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}
