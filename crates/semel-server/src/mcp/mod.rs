//! The MCP gateway: any server's tools take effect once, whoever retries.
#![expect(dead_code, reason = "the parts come before the whole")]

mod message;
mod upstream;
