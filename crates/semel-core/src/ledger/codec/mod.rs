//! How records and commands are written as bytes.
//!
//! Small, versioned and strict: a decoder accepts exactly what an encoder can have written, so
//! that damaged bytes lead to an error and never to an execution.

mod breaker;
mod command;
mod entry;
mod fields;
mod record;
#[cfg(test)]
mod tests;

pub use command::{decode_command, encode_command};
pub use entry::{decode_entry, encode_entry};
pub use fields::DecodeError;
pub use record::{decode_record, encode_record};
