//! Ledger keys of the doors that scope their callers' keys.
//!
//! ```text
//! mcp / 0c52a1d5f1e0b7a3 / order-7            an explicit key
//! mcp / 0c52a1d5f1e0b7a3 / call:toolu_01AbC   a harness's call id
//! mcp / 0c52a1d5f1e0b7a3 / business:["charge",{"/order_id":"7"}]
//! mcp / 0c52a1d5f1e0b7a3 / f1:9f86…0a08#2     the second call of a fingerprint
//! ```
//!
//! (Without the spaces.) The last part is the client's own text wherever that cannot be taken for
//! anything else, and its SHA-256 in 64 hexadecimal digits otherwise: where the whole would pass
//! 255 bytes, where it holds what a [`Key`] does not allow, and where it looks like one of ours:
//! like a digest, like a numbered repeat (`order-7#2`), or like a text with one of our prefixes.
//! So two client keys share a ledger key only if SHA-256 gives them one digest.

use core::fmt;
use core::num::NonZeroU32;
use std::sync::Arc;

use super::pointer::BusinessKey;
use crate::digest::Digest;
use crate::fingerprint::Fingerprint;
use crate::text::{Key, Note, SourceName, TextError};
use crate::webhook::SenderId;

/// A door that scopes its callers' keys; the others use keys as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// The HTTP proxy.
    Proxy,
    /// The MCP gateway.
    Mcp,
    /// The inbox for webhooks.
    Inbox,
}

impl Door {
    /// Returns the word that users see, and that ledger keys begin with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Mcp => "mcp",
            Self::Inbox => "inbox",
        }
    }

    /// Reads the word that users see.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let doors = [Self::Proxy, Self::Mcp, Self::Inbox];
        doors.into_iter().find(|door| door.as_str() == word)
    }
}

/// Says where a key or a fingerprint means what it says: calls of two scopes never meet.
///
/// The connection is no part of it, as retries come on new ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// On whose behalf; `None` is anonymous. Not a token that is refreshed between two attempts.
    pub principal: Option<String>,
    /// The upstream or route.
    pub target: String,
    /// A hint which conversation the call belongs to.
    pub conversation: Option<String>,
}

/// Separates the scopes of this scheme from every other use of SHA-256.
const SCHEME: &[u8] = b"semel-s1\0";

impl Scope {
    /// Returns the 16 hexadecimal digits that stand for the scope in ledger keys.
    ///
    /// Each part is preceded by whether it is there and by its length, so that no two scopes share
    /// the hashed bytes.
    #[must_use]
    pub fn tag(&self) -> String {
        let parts = [
            self.principal.as_deref(),
            Some(self.target.as_str()),
            self.conversation.as_deref(),
        ];
        let mut bytes = SCHEME.to_vec();
        for part in parts {
            match part {
                Some(text) => {
                    bytes.push(1);
                    bytes.extend((text.len() as u64).to_be_bytes());
                    bytes.extend(text.as_bytes());
                }
                None => bytes.push(0),
            }
        }
        let mut hex = Digest::of(&bytes).hex();
        hex.truncate(16);
        hex
    }
}

/// A text by which a client names a call: 1 to 1,024 bytes of any characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientText(Arc<str>);

impl ClientText {
    /// The longest text, in bytes: what a record can show of it.
    pub const MAX_BYTES: usize = Note::MAX_BYTES;

    /// Checks the length and takes the text.
    ///
    /// # Errors
    /// Refuses an empty text, and one of more than [`ClientText::MAX_BYTES`].
    pub fn new(text: &str) -> Result<Self, TextError> {
        let what = "a client's key";
        match text.len() {
            0 => Err(TextError::Empty { what }),
            1..=Self::MAX_BYTES => Ok(Self(Arc::from(text))),
            bytes => Err(TextError::TooLong {
                what,
                bytes,
                limit: Self::MAX_BYTES,
            }),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClientText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Says what a call was recognised by, the most telling first.
///
/// Never an identity, whatever a door finds in a request: JSON-RPC ids and progress tokens
/// (counters of one connection), connection and session ids, span ids (they change with each
/// retry), and keys that a model filled in (it fills in a new one for the same intent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A key that the caller gave: its program, not its model.
    Explicit,
    /// A harness's call id that stays the same across its retries and is unique in the scope.
    CallId,
    /// Values of the input that name the business at hand.
    Business,
    /// Name and input, and what became of the identical calls before.
    Fingerprint,
}

impl Source {
    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::CallId => "call_id",
            Self::Business => "business",
            Self::Fingerprint => "fingerprint",
        }
    }

