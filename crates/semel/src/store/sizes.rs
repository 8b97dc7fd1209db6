//! How many changes a store writes together.

use std::sync::atomic::{AtomicU64, Ordering};

/// The largest size of each class of groups; the last one is the largest that there is.
pub const SIZE_CLASSES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Counts groups by their size. A store adds to it with each commit, so it costs next to nothing.
#[derive(Debug, Default)]
pub struct Sizes {
    groups: [AtomicU64; SIZE_CLASSES.len()],
    items: AtomicU64,
}

impl Sizes {
    pub(crate) fn add(&self, size: usize) {
        let size = size as u64;
        let class = SIZE_CLASSES.partition_point(|largest| *largest < size);
        self.groups[class.min(SIZE_CLASSES.len() - 1)].fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(size, Ordering::Relaxed);
    }

    /// Returns how many groups of each class there were, and how many items all groups had.
    #[must_use]
    pub fn read(&self) -> ([u64; SIZE_CLASSES.len()], u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (self.groups.each_ref().map(read), read(&self.items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::group::GROUP_MAX;

    #[test]
    fn each_size_is_in_its_class_and_the_largest_is_the_last() {
        let sizes = Sizes::default();
        for size in [1, 2, 3, 4, 5, GROUP_MAX] {
            sizes.add(size);
        }
        let mut expected = [0; SIZE_CLASSES.len()];
        (expected[0], expected[1], expected[2], expected[3]) = (1, 1, 2, 1);
        expected[SIZE_CLASSES.len() - 1] = 1;
        assert_eq!(sizes.read(), (expected, 15 + GROUP_MAX as u64));
        assert_eq!(SIZE_CLASSES.last(), Some(&(GROUP_MAX as u64)));
    }
}
