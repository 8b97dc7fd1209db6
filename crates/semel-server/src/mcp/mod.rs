//! The MCP gateway: any server's tools take effect once, whoever retries.
#![expect(dead_code, reason = "the parts come before the whole")]

mod edit;
mod message;
#[cfg(test)]
mod tests;
mod upstream;