    /// Reads back what the key of an operation was made from; `None` for a key that no door has made.
    ///
    /// That is what the first call was recognised by. A later one may have been recognised otherwise, as by
    /// a call id that was remembered beside the operation.
    #[must_use]
    pub fn of(key: &Key) -> Option<Self> {
        let (_, body) = split(key)?;
        Some(if body.starts_with(CALL_ID) {
            Self::CallId
        } else if body.starts_with(BUSINESS) {
            Self::Business
        } else if is_fingerprint(body) {
            Self::Fingerprint
        } else {
            Self::Explicit
        })
    }
}

/// What an operation is called within its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientKey {
    /// See [`Source::Explicit`].
    Explicit(ClientText),
    /// See [`Source::CallId`].
    CallId(ClientText),
    /// See [`Source::Business`].
    Business(BusinessKey),
    /// See [`Source::Fingerprint`].
    Fingerprint(Fingerprint),
}

const CALL_ID: &str = "call:";
const BUSINESS: &str = "business:";

impl ClientKey {
    /// Returns what it was taken from.
    #[must_use]
    pub const fn source(&self) -> Source {
        match self {
            Self::Explicit(_) => Source::Explicit,
            Self::CallId(_) => Source::CallId,
            Self::Business(_) => Source::Business,
            Self::Fingerprint(_) => Source::Fingerprint,
        }
    }

    /// Returns the last part of a ledger key, of at most `room` bytes.
    fn body(&self, room: usize) -> String {
        let (prefix, text) = match self {
            Self::Explicit(text) => ("", text.as_str()),
            Self::CallId(text) => (CALL_ID, text.as_str()),
            Self::Business(key) => (BUSINESS, key.as_str()),
            Self::Fingerprint(fingerprint) => return fingerprint.to_string(),
        };
        let is_own = !prefix.is_empty() || !is_prefixed(text);
        let shown = Some(text).filter(|_| is_own);
        written(prefix, shown, text.as_bytes(), room)
    }
}

/// Writes what a client calls something, where that may stand for itself, else its digest.
fn written(prefix: &str, shown: Option<&str>, bytes: &[u8], room: usize) -> String {
    let fits = |text: &&str| prefix.len() + text.len() <= room;
    match shown.filter(|text| fits(text) && is_plain(text)) {
        Some(text) => format!("{prefix}{text}"),
        None => format!("{prefix}{}", Digest::of(bytes).hex()),
    }
}

/// Says whether a text may stand for itself: it is a key, no digest, and ends in no number of ours.
fn is_plain(text: &str) -> bool {
    let is_numbered = without_number(text).len() < text.len();
    !is_digest(text) && !is_numbered && Key::new(text).is_ok()
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns a text without the number of a repeat (`#2`) at its end.
fn without_number(text: &str) -> &str {
    let rest = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_numbered = rest.len() < text.len();
    rest.strip_suffix('#')
        .filter(|_| is_numbered)
        .unwrap_or(text)
}

/// Says whether a text begins like a derived one; all later schemes of fingerprints are covered.
fn is_prefixed(text: &str) -> bool {
    text.starts_with(CALL_ID) || text.starts_with(BUSINESS) || is_fingerprint(text)
}

fn is_fingerprint(text: &str) -> bool {
    text.strip_prefix('f')
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_digit()))
}

/// Says whether the last part of a ledger key names an operation that was recognised by what became
/// of the calls before it: by its fingerprint, or by a call id that was new.
pub(super) fn is_named_by_delivery(body: &str) -> bool {
    body.starts_with(CALL_ID) || is_fingerprint(body)
}

/// Returns what all ledger keys of a door and a scope begin with.
pub(super) fn prefix(door: Door, scope: &Scope) -> String {
    format!("{}/{}/", door.as_str(), scope.tag())
}

