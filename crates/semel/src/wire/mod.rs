//! What a remote engine and its server say to each other.
//!
//! A client keeps its permits, its renewals and its waiting; the rules run where the store is. So it
//! sends each command as it is, in the bytes of the core's codec, and hears what the rules said and what
//! is stored. The format is private: a client and a server of the same version understand each other, and
//! a newer message is refused as one.
//!
//! `answer` is the server's side, without HTTP: it keeps callers behind their wall. A record of another
//! namespace is answered as if it were not there.

mod answer;
mod attempt_ids;
mod call;
mod caller;
mod fields;
mod reply;
#[cfg(test)]
mod tests;
mod tokens;
mod wall;

pub use self::answer::{Message, answer};
pub use self::call::{Apply, Call};
pub use self::caller::Caller;
pub use self::fields::Malformed;
pub use self::reply::{Answer, Hello, Part, Said};
pub use self::tokens::TokenCall;
pub use crate::engine::{Brought, Bytes, Subject};

use crate::store::PAYLOAD_MAX;

/// The format of messages that is written and understood here.
pub const FORMAT: u8 = 1;

/// The format of a list by what clients call their operations. It is a later one: a server that does not know
/// that filter refuses the call, and does not list what was not asked for.
pub const FORMAT_CALLED: u8 = 2;

/// The format of what has to do with the tasks of queues. A server that knows none refuses it.
pub const FORMAT_TASKS: u8 = 3;

/// The format of what has to do with tokens. A server that makes none for callers refuses it.
pub const FORMAT_TOKENS: u8 = 4;

/// The format of a call for the code of a caller's credentials. A server that has no key for it refuses it.
pub const FORMAT_PRINCIPALS: u8 = 5;

/// The media type of a message.
pub const MEDIA_TYPE: &str = "application/vnd.semel.engine";

/// Where a server takes calls.
pub const PATH: &str = "/v1/engine";

/// The most bytes that a message may have: the largest payload, and what is around it.
pub const MESSAGE_MAX: usize = PAYLOAD_MAX + (1 << 20);

/// The most bytes of records, entries, pieces or payload that one answer brings; the next one goes on.
/// At least one of them is always in it.
pub(crate) const PART_MAX: usize = 8 << 20;
