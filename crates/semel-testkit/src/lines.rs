//! Lines of tasks by their definition: which of all records may be taken next.

use std::collections::BTreeMap;

use semel::store::{Place, Waiting};
use semel_core::ledger::Record;
use semel_core::queue::{QueueHash, Spot, Standing};

/// Finds the tasks that wait and are due: the highest priority first, of each priority one of every lane in turn,
/// beginning behind the lane that had its turn last, and of each lane the oldest.
pub(crate) fn waiting<'a>(
    rows: impl Iterator<Item = (Place, &'a Record)>,
    ask: &Waiting,
) -> Vec<Place> {
    if ask.taken {
        return in_hand(rows, ask);
    }
    let mut ranks: BTreeMap<i16, BTreeMap<(bool, i64), Vec<_>>> = BTreeMap::new();
    for (place, record) in rows {
        let Some(spot) = Spot::of(record).filter(|spot| spot.queue == ask.queue) else {
            continue;
        };
        let Standing::Waiting { rank, at, until } = spot.standing else {
            continue;
        };
        if at <= ask.now && until.is_none_or(|until| until > ask.now) {
            let lane = spot.lane.cast_signed();
            let turn = (lane <= ask.after_lane.cast_signed(), lane);
            let lanes = ranks.entry(rank).or_default();
            lanes.entry(turn).or_default().push((at, place));
        }
    }
    let mut found = vec![];
    for lanes in ranks.into_values() {
        found.extend(in_turn(lanes.into_values(), ask.skip));
    }
    found.truncate(ask.limit);
    found
}

/// Finds the tasks that workers have: by lane, and of each lane the oldest.
fn in_hand<'a>(rows: impl Iterator<Item = (Place, &'a Record)>, ask: &Waiting) -> Vec<Place> {
    let spots = rows.filter_map(|(place, record)| Some((Spot::of(record)?, place)));
    let taken =
        spots.filter(|(spot, _)| spot.queue == ask.queue && spot.standing == Standing::Taken);
    let mut taken: Vec<_> = taken
        .map(|(spot, place)| (spot.lane.cast_signed(), place))
        .collect();
    taken.sort_unstable();
    let taken = taken.into_iter().map(|(_, place)| place);
    taken.skip(ask.skip).take(ask.limit).collect()
}

fn in_turn<T: Ord>(lanes: impl Iterator<Item = Vec<(T, Place)>>, skip: usize) -> Vec<Place> {
    let mut lanes: Vec<_> = lanes
        .map(|mut lane| {
            lane.sort();
            lane.into_iter().skip(skip)
        })
        .collect();
    let mut found = vec![];
    loop {
        let before = found.len();
        found.extend(lanes.iter_mut().filter_map(Iterator::next));
        if found.len() == before {
            return found.into_iter().map(|(_, place)| place).collect();
        }
    }
}

/// Counts the tasks that workers have.
pub(crate) fn taken<'a>(
    records: impl Iterator<Item = &'a Record>,
    queue: QueueHash,
    lane: Option<u64>,
    limit: usize,
) -> usize {
    let spots = records.filter_map(Spot::of);
    let taken = spots.filter(|spot| {
        spot.queue == queue
            && spot.standing == Standing::Taken
            && lane.is_none_or(|lane| lane == spot.lane)
    });
    taken.take(limit).count()
}