/// Splits a ledger key after door and scope; `None` where no door has made it.
pub(super) fn split(key: &Key) -> Option<(&str, &str)> {
    let text = key.as_str();
    let (door, rest) = text.split_once('/')?;
    let (tag, body) = rest.split_once('/')?;
    let is_tag = tag.len() == 16 && tag.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    Door::parse(door).filter(|_| is_tag)?;
    Some((&text[..text.len() - body.len()], body))
}

/// Returns the client's own text, or its digest, of which a door made a key; a fingerprint is no text.
fn origin(key: &Key) -> Option<&str> {
    let (_, body) = split(key).or_else(|| split_inbox(key))?;
    let prefixes = [CALL_ID, BUSINESS];
    let named = prefixes.iter().find_map(|prefix| body.strip_prefix(prefix));
    let is_named = named.is_some() || !is_fingerprint(body);
    is_named.then(|| without_number(named.unwrap_or(body)))
}

/// Returns what the client calls an operation, where the ledger key shows it; `None` where the key was made
/// from a digest or a fingerprint, and where no door has made it.
#[must_use]
pub fn client_text(key: &Key) -> Option<&str> {
    origin(key).filter(|text| !is_digest(text))
}

/// Says whether a door made a ledger key from this text of a client.
#[must_use]
pub fn is_made_from(key: &Key, text: &str) -> bool {
    origin(key).is_some_and(|origin| {
        if is_digest(origin) {
            origin == Digest::of(text.as_bytes()).hex()
        } else {
            origin == text
        }
    })
}

/// Makes the ledger key of an operation: fixed for ever, as changing it would run again what is
/// stored under the old one.
///
/// # Panics
/// Never: the result is printable and at most 255 bytes long whatever the client sent.
#[must_use]
pub fn ledger_key(door: Door, scope: &Scope, client_key: &ClientKey, occurrence: u32) -> Key {
    let prefix = prefix(door, scope);
    let number = match occurrence {
        0 | 1 => String::new(),
        n => format!("#{n}"),
    };
    let body = client_key.body(Key::MAX_BYTES - prefix.len() - number.len());
    Key::new(&format!("{prefix}{body}{number}"))
        .expect("door, digits and a body that is a key or a digest make a key")
}

/// Splits the ledger key of a webhook after its source; `None` where it is none.
fn split_inbox(key: &Key) -> Option<(&str, &str)> {
    let (door, rest) = key.as_str().split_once('/')?;
    let (source, body) = rest.split_once('/')?;
    let is_ours = Door::parse(door) == Some(Door::Inbox) && SourceName::new(source).is_ok();
    is_ours.then(|| (&key.as_str()[..key.as_str().len() - body.len()], body))
}

/// Returns what all ledger keys of a source of webhooks begin with.
#[must_use]
pub fn inbox_prefix(source: &SourceName) -> String {
    format!("{}/{source}/", Door::Inbox.as_str())
}

/// Makes the ledger key of a webhook, `inbox/stripe/evt_1`: fixed for ever, as [`ledger_key`] is.
///
/// A source is not hashed, as the names of other scopes are: it is short, it has no separator in it, and whoever reads
/// the key wants to know whose it is. An id that a key cannot hold, and one that looks like something of ours, is
/// there as its digest.
///
/// # Panics
/// Never: the result is printable and at most 255 bytes long whatever the sender sent.
#[must_use]
pub fn inbox_key(source: &SourceName, id: &SenderId) -> Key {
    let prefix = inbox_prefix(source);
    let text = core::str::from_utf8(id.as_bytes()).ok();
    let shown = text.filter(|text| !is_prefixed(text));
    let body = written("", shown, id.as_bytes(), Key::MAX_BYTES - prefix.len());
    Key::new(&format!("{prefix}{body}"))
        .expect("door, source and a body that is a key or a digest make a key")
}

/// Makes the key under which a webhook is handed on once more, `inbox/stripe/evt_1#2`; `None` for a key of anything else.
#[must_use]
pub fn inbox_repeat(key: &Key, occurrence: NonZeroU32) -> Option<Key> {
    let (prefix, body) = split_inbox(key)?;
    let (body, number) = (without_number(body), format!("#{occurrence}"));
    let key = Key::new(&format!("{prefix}{body}{number}"));
    // A body that leaves no room for the number is there as its digest.
    let digest = || Key::new(&format!("{prefix}{}{number}", Digest::of(body.as_bytes())));
    key.or_else(|_| digest()).ok()
}
