use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::mcp::lines::{Line, Lines, Noise};
use crate::mcp::message::Malformed;

/// Gives its bytes in pieces of a size.
struct Pieces {
    rest: Vec<u8>,
    size: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.size.min(self.rest.len()).min(to.remaining());
        to.put_slice(&self.rest[..size]);
        self.rest.drain(..size);
        Poll::Ready(Ok(()))
    }
}

/// A limit that tests can pass.
const LIMIT: usize = 60;

async fn all(bytes: &[u8], size: usize) -> Vec<Line> {
    let rest = bytes.to_vec();
    let mut lines = Lines::with_limit(Pieces { rest, size }, LIMIT);
    let mut found = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        found.push(line);
    }
    found
}

fn words(lines: Vec<Line>) -> Vec<String> {
    let word = |line| match line {
        Line::Message(message) => String::from_utf8(message.bytes().to_vec()).unwrap(),
        Line::Noise(Noise { why, start, .. }) => format!("{}: {start}", why.code()),
    };
    lines.into_iter().map(word).collect()
}

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn each_line_is_a_message_however_it_is_cut() {
    let text = format!("{PING}\n\r\n  \n{PING}\r\nnot a message\n \u{e9}\n\x1b[31mred\n{PING}");
    let mut bytes = text.into_bytes();
    bytes.splice(0..0, *b"\xff\xfe\n");
    for size in 1..80 {
        let lines = words(all(&bytes, size).await);
        let expected = [
            "-32700: \\xff\\xfe",
            PING,
            PING,
            "-32700: not a message",
            "-32700:  \\xc3\\xa9",
            "-32700: \\x1b[31mred",
            PING,
        ];
        assert_eq!(lines, expected, "in pieces of {size}");
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_is_told_once_and_the_next_is_read() {
    let long = "x".repeat(LIMIT * 5);
    let just = format!("{PING}{}", " ".repeat(LIMIT - PING.len()));
    let over = format!("{just} ");
    for size in [1, 7, LIMIT, LIMIT + 1, 1_000] {
        let lines = all(format!("{long}\n{just}\n{over}\n{PING}\n").as_bytes(), size).await;
        let kinds: Vec<bool> = lines
            .iter()
            .map(|line| matches!(line, Line::Message(_)))
            .collect();
        assert_eq!(kinds, [false, true, false, true], "in pieces of {size}");
        for line in lines {
            if let Line::Noise(noise) = line {
                assert_eq!(noise.why, Malformed::TooLarge);
            }
        }
    }
    // Also where the line never ends.
    for size in [1, 7, 1_000] {
        let lines = all(long.as_bytes(), size).await;
        assert_eq!(lines.len(), 1, "in pieces of {size}");
    }
}

#[tokio::test]
async fn no_more_is_held_than_the_longest_line_needs() {
    /// Never ends its line, and counts what was taken of it.
    struct Endless<'a>(&'a mut usize);
    impl AsyncRead for Endless<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            to.put_slice(b"x");
            *self.0 += 1;
            Poll::Ready(Ok(()))
        }
    }
    let mut taken = 0;
    let mut lines = Lines::with_limit(Endless(&mut taken), LIMIT);
    assert!(matches!(lines.next().await.unwrap(), Some(Line::Noise(_))));
    // The longest line, a carriage return, and the byte that is too much.
    assert_eq!(taken, LIMIT + 2);
}

#[tokio::test]
async fn noise_is_shown_in_part_and_never_in_debug() {
    let mut lines = Lines::new(&b"{\"jsonrpc\":\"2.0\",\"id\":\"s\",\"secret\":\"4242\"}\n"[..]);
    let Some(Line::Noise(noise)) = lines.next().await.unwrap() else {
        panic!("a message without a method was taken");
    };
    assert_eq!(noise.id.as_deref(), Some("\"s\""));
    assert!(!format!("{noise:?}").contains("4242"));
    let long = "é".repeat(1_000);
    let mut lines = Lines::new(long.as_bytes());
    let Some(Line::Noise(noise)) = lines.next().await.unwrap() else {
        panic!("letters were taken for a message");
    };
    assert!(noise.start.len() < 500 && noise.start.ends_with('…'));
}

#[tokio::test]
async fn what_failed_to_be_read_is_an_error_and_not_an_end() {
    struct Broken;
    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }
    assert!(Lines::new(Broken).next().await.is_err());
}
