//! One file per verb.

pub(crate) mod backup;
pub(crate) mod breaker;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod doctor;
pub(crate) mod ensure;
pub(crate) mod forget;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod proxy;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod token;
pub(crate) mod verify;
