//! What an upstream receives.

use std::io::{self, BufRead, ErrorKind, Read as _};
use std::sync::LazyLock;

/// How much of a body is kept; of the rest only the length is, and whether it is a run of bytes.
const KEPT: usize = 256 * 1024;

/// The longest line of a head.
const LINE_MAX: u64 = 128 * 1024;

/// A request, as it was received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    /// The beginning of the body.
    pub(crate) body: Vec<u8>,
    pub(crate) length: u64,
    /// Each byte of the body is the low byte of its place.
    pub(crate) is_run: bool,
    /// Which connection it came on.
    pub(crate) connection: u64,
}

impl Received {
    /// Reads the next request; none where the connection ends before it.
    pub(super) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let first = line(reader)?;
        if first.is_empty() {
            return Ok(None);
        }
        let first = String::from_utf8_lossy(&first).into_owned();
        let mut words = first.split(' ').map(str::to_owned);
        let mut received = Self {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            is_run: true,
            ..Self::default()
        };
        loop {
            let line = line(reader)?;
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            let (name, value) = line.split_at(colon.ok_or(ErrorKind::InvalidData)?);
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let value = value[1..].trim_ascii().to_vec();
            received.headers.push((name, value));
        }
        match (
            received.header("content-length"),
            received.header("transfer-encoding"),
        ) {
            (Some(length), None) => {
                let length = length.parse().map_err(|_| ErrorKind::InvalidData)?;
                received.take(reader, length)?;
            }
            (None, Some(_)) => loop {
                let size = line(reader)?;
                let size = String::from_utf8_lossy(&size).into_owned();
                let digits = size.split(';').next().unwrap_or_default();
                let size = u64::from_str_radix(digits.trim(), 16);
                let size = size.map_err(|_| ErrorKind::InvalidData)?;
                if size == 0 {
                    while !line(reader)?.is_empty() {}
                    break;
                }
                received.take(reader, size)?;
                line(reader)?;
            },
            (None, None) => {}
            // What a proxy passes on must be clear.
            (Some(_), Some(_)) => return Err(ErrorKind::InvalidData.into()),
        }
        Ok(Some(received))
    }

    fn take(&mut self, reader: &mut impl BufRead, length: u64) -> io::Result<()> {
        let mut left = length;
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = reader.read(&mut piece[..most])?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let room = KEPT.saturating_sub(self.body.len()).min(count);
            self.body.extend(&piece[..room]);
            self.is_run &= is_run(self.length, &piece[..count]);
            self.length += count as u64;
            left -= count as u64;
        }
        Ok(())
    }

    /// Returns a header as text; where there are two, the first.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Says what an effect is of: the member `id` of the body, else the key, else the place.
    pub(crate) fn name(&self) -> String {
        let body = serde_json::from_slice::<serde_json::Value>(&self.body).ok();
        let id = body.and_then(|body| body["id"].as_str().map(str::to_owned));
        id.or_else(|| self.header("idempotency-key"))
            .unwrap_or_else(|| self.target.clone())
    }

    pub(super) fn only_reads(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

/// How long a piece of a run is at most.
pub(crate) const PIECE: usize = 64 * 1024;

/// Bytes that each are the low byte of their place.
static RUN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=255).cycle().take(PIECE + 256).collect());

/// Returns a piece of the run from a place on.
pub(crate) fn run_of(at: u64, size: usize) -> &'static [u8] {
    let start = usize::from(at.to_le_bytes()[0]);
    &RUN[start..start + size]
}

/// Says whether bytes that stand at a place are those of the run.
pub(crate) fn is_run(at: u64, bytes: &[u8]) -> bool {
    let mut at = at;
    bytes.chunks(PIECE).all(|piece| {
        let here = at;
        at += piece.len() as u64;
        piece == run_of(here, piece.len())
    })
}

/// Reads a line; an empty one also stands for the end of the connection.
fn line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = vec![];
    reader
        .by_ref()
        .take(LINE_MAX)
        .read_until(b'\n', &mut line)?;
    while line.ends_with(b"\n") || line.ends_with(b"\r") {
        line.pop();
    }
    Ok(line)
}
