//! How a token is written, and what of it may be seen.

use core::fmt;
use core::str::FromStr;

use super::letters;
use crate::digest::Digest;

/// What every token begins with, so that tools which look for secrets know one.
const PREFIX: &str = "semel";

/// The bytes of a secret: 256 bits cannot be guessed, so their plain digest can be stored.
const SECRET_BYTES: usize = 32;

/// The bytes of the sum.
const SUM_BYTES: usize = 4;

/// How long every token is: a longer text is not even looked through.
const LENGTH: usize = PREFIX.len()
    + 1
    + TokenId::LENGTH
    + 1
    + letters::length(SECRET_BYTES)
    + 1
    + letters::length(SUM_BYTES);

/// Says why a text is no token. It never shows the text, which may hold most of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It has not the shape of a whole token.
    #[error("this is no token, or only a part of one; a token is written `semel_ID_SECRET_SUM`")]
    Shape,
    /// Its last letters do not fit the others.
    #[error("the token was mistyped: its last letters do not fit the others")]
    Sum,
    /// It is not the id of a token.
    #[error(
        "the id of a token has {} lower-case letters and digits",
        TokenId::LENGTH
    )]
    Id,
}

/// Names a token; it is no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; Self::LENGTH]);

impl TokenId {
    /// How many letters and digits an id has: enough that two tokens never get the same by chance.
    pub const LENGTH: usize = 12;

    /// Makes an id of 60 random bits.
    #[must_use]
    pub fn from_random(bits: u64) -> Self {
        let mut rest = bits;
        Self(core::array::from_fn(|_| {
            let letter = letters::letter(rest);
            rest >>= 5;
            letter
        }))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // It holds letters and digits only.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let bytes = text.as_bytes().try_into().map_err(|_| TokenError::Id)?;
        let id = Self(bytes);
        let permitted = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        id.0.iter()
            .all(permitted)
            .then_some(id)
            .ok_or(TokenError::Id)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What only the holder of a token knows. It is compared by its digest and never shown.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// Takes 256 random bits.
    #[must_use]
    pub const fn new(random: [u8; SECRET_BYTES]) -> Self {
        Self(random)
    }

    /// Returns what a store may keep of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A token as its holder has it.
#[derive(Clone, Debug)]
pub struct Token {
    /// Which one it is.
    pub id: TokenId,
    /// What proves that it was given to whoever has it.
    pub secret: Secret,
}

impl Token {
    /// Writes the whole token, its secret included: for its holder, and nobody else.
    #[must_use]
    pub fn reveal(&self) -> String {
        let mut text = String::with_capacity(LENGTH);
        for part in [PREFIX, "_", self.id.as_str(), "_"] {
            text.push_str(part);
        }
        letters::write(&mut text, &self.secret.0);
        let sum = sum(&text);
        text.push('_');
        letters::write(&mut text, &sum);
        text
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        read(text).ok_or(TokenError::Shape)?
    }
}

/// Reads a token; `None` when it has another shape.
fn read(text: &str) -> Option<Result<Token, TokenError>> {
    if text.len() != LENGTH {
        return None;
    }
    let (before, last) = text.rsplit_once('_')?;
    let mut parts = before.split('_');
    let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
    if prefix != PREFIX || parts.next().is_some() {
        return None;
    }
    let token = Token {
        id: id.parse().ok()?,
        secret: Secret(letters::read(secret)?),
    };
    let fits = letters::read(last)? == sum(before);
    Some(if fits {
        Ok(token)
    } else {
        Err(TokenError::Sum)
    })
}

/// Sums up what stands before it. Any change within four bytes of a text changes its sum.
fn sum(text: &str) -> [u8; SUM_BYTES] {
    crc32fast::hash(text.as_bytes()).to_be_bytes()
}
