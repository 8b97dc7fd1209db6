//! Locks that are held for a moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is changed in single steps, so that whoever panicked beside it left nothing half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
