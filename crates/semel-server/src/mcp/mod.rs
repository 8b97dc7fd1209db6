//! The MCP gateway: any server's tools take effect once, whoever retries.
#![expect(dead_code, reason = "the parts come before the whole")]
#![cfg_attr(
    not(test),
    expect(unused_imports, reason = "the parts come before the whole")
)]

mod answer;
mod ask;
mod edit;
mod http;
mod lines;
mod listed;
mod message;
mod policy;
mod seal;
mod sse;
#[cfg(test)]
mod tests;
mod upstream;
mod verdict;
mod verify;

pub use self::listed::{Annotations, Listed};
pub use self::policy::{Cancel, MetaPath, ToolPolicy, UpstreamPolicy, Why};
pub use self::verify::{Verify, VerifyError};
