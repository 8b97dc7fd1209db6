//! Whether whoever asks again can read an answer as it was coded the first time.
//!
//! A recorded answer is kept as it came: nothing is decoded, and nothing is sent again to get it in another coding.

/// The lowest weight that accepts something, in thousandths.
const SOME: u16 = 1;

/// Says whether a request with these lines of `Accept-Encoding` accepts an answer with these of `Content-Encoding`
/// (RFC 9110, section 12.5.3). A request that says nothing accepts every coding; what of its list cannot be read is left
/// out.
#[must_use]
pub fn accepts<'a>(
    accepted: impl IntoIterator<Item = &'a [u8]>,
    coded: impl IntoIterator<Item = &'a [u8]>,
) -> bool {
    let mut accepted = accepted.into_iter().peekable();
    if accepted.peek().is_none() {
        return true;
    }
    let weights: Vec<(String, u16)> = accepted.flat_map(elements).filter_map(weighed).collect();
    let weight = |coding: &str| weights.iter().find(|(named, _)| named == coding);
    let mut codings = coded.into_iter().flat_map(elements).map(plain);
    codings.all(|coding| {
        let found = weight(&coding).or_else(|| weight("*"));
        match found {
            Some((_, weight)) => *weight >= SOME,
            None => coding == "identity",
        }
    })
}

/// Returns the elements of a list, without the white space around them.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    parts.filter(|part| !part.is_empty())
}

/// Returns the name of a coding as it is compared: two have an old name as well.
fn plain(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    match name.strip_prefix("x-") {
        Some(short @ ("gzip" | "compress")) => short.to_owned(),
        Some(_) | None => name,
    }
}

/// Reads a coding and its weight in thousandths.
fn weighed(element: &[u8]) -> Option<(String, u16)> {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = plain(parts.next()?);
    let Some(weight) = parts.next() else {
        return Some((name, 1_000));
    };
    let [b'q' | b'Q', b'=', weight @ ..] = weight else {
        return None;
    };
    let weight = thousandths(weight)?;
    parts.next().is_none().then_some((name, weight))
}

/// Reads `0`, `0.5`, `1.000`.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, places) = match text {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', places @ ..] if places.len() <= 3 => (whole, places),
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0');
    for place in 0..3 {
        let digit = places.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight * 10 + u16::from(digit - b'0');
    }
    (weight <= 1_000).then_some(weight)
}
