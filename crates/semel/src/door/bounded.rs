//! A map that forgets its oldest entries instead of growing.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Bounded<K, V> {
    limit: usize,
    values: HashMap<K, V>,
    /// The keys, the oldest first.
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            values: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    /// Remembers a value; one that is known already keeps its age.
    pub(super) fn put(&mut self, key: K, value: V) {
        if self.values.insert(key.clone(), value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut map = Bounded::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            map.put(key, value);
        }
        assert_eq!(map.get(&1), None);
        assert_eq!((map.get(&2), map.get(&3)), (Some(&'b'), Some(&'d')));
        assert_eq!((map.values.len(), map.order.len()), (2, 2));
    }
}
