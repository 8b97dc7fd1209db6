//! Tokens that the gateway gives out and knows again: for one purpose, one call, and a while.

use std::fmt;

use semel::Timestamp;
use semel::core::Digest;

use crate::notify::hmac;

/// What tokens are sealed with: random bytes, kept for as long as tokens shall be known again.
#[derive(Clone)]
pub(crate) struct Seal([u8; 32]);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// What a token is for: one for a purpose is none for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To carry out what was previewed.
    Plan,
    /// To know again the question that a person answers.
    Question,
    /// To ask what became of a doubt.
    Task,
}

impl Purpose {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Plan => "semel-plan-1",
            Self::Question => "semel-question-1",
            Self::Task => "semel-task-1",
        }
    }
}

/// The end of what has none.
const NEVER: Timestamp = Timestamp(0);

/// Says why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// It is for something else, or not ours.
    #[error("it is for another call, or was not given out here")]
    Foreign,
    /// Its time is over.
    #[error("its time is over")]
    Over,
}

impl Seal {
    /// Takes random bytes.
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Makes a token about something, until a time.
    pub(crate) fn issue(&self, purpose: Purpose, about: &[&str], until: Timestamp) -> String {
        let mac = self.mac(purpose, about, until).hex();
        format!("{}.{}.{mac}", purpose.prefix(), until.0)
    }

    /// Says whether a token was made for this purpose and about this, and still counts.
    ///
    /// # Errors
    /// Says why not. Of a token that is not ours nothing else is said.
    pub(crate) fn check(
        &self,
        token: &str,
        purpose: Purpose,
        about: &[&str],
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rest = token.strip_prefix(purpose.prefix());
        let rest = rest.and_then(|rest| rest.strip_prefix('.'));
        let (until, mac) = rest
            .and_then(|it| it.split_once('.'))
            .ok_or(Broken::Foreign)?;
        let until = Timestamp(until.parse().map_err(|_| Broken::Foreign)?);
        let expected = self.mac(purpose, about, until).hex();
        // Of digests the time of a comparison tells nothing that helps to guess.
        if Digest::of(mac.as_bytes()) != Digest::of(expected.as_bytes()) {
            return Err(Broken::Foreign);
        }
        if until < now {
            Err(Broken::Over)
        } else {
            Ok(())
        }
    }

    /// Names something for one who may ask for it, for as long as the seal is the same. The name shows what
    /// it names, and nobody else can make it up.
    pub(crate) fn name(&self, purpose: Purpose, named: &str, whose: &str) -> String {
        let mac = self.mac(purpose, &[named, whose], NEVER).hex();
        format!("{}.{mac}.{named}", purpose.prefix())
    }

    /// Returns what was named so for whoever asks.
    ///
    /// # Errors
    /// A name that was not given to them is nobody's.
    pub(crate) fn named<'a>(
        &self,
        name: &'a str,
        purpose: Purpose,
        whose: &str,
    ) -> Result<&'a str, Broken> {
        let rest = name.strip_prefix(purpose.prefix());
        let rest = rest.and_then(|rest| rest.strip_prefix('.'));
        let (mac, named) = rest
            .and_then(|it| it.split_once('.'))
            .ok_or(Broken::Foreign)?;
        let expected = self.mac(purpose, &[named, whose], NEVER).hex();
        // Of digests the time of a comparison tells nothing that helps to guess.
        if Digest::of(mac.as_bytes()) == Digest::of(expected.as_bytes()) {
            Ok(named)
        } else {
            Err(Broken::Foreign)
        }
    }

    /// Says whether a text looks like a token for a purpose, whoever made it.
    pub(crate) fn is_for(token: &str, purpose: Purpose) -> bool {
        let rest = token.strip_prefix(purpose.prefix());
        rest.is_some_and(|rest| rest.starts_with('.'))
    }

    fn mac(&self, purpose: Purpose, about: &[&str], until: Timestamp) -> Digest {
        let until = until.0.to_be_bytes();
        // Each part is preceded by its length, so that no two lists share their bytes.
        let lengths: Vec<[u8; 8]> = about
            .iter()
            .map(|part| (part.len() as u64).to_be_bytes())
            .collect();
        let mut parts: Vec<&[u8]> = vec![purpose.prefix().as_bytes(), &until];
        for (length, part) in lengths.iter().zip(about) {
            parts.push(length);
            parts.push(part.as_bytes());
        }
        hmac(&self.0, &parts)
    }
}
