//! The MCP gateway: any server's tools take effect once, whoever retries.
#![expect(dead_code, reason = "the parts come before the whole")]

mod edit;
mod lines;
mod message;
mod sse;
#[cfg(test)]
mod tests;
mod upstream;
