//! What leads to a target. Tests bring their own.

use std::future::Future;

use axum::body::Bytes;
use tokio::time::Instant;

use super::parcel::Parcel;
use crate::outbound::Lost;

/// Leads to one target.
pub(super) trait Transport: Send + Sync + 'static {
    /// A connection to it, for one request.
    type Connection: Connection;

    /// Opens a connection. Nothing was sent when this fails.
    fn reach(&self, until: Instant) -> impl Future<Output = Result<Self::Connection, Lost>> + Send;

    /// Returns where it leads, without what may be secret.
    fn place(&self) -> String;
}

/// A connection to a target.
pub(super) trait Connection: Send + 'static {
    /// Sends a request and reads its answer, once and to nowhere else.
    fn send(
        self,
        parcel: Parcel,
        until: Instant,
    ) -> impl Future<Output = Result<Answer, Lost>> + Send;
}

/// What a target answered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `Retry-After`, as it came.
    pub(super) retry_after: Option<String>,
    /// `Semel-Effect`, as it came.
    pub(super) effect: Option<String>,
    pub(super) body: Body,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Whole(Bytes),
    /// It is longer than what is kept.
    TooLong,
    /// It ended before its end, and this is why.
    Cut(String),
}
