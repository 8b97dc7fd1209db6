//! Collects canonical text in the order of the input, then puts members in canonical order.
//!
//! Moving an object's members when it closes would copy a deeply nested value once for each
//! level. So an unsorted object is only noted, and all of them are put in order together while the
//! text is copied once. Text whose objects are all sorted is not copied at all.

use std::cmp::Ordering;
use std::ops::Range;

use super::Error;
use super::parser::ObjectStart;
use super::string::Text;
use super::writer::{write_plain_string, write_string};

/// Canonical text but for the order of members.
pub(super) struct Draft<'a> {
    bytes: Vec<u8>,
    /// The members of the objects not closed yet, those of an inner object after those of the
    /// outer ones.
    open: Vec<OpenMember<'a>>,
    /// The members of the unsorted objects, those of one object together and in canonical order.
    members: Vec<Range<usize>>,
    unsorted: Vec<Unsorted>,
}

struct OpenMember<'a> {
    name: Text<'a>,
    /// Where the name stands in the input.
    offset: usize,
    /// Its name, colon and value in the draft; the end is set once the value has been written.
    text: Range<usize>,
}

/// A closed object whose members are not in canonical order.
struct Unsorted {
    /// Its text in the draft from its opening brace, which no member's text begins with, to the
    /// end of its last member.
    text: Range<usize>,
    /// Its members' indices in [`Draft::members`].
    members: Range<usize>,
}

impl<'a> Draft<'a> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            open: Vec::new(),
            members: Vec::new(),
            unsorted: Vec::new(),
        }
    }

    /// Gives the text so far, to append to.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a string.
    pub(super) fn string(&mut self, text: &Text<'_>) {
        match text {
            Text::Plain(text) => write_plain_string(&mut self.bytes, text),
            Text::Unescaped(text) => write_string(&mut self.bytes, text),
        }
    }

    /// Notes that an object begins with the next byte.
    pub(super) fn object_start(&self) -> ObjectStart {
        ObjectStart {
            text: self.bytes.len(),
            member: self.open.len(),
        }
    }

    /// Appends a member's name; `offset` is its place in the input.
    pub(super) fn begin_member(&mut self, name: Text<'a>, offset: usize) {
        let start = self.bytes.len();
        self.string(&name);
        self.open.push(OpenMember {
            name,
            offset,
            text: start..start,
        });
    }

    /// Notes that the last member's value is complete.
    pub(super) fn end_member(&mut self) {
        if let Some(member) = self.open.last_mut() {
            member.text.end = self.bytes.len();
        }
    }

    /// Notes that all members of the object begun at `start` are complete.
    pub(super) fn end_object(&mut self, start: ObjectStart) -> Result<(), Error> {
        let object = &mut self.open[start.member..];
        // Strictly sorted, so also without a repeated name.
        if !object.is_sorted_by(|a, b| by_name(a, b).is_lt()) {
            object.sort_unstable_by(|a, b| by_name(a, b).then(a.offset.cmp(&b.offset)));
            if let Some(offset) = first_repeated(object) {
                return Err(Error::DuplicateMember { offset });
            }
            let first = self.members.len();
            self.members
                .extend(object.iter().map(|member| member.text.clone()));
            self.unsorted.push(Unsorted {
                text: start.text..self.bytes.len(),
                members: first..self.members.len(),
            });
        }
        self.open.truncate(start.member);
        Ok(())
    }

    /// Gives the canonical text.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.unsorted.is_empty() {
            return self.bytes;
        }
        // Objects are noted as they close, the inner before the outer; finding the first one in a
        // stretch of text takes the order in which they open.
        self.unsorted
            .sort_unstable_by_key(|object| object.text.start);
        self.copy_in_order()
    }

    /// Copies the text, taking the members of unsorted objects in canonical order.
    ///
    /// Every offset here was recorded by this type while writing `bytes`, so indexing cannot fail.
    fn copy_in_order(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len());
        let mut tasks = vec![Task::Text(0..self.bytes.len())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Text(text) => match self.first_unsorted_in(&text) {
                    Some(object) => {
                        out.extend_from_slice(&self.bytes[text.start..=object.text.start]);
                        tasks.push(Task::Text(object.text.end..text.end));
                        tasks.push(Task::Members(object.members.clone()));
                    }
                    None => out.extend_from_slice(&self.bytes[text]),
                },
                Task::Members(mut indices) => {
                    if let Some(index) = indices.next() {
                        if !indices.is_empty() {
                            tasks.push(Task::Members(indices));
                            tasks.push(Task::Comma);
                        }
                        tasks.push(Task::Text(self.members[index].clone()));
                    }
                }
                Task::Comma => out.push(b','),
            }
        }
        out
    }

    /// Finds the outermost, leftmost unsorted object within `text`.
    fn first_unsorted_in(&self, text: &Range<usize>) -> Option<&Unsorted> {
        let index = self
            .unsorted
            .partition_point(|object| object.text.start < text.start);
        self.unsorted
            .get(index)
            .filter(|object| object.text.start < text.end)
    }
}

/// A piece of work left while copying; a stack of them takes the place of recursion.
enum Task {
    /// To copy a stretch of the draft.
    Text(Range<usize>),
    /// To copy members, given by their indices, with commas between them.
    Members(Range<usize>),
    Comma,
}

/// Finds where in the input a name first occurs again; `members` are sorted by name, then offset.
fn first_repeated(members: &[OpenMember<'_>]) -> Option<usize> {
    members
        .windows(2)
        .filter_map(|pair| match pair {
            [a, b] if by_name(a, b).is_eq() => Some(b.offset),
            _ => None,
        })
        .min()
}

fn by_name(a: &OpenMember<'_>, b: &OpenMember<'_>) -> Ordering {
    utf16_order(a.name.as_str(), b.name.as_str())
}

/// Compares two texts by their UTF-16 code units.
///
/// UTF-8 bytes sort by code point. UTF-16 differs only in that characters beyond U+FFFF, being
/// surrogates from 0xD800 up, come before U+E000 to U+FFFF. Where two texts first differ, these
/// show by their first byte: 0xF0 to 0xF4 against 0xEE and 0xEF.
pub(super) fn utf16_order(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| match byte {
        0xEE | 0xEF => byte + 0x10,
        _ => byte,
    };
    a.bytes()
        .zip(b.bytes())
        .find(|(a, b)| a != b)
        .map_or_else(|| a.len().cmp(&b.len()), |(a, b)| rank(a).cmp(&rank(b)))
}
