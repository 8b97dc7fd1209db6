//! The frames of HTTP/2 (RFC 9113, section 4.1) on their way: where an answer ends, and what is broken off.
//!
//! Whether the last frame of an answer was written cannot be told from its body: what the peer's windows have no room
//! for waits inside, while other frames go out.

/// What a client says first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A stream that its sender does not want any more, though nothing is wrong with it.
pub(super) const NO_ERROR: u32 = 0;

/// What is told of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The last byte of its last frame is here.
    Ended(u32),
    /// It was broken off.
    Reset {
        /// Which.
        stream: u32,
        /// Why.
        code: u32,
    },
}

/// Follows the frames of one direction, however their bytes are cut.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// How many bytes come before the first frame.
    preface: usize,
    head: [u8; HEAD],
    /// How many bytes of the head are here.
    head_count: usize,
    /// How many bytes of the rest are to come.
    rest: usize,
    /// The last four bytes of the rest: the reason, of a frame that has one.
    tail: u32,
    /// The stream that ends with its headers, which are not all here.
    ending: Option<u32>,
}

impl Frames {
    /// Follows what a client says.
    pub(super) fn of_client() -> Self {
        Self {
            preface: PREFACE.len(),
            ..Self::default()
        }
    }

    /// Takes the next bytes, and tells what they end.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Told)) {
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.head_count < HEAD {
                let count = bytes.len().min(HEAD - self.head_count);
                let (head, after) = bytes.split_at(count);
                self.head[self.head_count..][..count].copy_from_slice(head);
                self.head_count += count;
                bytes = after;
                if self.head_count < HEAD {
                    return;
                }
                self.rest = usize::from(self.head[0]) << 16
                    | usize::from(self.head[1]) << 8
                    | usize::from(self.head[2]);
                self.tail = 0;
            }
            let (rest, after) = bytes.split_at(self.rest.min(bytes.len()));
            for byte in &rest[rest.len().saturating_sub(4)..] {
                self.tail = self.tail << 8 | u32::from(*byte);
            }
            self.rest -= rest.len();
            bytes = after;
            if self.rest == 0 {
                self.head_count = 0;
                self.end().into_iter().for_each(&mut tell);
            }
        }
    }

    /// Says what a frame tells that is whole.
    fn end(&mut self) -> Option<Told> {
        let [_, _, _, kind, flags, id @ ..] = self.head;
        // The first bit is reserved.
        let stream = u32::from_be_bytes(id) & 0x7FFF_FFFF;
        let is_set = |flag: u8| flags & flag != 0;
        match kind {
            DATA if is_set(END_STREAM) => Some(Told::Ended(stream)),
            HEADERS if is_set(END_STREAM) && is_set(END_HEADERS) => Some(Told::Ended(stream)),
            HEADERS if is_set(END_STREAM) => {
                self.ending = Some(stream);
                None
            }
            CONTINUATION if is_set(END_HEADERS) => self.ending.take().map(Told::Ended),
            RST_STREAM => Some(Told::Reset {
                stream,
                code: self.tail,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, rest: &[u8]) -> Vec<u8> {
        let length = u32::try_from(rest.len())
            .expect("it is short")
            .to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend((stream | 0x8000_0000).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn ends_and_breaks_are_told_however_the_bytes_are_cut() {
        let mut bytes = PREFACE.to_vec();
        for part in [
            frame(4, 0, 0, &[0; 12]),
            frame(HEADERS, END_HEADERS, 1, b"head"),
            frame(DATA, 0, 1, &[9; 300]),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, b"all"),
            frame(DATA, END_STREAM, 1, b""),
            frame(HEADERS, END_STREAM, 5, b"long"),
            frame(CONTINUATION, 0, 5, b"longer"),
            frame(CONTINUATION, END_HEADERS, 5, b"last"),
            frame(HEADERS, 0, 7, b"long"),
            frame(CONTINUATION, END_HEADERS, 7, b"last"),
            frame(RST_STREAM, 0, 7, &8_u32.to_be_bytes()),
            frame(DATA, END_STREAM, 0x0102_0304, &[1; 70_000]),
        ] {
            bytes.extend(part);
        }
        let expected = [
            Told::Ended(3),
            Told::Ended(1),
            Told::Ended(5),
            Told::Reset { stream: 7, code: 8 },
            Told::Ended(0x0102_0304),
        ];
        for size in [1, 2, 7, 9, 10, 1_000, bytes.len()] {
            let mut frames = Frames::of_client();
            let mut told = vec![];
            for piece in bytes.chunks(size) {
                frames.take(piece, |it| told.push(it));
            }
            assert_eq!(told, expected, "{size}");
        }
    }

    #[test]
    fn an_end_is_told_with_its_last_byte_and_not_before() {
        let bytes = frame(DATA, END_STREAM, 1, b"seven..");
        let mut frames = Frames::default();
        let mut told = vec![];
        frames.take(&bytes[..bytes.len() - 1], |it| told.push(it));
        assert_eq!(told, []);
        frames.take(&bytes[bytes.len() - 1..], |it| told.push(it));
        assert_eq!(told, [Told::Ended(1)]);
    }
}
