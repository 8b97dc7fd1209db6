//! Keys and tokens that can be told by how they are written.

use core::ops::Range;

use super::scan::Scan;

/// How far a key is looked at before it is believed to be one. Once it is, all of it is hidden.
const LOOK_MAX: usize = 256;

/// How a kind of key is written: a beginning, then so many characters of some alphabet.
struct Format {
    begins: &'static str,
    least: usize,
    alphabet: Alphabet,
    /// Whether a word without a digit is something else.
    needs_digit: bool,
}

#[derive(Clone, Copy)]
enum Alphabet {
    /// Letters and digits.
    Plain,
    /// As well `_`.
    Word,
    /// As well `_` and `-`.
    Url,
    /// Base 64, with its padding.
    Base64,
    /// Capitals and digits.
    Capitals,
}

impl Alphabet {
    const fn has(self, byte: u8) -> bool {
        match self {
            Self::Plain => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Self::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        }
    }
}

const fn plain(begins: &'static str, least: usize, alphabet: Alphabet) -> Format {
    Format {
        begins,
        least,
        alphabet,
        needs_digit: false,
    }
}

const fn with_digit(begins: &'static str, least: usize, alphabet: Alphabet) -> Format {
    Format {
        needs_digit: true,
        ..plain(begins, least, alphabet)
    }
}

/// The kinds of keys. Their lengths are the shortest that are given out, or less.
const FORMATS: [Format; 34] = [
    with_digit("sk-", 20, Alphabet::Url),
    plain("sk_live_", 10, Alphabet::Plain),
    plain("sk_test_", 10, Alphabet::Plain),
    plain("rk_live_", 10, Alphabet::Plain),
    plain("rk_test_", 10, Alphabet::Plain),
    plain("whsec_", 16, Alphabet::Base64),
    plain("ghp_", 30, Alphabet::Plain),
    plain("gho_", 30, Alphabet::Plain),
    plain("ghu_", 30, Alphabet::Plain),
    plain("ghs_", 30, Alphabet::Plain),
    plain("ghr_", 30, Alphabet::Plain),
    plain("github_pat_", 22, Alphabet::Word),
    plain("glpat-", 20, Alphabet::Url),
    with_digit("xoxa-", 10, Alphabet::Url),
    with_digit("xoxb-", 10, Alphabet::Url),
    with_digit("xoxe-", 10, Alphabet::Url),
    with_digit("xoxp-", 10, Alphabet::Url),
    with_digit("xoxr-", 10, Alphabet::Url),
    with_digit("xoxs-", 10, Alphabet::Url),
    with_digit("xapp-", 10, Alphabet::Url),
    with_digit("AKIA", 16, Alphabet::Capitals),
    with_digit("ASIA", 16, Alphabet::Capitals),
    with_digit("AIza", 30, Alphabet::Url),
    with_digit("ya29.", 20, Alphabet::Url),
    with_digit("npm_", 30, Alphabet::Plain),
    with_digit("pypi-", 50, Alphabet::Url),
    with_digit("dop_v1_", 30, Alphabet::Plain),
    with_digit("hf_", 30, Alphabet::Plain),
    with_digit("shpat_", 30, Alphabet::Plain),
    with_digit("sq0csp-", 30, Alphabet::Url),
    with_digit("hvs.", 20, Alphabet::Url),
    with_digit("lin_api_", 30, Alphabet::Plain),
    with_digit("AGE-SECRET-KEY-", 40, Alphabet::Capitals),
    // Our own: an id, 52 letters and digits, and a sum.
    with_digit("semel_", 40, Alphabet::Word),
];

/// Returns the key that begins here.
pub(super) fn known(scan: &Scan<'_>) -> Option<Range<usize>> {
    let rest = &scan.bytes[scan.at..];
    let length = match rest.first()? {
        b'-' => private_key(&scan.text[scan.at..])?,
        b'e' => web_token(rest, scan.cut)?,
        first if first.is_ascii_alphabetic() => FORMATS
            .iter()
            // Most words begin like none of them.
            .filter(|format| format.begins.as_bytes()[0] == *first)
            .find_map(|format| length(format, rest, scan.cut))?,
        _ => return None,
    };
    Some(scan.at..scan.at + length)
}

fn length(format: &Format, rest: &[u8], cut: bool) -> Option<usize> {
    let body = rest.strip_prefix(format.begins.as_bytes())?;
    let run = |bytes: &[u8]| {
        bytes
            .iter()
            .take_while(|b| format.alphabet.has(**b))
            .count()
    };
    let looked = &body[..run(&body[..body.len().min(LOOK_MAX)])];
    let long = looked.len() >= format.least;
    let digit = !format.needs_digit || looked.iter().any(u8::is_ascii_digit);
    // Of a key that was cut off, any piece is one too many.
    let ends_open = cut && looked.len() == body.len() && !looked.is_empty();
    ((long && digit) || ends_open).then(|| format.begins.len() + run(body))
}

/// A JSON web token: parts in base 64, the first of which begins with `{"`.
fn web_token(rest: &[u8], cut: bool) -> Option<usize> {
    /// The shortest header, `{"alg":"none"}`, less something.
    const HEADER_MIN: usize = 10;
    /// The shortest payload that says anything.
    const PAYLOAD_MIN: usize = 4;
    /// How long a header may be, with a certificate in it.
    const HEADER_MAX: usize = 4_096;
    rest.strip_prefix(b"eyJ")?;
    let run = |bytes: &[u8]| bytes.iter().take_while(|b| Alphabet::Url.has(**b)).count();
    let header = run(&rest[..rest.len().min(HEADER_MAX)]);
    if cut && header == rest.len() {
        return Some(header);
    }
    let payload = run(rest[header..].strip_prefix(b".")?);
    let whole = header >= HEADER_MIN && payload >= PAYLOAD_MIN;
    let cut = cut && header + 1 + payload == rest.len();
    let mut length = header + 1 + payload;
    // A signature, or the three more parts of an encrypted one.
    while let Some(part) = rest[length..].strip_prefix(b".") {
        match run(part) {
            0 => break,
            size => length += 1 + size,
        }
    }
    (whole || cut).then_some(length)
}

/// A private key in its armour; one whose end is missing reaches to the end.
pub(super) fn private_key(rest: &str) -> Option<usize> {
    const BEGIN: &str = "-----BEGIN ";
    const KIND: &str = "PRIVATE KEY";
    const END: &str = "-----END ";
    const DASHES: &str = "-----";
    /// How far the kind of key may stand from the beginning: `ENCRYPTED`, `OPENSSH`, `RSA` and so on.
    const KIND_WITHIN: usize = 32;
    let kind = rest.strip_prefix(BEGIN)?;
    let head = kind.as_bytes();
    let head = &head[..head.len().min(KIND_WITHIN)];
    let words = head
        .windows(KIND.len())
        .position(|window| window == KIND.as_bytes())?;
    if !head[..words]
        .iter()
        .all(|b| Alphabet::Capitals.has(*b) || *b == b' ')
    {
        return None;
    }
    let Some(end) = kind.find(END) else {
        return Some(rest.len());
    };
    let end = BEGIN.len() + end + END.len();
    let last = rest[end..].find(DASHES);
    Some(last.map_or(rest.len(), |last| end + last + DASHES.len()))
}
