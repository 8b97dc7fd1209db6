//! Redis's protocol, as far as the queue needs it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// How much is read at once; an answer is smaller.
const READ_BYTES: usize = 16 * 1024;

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Self>),
    Nothing,
}

impl Value {
    /// Refuses what the server refused.
    pub(super) fn accepted(self) -> Result<Self> {
        match self {
            Self::Error(text) => bail!("Redis answers: {text}"),
            Self::Text(_) | Self::Number(_) | Self::Bytes(_) | Self::List(_) | Self::Nothing => {
                Ok(self)
            }
        }
    }

    /// Returns the only entry of a list, or one of its entries.
    pub(super) fn at(&self, index: usize) -> Result<&Self> {
        let found = match self {
            Self::List(entries) => entries.get(index),
            Self::Text(_) | Self::Error(_) | Self::Number(_) | Self::Bytes(_) | Self::Nothing => {
                None
            }
        };
        found.with_context(|| format!("Redis answers something else: {self:?}"))
    }

    pub(super) fn bytes(&self) -> Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Text(_) | Self::Error(_) | Self::Number(_) | Self::List(_) | Self::Nothing => {
                bail!("Redis answers something else: {self:?}")
            }
        }
    }
}

/// A connection of its own.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// What was read and not yet understood.
    read: Vec<u8>,
    /// What is to be sent.
    write: Vec<u8>,
    /// How many answers are due.
    due: usize,
}

impl Connection {
    pub(super) async fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await;
        Ok(Self {
            stream: stream.context("Redis cannot be reached")?,
            read: vec![],
            write: vec![],
            due: 0,
        })
    }

    /// Adds a command to what is sent next.
    pub(super) fn add(&mut self, words: &[&[u8]]) -> &mut Self {
        encode(words, &mut self.write);
        self.due += 1;
        self
    }

    /// Sends the commands together, and returns the answer to the last one; all must be accepted.
    pub(super) async fn send(&mut self) -> Result<Value> {
        self.stream.write_all(&self.write).await?;
        self.write.clear();
        let mut last = Value::Nothing;
        while self.due > 0 {
            last = self.receive().await?.accepted()?;
            self.due -= 1;
        }
        Ok(last)
    }

    async fn receive(&mut self) -> Result<Value> {
        loop {
            if let Some((value, used)) = parse(&self.read)? {
                self.read.drain(..used);
                return Ok(value);
            }
            self.read.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.read).await? == 0 {
                bail!("Redis closed the connection");
            }
        }
    }
}

fn encode(words: &[&[u8]], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// Reads one value and how many bytes it took; `None` when there is more to come.
fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = str::from_utf8(&bytes[..end]).context("Redis answers no text")?;
    let mut used = end + 2;
    let mut rest = line.chars();
    let kind = rest.next().context("Redis answers an empty line")?;
    let rest = rest.as_str();
    let number = || {
        let number = rest.parse::<i64>();
        number.with_context(|| format!("Redis answers `{line}` where a number belongs"))
    };
    let value = match kind {
        '+' => Value::Text(rest.to_owned()),
        '-' => Value::Error(rest.to_owned()),
        ':' => Value::Number(number()?),
        '$' | '*' if number()? < 0 => Value::Nothing,
        '$' => {
            let size = usize::try_from(number()?)?;
            let Some(found) = bytes.get(used..used + size + 2) else {
                return Ok(None);
            };
            used += size + 2;
            Value::Bytes(found[..size].to_vec())
        }
        '*' => {
            let mut entries = vec![];
            for _ in 0..number()? {
                let Some((entry, more)) = parse(&bytes[used..])? else {
                    return Ok(None);
                };
                used += more;
                entries.push(entry);
            }
            Value::List(entries)
        }
        _ => bail!("Redis answers `{line}`"),
    };
    Ok(Some((value, used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_as_lists_of_bytes() {
        let mut written = vec![];
        encode(&[b"SET", b"a\r\n", b""], &mut written);
        assert_eq!(written, b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n");
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let answer = b"*4\r\n*2\r\n$1\r\nk\r\n:-7\r\n$-1\r\n*-1\r\n+OK\r\n+next";
        let whole = answer.len() - b"+next".len();
        for end in 0..whole {
            assert_eq!(parse(&answer[..end]).unwrap(), None, "{end}");
        }
        let (value, used) = parse(answer).unwrap().unwrap();
        assert_eq!(used, whole);
        let pair = Value::List(vec![Value::Bytes(b"k".to_vec()), Value::Number(-7)]);
        let nothing = || Value::Nothing;
        let ok = Value::Text("OK".to_owned());
        assert_eq!(value, Value::List(vec![pair, nothing(), nothing(), ok]));
        assert_eq!(value.at(0).unwrap().at(0).unwrap().bytes().unwrap(), b"k");
        assert!(value.at(4).is_err() && value.bytes().is_err());
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for wrong in [&b"?\r\n"[..], b"\r\n", b":x\r\n", b"$x\r\n", b"\xff\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        let (refused, _) = parse(b"-ERR no\r\n").unwrap().unwrap();
        let error = refused.accepted().unwrap_err().to_string();
        assert_eq!(error, "Redis answers: ERR no");
    }
}
