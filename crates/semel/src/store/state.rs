//! Where this machine keeps what belongs to a store that lies elsewhere.

use std::path::PathBuf;

/// Returns a directory of this name with the user's other state. Notes and holds are this machine's:
/// each store has a directory of its own.
pub(crate) fn state_directory(name: &str) -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = named("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")))?;
    Some(state.join("semel").join(name))
}
