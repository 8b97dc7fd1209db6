//! Reads JSON text and writes each piece to a draft as it goes.
//!
//! The grammar is a loop over [`Step`] with the open containers on a [`Vec`]: recursion would let
//! the input choose the depth of the stack.

use super::Error;
use super::draft::Draft;
use super::number;
use super::string::{self, Text};

/// Reads one document.
pub(super) struct Parser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
    open: Vec<Container>,
    draft: Draft<'a>,
}

/// A container whose end has not been read.
#[derive(Clone, Copy)]
enum Container {
    Array,
    Object(ObjectStart),
}

/// Where an object began in the draft.
#[derive(Clone, Copy)]
pub(super) struct ObjectStart {
    /// The offset of its opening brace in the draft.
    pub(super) text: usize,
    /// The index of its first member among the draft's open members.
    pub(super) member: usize,
}

/// What the grammar wants next.
#[derive(Clone, Copy)]
enum Step {
    Value,
    /// A value or `]`.
    FirstItem,
    /// A member or `}`.
    FirstMember,
    Member,
    /// Whatever may follow a value: a comma, the container's end, or the end of the input.
    AfterValue,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, depth: usize) -> Self {
        Self {
            text,
            position: 0,
            depth,
            open: Vec::new(),
            draft: Draft::with_capacity(text.len()),
        }
    }

    /// Reads the whole text as one value and gives its canonical bytes.
    pub(super) fn document(mut self) -> Result<Vec<u8>, Error> {
        if self.token().is_none() {
            return Err(Error::Empty {
                offset: self.position,
            });
        }
        let mut step = Step::Value;
        loop {
            step = match step {
                Step::Value => self.value()?,
                Step::FirstItem => self.first_item()?,
                Step::FirstMember => self.first_member()?,
                Step::Member => self.member()?,
                Step::AfterValue => match self.open.last().copied() {
                    Some(container) => self.after_value(container)?,
                    None => break,
                },
            };
        }
        match self.token() {
            Some(_) => Err(Error::TrailingData {
                offset: self.position,
            }),
            None => Ok(self.draft.finish()),
        }
    }

    fn value(&mut self) -> Result<Step, Error> {
        match self.token() {
            Some(b'"') => {
                let text = self.string()?;
                self.draft.string(&text);
                Ok(Step::AfterValue)
            }
            Some(b'{') => self.open_object(),
            Some(b'[') => self.open_array(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            // Numbers to other notations, so worth an error of their own.
            Some(b'+' | b'.') => Err(Error::InvalidNumber {
                offset: self.position,
            }),
            Some(b'N' | b'I') if number::is_not_finite(self.rest()) => Err(Error::NotFinite {
                offset: self.position,
            }),
            Some(_) | None => Err(self.unexpected("a JSON value")),
        }
    }

    fn number(&mut self) -> Result<Step, Error> {
        let (number, length) = number::scan(self.rest(), self.position)?;
        number.write(self.draft.bytes(), self.position)?;
        self.position += length;
        Ok(Step::AfterValue)
    }

    fn literal(&mut self, word: &'static str) -> Result<Step, Error> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.unexpected("a JSON value"));
        }
        self.draft.bytes().extend_from_slice(word.as_bytes());
        self.position += word.len();
        Ok(Step::AfterValue)
    }

    fn string(&mut self) -> Result<Text<'a>, Error> {
        let (text, end) = string::scan(self.text, self.position)?;
        self.position = end;
        Ok(text)
    }

    fn open_array(&mut self) -> Result<Step, Error> {
        self.check_depth()?;
        self.accept(b'[');
        self.open.push(Container::Array);
        Ok(Step::FirstItem)
    }

    fn open_object(&mut self) -> Result<Step, Error> {
        self.check_depth()?;
        let start = self.draft.object_start();
        self.accept(b'{');
        self.open.push(Container::Object(start));
        Ok(Step::FirstMember)
    }

    fn first_item(&mut self) -> Result<Step, Error> {
        match self.token() {
            Some(b']') => self.close(b']'),
            Some(_) | None => Ok(Step::Value),
        }
    }

    fn first_member(&mut self) -> Result<Step, Error> {
        match self.token() {
            Some(b'}') => self.close(b'}'),
            Some(b'"') => Ok(Step::Member),
            Some(_) | None => Err(self.unexpected("a member name in double quotes, or `}`")),
        }
    }

    fn member(&mut self) -> Result<Step, Error> {
        if self.token() != Some(b'"') {
            return Err(self.unexpected("a member name in double quotes"));
        }
        let offset = self.position;
        let name = self.string()?;
        self.draft.begin_member(name, offset);
        if self.token() != Some(b':') {
            return Err(self.unexpected("`:`"));
        }
        self.accept(b':');
        Ok(Step::Value)
    }

    fn after_value(&mut self, container: Container) -> Result<Step, Error> {
        let next = self.token();
        match container {
            Container::Array => match next {
                Some(b',') => {
                    self.accept(b',');
                    Ok(Step::Value)
                }
                Some(b']') => self.close(b']'),
                Some(_) | None => Err(self.unexpected("`,` or `]`")),
            },
            Container::Object(_) => {
                self.draft.end_member();
                match next {
                    Some(b',') => {
                        self.accept(b',');
                        Ok(Step::Member)
                    }
                    Some(b'}') => self.close(b'}'),
                    Some(_) | None => Err(self.unexpected("`,` or `}`")),
                }
            }
        }
    }

    /// Ends the innermost container, whose closing `mark` is at the current position.
    fn close(&mut self, mark: u8) -> Result<Step, Error> {
        if let Some(Container::Object(start)) = self.open.pop() {
            self.draft.end_object(start)?;
        }
        self.accept(mark);
        Ok(Step::AfterValue)
    }

    fn check_depth(&self) -> Result<(), Error> {
        if self.open.len() < self.depth {
            return Ok(());
        }
        Err(Error::TooDeep {
            offset: self.position,
            limit: self.depth,
        })
    }

    /// Copies the punctuation mark at the current position.
    fn accept(&mut self, mark: u8) {
        self.draft.bytes().push(mark);
        self.position += 1;
    }

    /// Skips whitespace and gives the byte that the next token begins with.
    fn token(&mut self) -> Option<u8> {
        let rest = self.rest();
        let blank = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        self.position += blank;
        rest.get(blank).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default()
    }

    fn unexpected(&self, expected: &'static str) -> Error {
        let offset = self.position;
        match self.rest() {
            [] => Error::UnexpectedEnd { offset },
            [0xEF, 0xBB, 0xBF, ..] => Error::ByteOrderMark { offset },
            [_, ..] => Error::Unexpected { offset, expected },
        }
    }
}
