//! Slots that collide, slices of any size, and the tail, with hashes that were made for it.

use std::collections::{BTreeMap, BTreeSet};

use semel_core::ledger::StateKind;

use super::super::schema;
use super::*;

fn database() -> Connection {
    let mut connection = Connection::open_in_memory().expect("SQLite opens");
    schema::migrate(&mut connection, None).expect("the tables are made");
    connection
}

/// A hash of this slot; real ones that share a slot take 2^32 tries to find.
fn hash(slot: i64, rest: u64) -> Hash {
    Hash((u128::from(slot.cast_unsigned()) << 64) | u128::from(rest))
}

/// Finds a row as a reader does: in the slot, or beside it when the slot is another's.
fn found(connection: &Connection, hash: Hash, owners: &BTreeMap<u64, Hash>) -> Option<u64> {
    let id = connection
        .query_row(
            "SELECT id FROM slots WHERE slot = ?1",
            [hash.slot()],
            |row| row.get::<_, i64>(0),
        )
        .optional()
        .expect("the slot reads")?
        .cast_unsigned();
    if owners.get(&id) == Some(&hash) {
        return Some(id);
    }
    beside(connection, hash).expect("what is beside it reads")
}

fn insert(connection: &Connection, hash: Hash, id: u64) -> rusqlite::Result<()> {
    insert_all(connection, [(hash, id)])
}

fn count(connection: &Connection, table: &str) -> u64 {
    let count: i64 = connection
        .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
            row.get(0)
        })
        .expect("the table counts");
    count.cast_unsigned()
}

#[test]
fn the_slot_is_the_first_quarter_of_the_key_s_hash() {
    for slot in [0, 1, -1, i64::MIN, i64::MAX] {
        assert_eq!(hash(slot, u64::MAX).slot(), slot);
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(-2i64).to_be_bytes());
    bytes[15] = 7;
    bytes[16] = 9; // Beyond the half that is used.
    assert_eq!(
        Hash::of(&KeyHash(semel_core::Digest(bytes))),
        hash(-2, 7),
        "the first half, the highest byte first"
    );
}

#[test]
fn rows_that_share_a_slot_are_all_found() {
    let connection = database();
    let owners: BTreeMap<u64, Hash> = (1..=4).map(|id| (id, hash(-5, id * 10))).collect();
    for _ in 0..2 {
        // Put in twice, which changes nothing.
        for (id, hash) in &owners {
            insert(&connection, *hash, *id).expect("it is put in");
        }
        for (id, hash) in &owners {
            assert_eq!(found(&connection, *hash, &owners), Some(*id));
        }
        assert_eq!(found(&connection, hash(-5, 99), &owners), None);
        assert_eq!(
            (
                count(&connection, "slots"),
                count(&connection, "collisions")
            ),
            (1, 3)
        );
    }
}

#[test]
fn the_slot_of_a_dropped_row_goes_to_one_beside_it() {
    let connection = database();
    let mut owners: BTreeMap<u64, Hash> = (1..=4).map(|id| (id, hash(7, id))).collect();
    for (id, hash) in &owners {
        insert(&connection, *hash, *id).expect("it is put in");
    }
    for id in [1, 3, 2, 4] {
        let gone = owners.remove(&id).expect("it was there");
        remove(&connection, gone, id).expect("it is taken out");
        assert_eq!(found(&connection, gone, &owners), None);
        for (id, hash) in &owners {
            assert_eq!(found(&connection, *hash, &owners), Some(*id));
        }
    }
    assert_eq!(
        (
            count(&connection, "slots"),
            count(&connection, "collisions")
        ),
        (0, 0)
    );
}

#[test]
fn dropping_what_is_not_there_changes_nothing() {
    let connection = database();
    let owners = BTreeMap::from([(1, hash(7, 1)), (2, hash(7, 2))]);
    for (id, hash) in &owners {
        insert(&connection, *hash, *id).expect("it is put in");
    }
    // Another row, another slot, and a row under another's hash.
    for (hash, id) in [(hash(7, 3), 3), (hash(8, 1), 1), (hash(7, 1), 9)] {
        remove(&connection, hash, id).expect("it is answered");
    }
    for (id, hash) in &owners {
        assert_eq!(found(&connection, *hash, &owners), Some(*id));
    }
}

