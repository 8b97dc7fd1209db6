//! Which keys the narrow table may hold: a fresh key is known to be absent without a read.
//!
//! Reading costs most when others write, as every commit empties the readers' page caches. So a
//! busy process keeps a few bits per key in memory. A filter that says "no" is right; one that says
//! "maybe" costs the read that it could not spare.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rusqlite::Connection;

use super::open;
use super::shared::{Shared, poisoned};

/// Bits per key: less than one fresh key in a hundred is read for nothing.
const BITS_PER_KEY: usize = 12;

/// Bits that are set for each key.
const BITS_SET: u32 = 6;

/// Words of a block; all bits of a key lie in one, so that a look touches one cache line.
const WORDS: usize = 8;

/// The keys of the first layer; each further layer holds twice as many.
const FIRST_LAYER: usize = 65_536;

/// Remembers keys in layers that are added as it grows.
#[derive(Debug)]
pub(super) struct Filter {
    /// Tells this filter from one that took its place while it was being filled.
    number: u64,
    layers: Vec<Layer>,
    /// Whether every key of the store has been added.
    pub(super) complete: bool,
}

#[derive(Debug)]
struct Layer {
    blocks: Vec<[u64; WORDS]>,
    left: usize,
}

impl Layer {
    fn new(keys: usize) -> Self {
        let blocks = (keys * BITS_PER_KEY).div_ceil(WORDS * 64).max(1);
        Self {
            blocks: vec![[0; WORDS]; blocks],
            left: keys,
        }
    }

    fn block(&self, slot: i64) -> usize {
        let high = slot.cast_unsigned() >> 32;
        usize::try_from((high * self.blocks.len() as u64) >> 32).unwrap_or(0)
    }
}

/// Chooses the bits of a key: the low half of its hash is as random as the high one, which chose
/// the block.
fn bits(slot: i64) -> impl Iterator<Item = (usize, u64)> {
    let spread = (slot.cast_unsigned() & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..BITS_SET).map(move |n| {
        let bit = (spread >> (n * 9 + 1)) & 0x1ff;
        (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
    })
}

impl Filter {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            layers: vec![Layer::new(FIRST_LAYER)],
            complete: false,
        }
    }

    pub(super) fn add(&mut self, slot: i64) {
        if self.layers.last().is_none_or(|layer| layer.left == 0) {
            self.layers
                .push(Layer::new(FIRST_LAYER << self.layers.len()));
        }
        if let Some(layer) = self.layers.last_mut() {
            let block = layer.block(slot);
            for (word, bit) in bits(slot) {
                layer.blocks[block][word] |= bit;
            }
            layer.left -= 1;
        }
    }

    /// Tells this filter from any other.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Says whether the key may have been added; `false` is certain.
    pub(super) fn may_hold(&self, slot: i64) -> bool {
        !self.complete
            || self.layers.iter().any(|layer| {
                let block = &layer.blocks[layer.block(slot)];
                bits(slot).all(|(word, bit)| block[word] & bit != 0)
            })
    }
}

/// Slots that are read at once while a filter is filled.
const SLICE: i64 = 16_384;

/// Begins a filter and fills it beside the work, from a connection of its own.
///
/// From now on the tail adds every new key itself, so only what the table holds is to be read.
pub(super) fn fill(shared: &Arc<Shared>, path: PathBuf) {
    let number = shared.tail.write().unwrap_or_else(poisoned).start_filter();
    let weak = Arc::downgrade(shared);
    let filler = std::thread::Builder::new().name("semel-filter".to_owned());
    let started = filler.spawn(move || {
        let filled = open::connect(&path, open::Role::Read)
            .is_ok_and(|connection| read_all(&weak, number, &connection));
        with(&weak, number, |filter| filter.complete = filled);
    });
    // Without it every fresh key is read, which is slower and as true.
    drop(started);
}

/// Works on a filter, if it is still the one in use.
fn with(shared: &Weak<Shared>, number: u64, work: impl FnOnce(&mut Filter)) -> bool {
    let Some(shared) = shared.upgrade() else {
        return false;
    };
    let mut tail = shared.tail.write().unwrap_or_else(poisoned);
    match &mut tail.filter {
        Some(filter) if filter.number == number => {
            work(filter);
            true
        }
        Some(_) | None => false,
    }
}

/// Adds every slot of the table; `false` when that could not be done, or nobody wants it any more.
fn read_all(shared: &Weak<Shared>, number: u64, connection: &Connection) -> bool {
    let mut from = i64::MIN;
    loop {
        let Ok(slice) = slots_from(connection, from) else {
            return false;
        };
        let wanted = with(shared, number, |filter| {
            slice.iter().for_each(|slot| filter.add(*slot))
        });
        if !wanted {
            return false;
        }
        match slice.last().and_then(|last| last.checked_add(1)) {
            Some(next) => from = next,
            None => return true,
        }
    }
}

fn slots_from(connection: &Connection, from: i64) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached("SELECT slot FROM slots WHERE slot >= ?1 ORDER BY slot LIMIT ?2")?
        .query_map((from, SLICE), |row| row.get(0))?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes well-spread slots, as a hash would.
    fn slots(seed: u64) -> impl Iterator<Item = i64> {
        (0..).scan(seed, |state, _: u64| {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            Some(((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)).cast_signed())
        })
    }

    #[test]
    fn what_was_added_is_never_denied_across_layers() {
        let mut filter = Filter::new();
        slots(1).take(300_000).for_each(|slot| filter.add(slot));
        filter.complete = true;
        assert!(filter.layers.len() >= 3);
        assert!(slots(1).take(300_000).all(|slot| filter.may_hold(slot)));
    }

    #[test]
    fn few_others_are_mistaken_for_what_was_added() {
        let mut filter = Filter::new();
        slots(1).take(300_000).for_each(|slot| filter.add(slot));
        filter.complete = true;
        let mistaken = slots(2)
            .take(100_000)
            .filter(|slot| filter.may_hold(*slot))
            .count();
        assert!(mistaken < 4_000, "{mistaken} of 100000");
    }

    #[test]
    fn an_incomplete_filter_denies_nothing() {
        assert!(slots(3).take(100).all(|slot| Filter::new().may_hold(slot)));
    }
}
