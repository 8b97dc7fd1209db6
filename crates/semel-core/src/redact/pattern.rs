//! The user's own patterns.

use super::REDACTED;

/// The longest run that a `*` stands for, in bytes: longer than any key or token that people write, and
/// short enough that no text takes long.
const RUN_MAX: usize = 4_096;

/// A literal text in which `*` stands for any run of characters within a word.
///
/// `acme_*` hides every key of that make, `cust-*-id` what stands between. A word ends at white space, a
/// quote, a bracket, a comma, a semicolon or an ampersand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What stands between the stars.
    parts: Vec<String>,
}

/// Says why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It would match ordinary words.
    #[error(
        "a pattern needs at least {} characters beside `*`, or it would hide ordinary words",
        Pattern::LITERAL_MIN
    )]
    TooShort,
    /// It is too long.
    #[error("a pattern has {bytes} bytes; the limit is {}", Pattern::MAX_BYTES)]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
}

impl Pattern {
    /// The longest pattern, in bytes: a longer one is the secret itself, and belongs nowhere.
    pub const MAX_BYTES: usize = 256;

    /// The fewest characters beside `*`.
    pub const LITERAL_MIN: usize = 3;

    /// Reads a pattern.
    ///
    /// # Errors
    /// Refuses one that is too long, or so short that it would match ordinary words.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > Self::MAX_BYTES {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        if text.chars().filter(|&c| c != '*').count() < Self::LITERAL_MIN {
            return Err(PatternError::TooShort);
        }
        let mut parts: Vec<_> = text.split('*').map(str::to_owned).collect();
        // Several stars are one.
        let count = parts.len();
        let mut index = 0;
        parts.retain(|part| {
            index += 1;
            !part.is_empty() || index == 1 || index == count
        });
        Ok(Self { parts })
    }

    /// Hides every match outside what is hidden already; `None` when there is none.
    pub(super) fn hide(&self, text: &str) -> Option<String> {
        let mut found = false;
        let pieces = text.split(REDACTED).map(|piece| {
            let mut out = String::new();
            let mut rest = piece;
            while let Some((start, end)) = self.find(rest) {
                found = true;
                out.push_str(&rest[..start]);
                out.push_str(REDACTED);
                rest = &rest[end..];
            }
            out.push_str(rest);
            out
        });
        let hidden = pieces.collect::<Vec<_>>().join(REDACTED);
        found.then_some(hidden)
    }

    /// Finds the first match. It depends on nothing but what it matches.
    fn find(&self, text: &str) -> Option<(usize, usize)> {
        // A star at the beginning reaches back to the beginning of the word.
        let (first, rest) = match &*self.parts {
            [empty, first, rest @ ..] if empty.is_empty() => (first, rest),
            [first, rest @ ..] => (first, rest),
            [] => return None,
        };
        let leading = self.parts.first().is_some_and(String::is_empty);
        let mut from = 0;
        loop {
            let at = from + text.get(from..)?.find(first.as_str())?;
            if let Some(end) = tail(text, at + first.len(), rest) {
                let start = if leading { run_before(text, at) } else { at };
                return Some((start, end));
            }
            from = at + text[at..].chars().next()?.len_utf8();
        }
    }
}

/// Returns where the parts end that follow, each after a run within a word.
fn tail(text: &str, at: usize, parts: &[String]) -> Option<usize> {
    let mut at = at;
    for (index, part) in parts.iter().enumerate() {
        let run = run_after(text, at);
        at = if part.is_empty() && index + 1 == parts.len() {
            run
        } else {
            let reach = (run + part.len()).min(text.len());
            at + text.as_bytes()[at..reach]
                .windows(part.len().max(1))
                .position(|window| window == part.as_bytes())?
                + part.len()
        };
    }
    Some(at)
}

fn run_after(text: &str, at: usize) -> usize {
    let run = text[at..].char_indices().take_while(|(offset, c)| {
        let within = offset + c.len_utf8() <= RUN_MAX;
        within && is_of_word(*c)
    });
    at + run.last().map_or(0, |(offset, c)| offset + c.len_utf8())
}

fn run_before(text: &str, at: usize) -> usize {
    let run = text[..at].char_indices().rev();
    let run = run.take_while(|(start, c)| at - start <= RUN_MAX && is_of_word(*c));
    run.last().map_or(at, |(start, _)| start)
}

fn is_of_word(c: char) -> bool {
    !c.is_whitespace() && !"\"'`,;&<>()[]{}".contains(c)
}