/// A generator that is the same for the same seed; the tests need no better one.
fn chance(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) % below
}

#[test]
fn any_sequence_of_rows_and_drops_leaves_exactly_the_living_ones() {
    for seed in 0..30 {
        let connection = database();
        let mut state = seed;
        let mut owners: BTreeMap<u64, Hash> = BTreeMap::new();
        for id in 1..=80 {
            // Three slots and four hashes each, so that nearly everything collides.
            let one = hash(
                chance(&mut state, 3).cast_signed() - 1,
                chance(&mut state, 4),
            );
            let living = owners.iter().find(|(_, other)| **other == one);
            if let Some(id) = living.map(|(id, _)| *id) {
                remove(&connection, one, id).expect("it is taken out");
                owners.remove(&id);
            } else {
                insert(&connection, one, id).expect("it is put in");
                owners.insert(id, one);
            }
            for (id, hash) in &owners {
                assert_eq!(found(&connection, *hash, &owners), Some(*id), "{seed}");
            }
            let slots: BTreeSet<i64> = owners.values().map(|hash| hash.slot()).collect();
            assert_eq!(count(&connection, "slots"), slots.len() as u64, "{seed}");
            let beside = (owners.len() - slots.len()) as u64;
            assert_eq!(count(&connection, "collisions"), beside, "{seed}");
        }
    }
}

/// Rows as a store holds them: every third one is open.
fn rows(connection: &Connection, count: u64) -> BTreeMap<u64, Hash> {
    let mut state = 1;
    (1..=count)
        .map(|id| {
            let kind = if id % 3 == 0 {
                StateKind::Running
            } else {
                StateKind::Succeeded
            };
            connection
                .execute(
                    "INSERT INTO operations (id, version, state, record)
                     VALUES (?1, 1, ?2, x'')",
                    (id.cast_signed(), kind.code()),
                )
                .expect("the row is stored");
            // A quarter of them share a slot with others.
            let slot = if id % 4 == 0 {
                5
            } else {
                chance(&mut state, u64::MAX).cast_signed()
            };
            (id, hash(slot, id))
        })
        .collect()
}

fn tail_of(rows: &BTreeMap<u64, Hash>, fold: &Fold) -> RwLock<Tail> {
    let mut tail = Tail::new(fold);
    for (id, hash) in rows {
        tail.add(*hash, *id);
        tail.known_through = *id;
    }
    RwLock::new(tail)
}

fn all_in(connection: &Connection, owners: &BTreeMap<u64, Hash>) {
    for (id, hash) in owners {
        assert_eq!(found(connection, *hash, owners), Some(*id));
    }
    let open = owners.keys().filter(|id| *id % 3 == 0).count();
    assert_eq!(count(connection, "open_operations"), open as u64);
}

#[test]
fn slices_of_any_size_put_every_row_in() {
    for budget in [1, 2, 3, 7, 50, 1_000] {
        let connection = database();
        let owners = rows(&connection, 100);
        let mut folder = Folder::new(Fold::load(&connection).expect("it loads"));
        let tail = tail_of(&owners, &folder.fold);
        let mut slices = 0;
        while folder.fold.indexed_through < 100 {
            folder.fold = folder.slice(&connection, &tail, budget).expect("a slice");
            slices += 1;
            assert!(
                slices <= 100 / budget + 2,
                "slices of {budget} do not get on"
            );
        }
        assert_eq!(Fold::load(&connection).expect("it loads"), folder.fold);
        all_in(&connection, &owners);
    }
}

#[test]
fn another_process_goes_on_where_one_stopped() {
    let connection = database();
    let owners = rows(&connection, 60);
    for _ in 0..40 {
        // Each slice by a process that has just been opened.
        let fold = Fold::load(&connection).expect("it loads");
        if fold.indexed_through == 60 {
            break;
        }
        let tail = tail_of(&owners, &fold);
        Folder::new(fold)
            .slice(&connection, &tail, 20)
            .expect("a slice");
    }
    all_in(&connection, &owners);
    assert_eq!(
        Fold::load(&connection).expect("it loads").indexed_through,
        60
    );
}

