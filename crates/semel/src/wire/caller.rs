//! Who asks.

use semel_core::{Label, Namespace, Scope};

/// Who asks, as the server found out.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The wall that they are behind.
    pub namespace: Namespace,
    /// What they may do.
    pub scope: Scope,
    /// What their operations are marked with; a caller cannot choose it.
    pub principal: Option<Label>,
}
