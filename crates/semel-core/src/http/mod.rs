//! Requests over HTTP that take effect once: what is pure about it.
//!
//! Whose request it is ([`credentials`]), which key it has ([`key_field`], [`body_key`]), whether it is protected ([`method`]), what makes two requests the same ([`request`], [`body`]), what an
//! upstream's answer means ([`status`], [`pushed`](mod@pushed)), when it wants to be asked again ([`retry_after`]), where it is looked up whether an effect happened ([`lookup`]), who can read an
//! answer that was coded for another ([`coding`]), for which server a request is ([`host`]), whose web page sends it ([`site`]), which requests are too old to be carried out ([`dated`]), how all of
//! that is chosen together ([`profile`]), and what an answer cost ([`usage`], [`price`]).

pub mod body;
pub mod body_key;
pub mod coding;
pub mod credentials;
pub mod dated;
pub mod events;
pub mod host;
pub mod key_field;
pub mod lookup;
pub mod method;
pub mod price;
pub mod profile;
pub mod pushed;
pub mod request;
pub mod retry_after;
mod segments;
pub mod site;
pub mod status;
#[cfg(test)]
mod tests;
pub mod usage;

pub use body::{BodyDigest, BodyHasher, Compare, Members, VALUE_MAX, is_json};
pub use body_key::{BodyKeyError, read_body_key};
pub use credentials::{CookiePattern, CredentialError, CredentialRule, CredentialSource};
pub use events::LastEvent;
pub use host::{Host, HostError};
pub use key_field::{KeyFieldError, Spelling, read_key, write_key};
pub use lookup::{Lookup, Place, PlaceError, find_place};
pub use method::{METHOD_OVERRIDES, MethodKind, Protection, is_safe};
pub use price::{Price, Rate};
pub use profile::{AfterExpiry, Extent, Profile, Refusals};
pub use pushed::{Pushed, pushed};
pub use request::Request;
pub use retry_after::read_retry_after;
pub use status::{Meaning, Statuses, effect, is_well, would};
pub use usage::Usage;