#[test]
fn a_batch_that_is_complete_is_not_put_in_again() {
    let connection = database();
    let mut owners = rows(&connection, 30);
    let mut folder = Folder::new(Fold::load(&connection).expect("it loads"));
    let tail = tail_of(&owners, &folder.fold);
    folder.fold = folder.slice(&connection, &tail, 1_000).expect("a slice");
    // In the same transaction a row is dropped; the tail hears of the slice after the commit.
    let gone = owners.remove(&8).expect("it was there");
    remove(&connection, gone, 8).expect("it is taken out");
    folder.fold = folder.slice(&connection, &tail, 1_000).expect("a slice");
    assert_eq!(found(&connection, gone, &owners), None);
    all_in(&connection, &owners);
}

#[test]
fn the_next_batch_does_not_bring_back_what_was_dropped_after_the_last() {
    let connection = database();
    let mut owners = rows(&connection, 30);
    let mut folder = Folder::new(Fold::load(&connection).expect("it loads"));
    // A batch of twenty is begun, ten rows come, and then all happens in one transaction.
    let first: BTreeMap<u64, Hash> = owners.range(..=20).map(|(id, it)| (*id, *it)).collect();
    let tail = tail_of(&first, &folder.fold);
    folder.fold = folder.slice(&connection, &tail, 3).expect("a slice");
    {
        let mut tail = tail.write().expect("no panic");
        tail.advance(&folder.fold);
        for (id, hash) in owners.range(21..) {
            tail.add(*hash, *id);
            tail.known_through = *id;
        }
    }
    while folder.fold.indexed_through < 20 {
        folder.fold = folder.slice(&connection, &tail, 1_000).expect("a slice");
    }
    let gone = owners.remove(&8).expect("it was there");
    remove(&connection, gone, 8).expect("it is taken out");
    while folder.fold.indexed_through < 30 {
        folder.fold = folder.slice(&connection, &tail, 1_000).expect("a slice");
    }
    assert_eq!(found(&connection, gone, &owners), None);
    all_in(&connection, &owners);
}

#[test]
fn the_tail_finds_rows_before_while_and_after_they_are_put_in() {
    let start = Fold {
        indexed_through: 0,
        batch_end: 0,
        next_slot: i64::MIN,
        next_id: 1,
    };
    let mut tail = Tail::new(&start);
    for id in 1..=10 {
        tail.add(hash(0, id), id);
    }
    let begun = Fold {
        batch_end: 10,
        ..start
    };
    tail.advance(&begun);
    tail.add(hash(0, 11), 11);
    for id in 1..=11 {
        assert_eq!(tail.get(hash(0, id)), Some(id));
    }
    assert!(
        tail.wants_folding(Gathering::CALM),
        "a batch that was begun is finished"
    );
    let ended = Fold {
        indexed_through: 10,
        ..begun
    };
    tail.advance(&ended);
    assert_eq!(tail.get(hash(0, 10)), None, "the table has it");
    assert_eq!(tail.get(hash(0, 11)), Some(11));
    // A row that the table has already is not taken in again.
    tail.add(hash(0, 3), 3);
    assert_eq!(tail.get(hash(0, 3)), None);
    // A key that was dropped and begun again is found by its new row.
    tail.add(hash(0, 11), 15);
    assert_eq!(tail.get(hash(0, 11)), Some(15));
    assert!(!tail.is_empty() && !tail.wants_folding(Gathering::CALM));
}

#[test]
fn a_process_that_slept_through_several_batches_keeps_only_what_is_not_in() {
    let start = Fold {
        indexed_through: 0,
        batch_end: 0,
        next_slot: i64::MIN,
        next_id: 1,
    };
    let mut tail = Tail::new(&start);
    for id in 1..=30 {
        tail.add(hash(0, id), id);
    }
    tail.advance(&Fold {
        indexed_through: 10,
        batch_end: 20,
        ..start
    });
    for id in 1..=30 {
        assert_eq!(tail.get(hash(0, id)).is_some(), id > 10, "{id}");
    }
    tail.advance(&Fold {
        indexed_through: 25,
        batch_end: 25,
        ..start
    });
    for id in 1..=30 {
        assert_eq!(tail.get(hash(0, id)).is_some(), id > 25, "{id}");
    }
}
