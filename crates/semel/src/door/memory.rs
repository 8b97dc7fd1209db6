//! What a doorway keeps in memory: who calls now, and what was seen of their answers.

use std::collections::{BTreeSet, HashMap};

use semel_core::identity::{CallerId, Callers, Exchange, Kin, Observation, Relation, WINDOW};
use semel_core::ledger::Delivery;
use semel_core::{Key, KeyHash, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::bounded::Bounded;
use crate::engine::Subject;

/// Call ids that are remembered beside another operation's key. A harness repeats an id within minutes.
const CALL_IDS_MAX: usize = 16_384;

/// Kin whose last number is remembered, so that it is not looked for again.
const NUMBERS_MAX: usize = 16_384;

/// Operations of which it is remembered when a call for them was last seen.
const SEEN_MAX: usize = 16_384;

/// Operations that wait to be marked as lapsed. What does not find room is met again.
const LAPSED_MAX: usize = 4_096;

#[derive(Debug)]
pub(super) struct Memory {
    held: HashMap<KeyHash, Held>,
    by_kin: HashMap<Kin, BTreeSet<KeyHash>>,
    /// Whose marks are to be stored.
    due: BTreeSet<KeyHash>,
    lapsed: HashMap<KeyHash, Subject>,
    /// By the ledger key that an id would have of its own.
    call_ids: Bounded<KeyHash, Key>,
    numbers: Bounded<Kin, u32>,
    seen: Bounded<KeyHash, Timestamp>,
}

/// An operation whose callers are held here.
#[derive(Debug)]
struct Held {
    subject: Subject,
    kin: Kin,
    /// Whether identical calls may be judged by its mark; nobody is by that of one with a key.
    has_kin: bool,
    callers: Callers,
    /// When one of them last moved.
    at: Timestamp,
    /// The mark that is stored; `None` where that is not sure.
    stored: Option<Delivery>,
    /// A mark is on its way to the store.
    is_storing: bool,
    /// How many tickets are out.
    tickets: usize,
    /// A place for each ticket. The last one is kept until the mark is stored.
    places: Vec<OwnedSemaphorePermit>,
}

/// An operation that a call enters.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) key: &'a Key,
    pub(super) subject: Subject,
    pub(super) kin: Kin,
    pub(super) has_kin: bool,
    /// The mark that is stored; `None` where one may be on its way, or another process may have stored one.
    pub(super) stored: Option<Delivery>,
    /// The ledger key that the call's id would have of its own.
    pub(super) by_call_id: Option<KeyHash>,
}

/// The callers of one operation, and when one of them last moved.
pub(super) type Seen = HashMap<KeyHash, (Callers, Timestamp)>;

impl Default for Memory {
    fn default() -> Self {
        Self {
            held: HashMap::new(),
            by_kin: HashMap::new(),
            due: BTreeSet::new(),
            lapsed: HashMap::new(),
            call_ids: Bounded::new(CALL_IDS_MAX),
            numbers: Bounded::new(NUMBERS_MAX),
            seen: Bounded::new(SEEN_MAX),
        }
    }
}

impl Held {
    /// Returns the mark that is to be stored.
    ///
    /// Of a caller that waits nothing is known yet, and a stored mark that is no proof says as much. Where nobody is
    /// judged by the mark, what is known in the end is soon enough: a replay is then no commit.
    fn due(&self) -> Option<Delivery> {
        let mark = self.callers.mark()?;
        let is_waiting = self.callers.is_waiting();
        let says_as_much =
            mark == Delivery::Unknown && is_waiting && self.stored == Some(Delivery::Undelivered);
        let can_wait = is_waiting && !self.has_kin;
        (Some(mark) != self.stored && !says_as_much && !can_wait).then_some(mark)
    }
}

impl Memory {
    /// Enters a call as it was judged; `None` for one that belongs to no operation.
    pub(super) fn enter(
        &mut self,
        entry: Entry<'_>,
        relation: Relation,
        place: OwnedSemaphorePermit,
        now: Timestamp,
    ) -> Option<(KeyHash, CallerId)> {
        let hash = entry.subject.hash;
        let held = self.held.entry(hash).or_insert_with(|| Held {
            subject: entry.subject,
            kin: entry.kin,
            has_kin: entry.has_kin,
            callers: Callers::default(),
            at: now,
            stored: entry.stored,
            is_storing: false,
            tickets: 0,
            places: vec![],
        });
        held.stored = entry.stored;
        let caller = held.callers.enter(relation, now);
        if caller.is_some() {
            held.at = held.at.max(now);
            held.tickets += 1;
            held.places.push(place);
            if let Some(own) = entry.by_call_id.filter(|own| *own != hash) {
                self.call_ids.put(own, entry.key.clone());
            }
        }
        self.by_kin.entry(entry.kin).or_default().insert(hash);
        self.look_at(hash);
        caller.map(|caller| (hash, caller))
    }

    /// Takes note of something that was seen of a call; returns whether a mark is to be stored.
    pub(super) fn see(
        &mut self,
        hash: &KeyHash,
        caller: CallerId,
        observation: Observation,
        now: Timestamp,
    ) -> bool {
        if let Some(held) = self.held.get_mut(hash) {
            held.callers.see(caller, observation, now);
            held.at = held.at.max(now);
        }
        self.look_at(*hash)
    }

    /// Says whether an earlier call for the same operation still waits for its answer.
    pub(super) fn has_earlier_waiting(&self, hash: &KeyHash, caller: CallerId) -> bool {
        let held = self.held.get(hash);
        held.is_some_and(|held| held.callers.has_earlier_waiting(caller))
    }

    /// Takes a ticket back: nothing more is seen of its call.
    pub(super) fn leave(&mut self, hash: &KeyHash, caller: CallerId, now: Timestamp) -> bool {
        self.see(hash, caller, Observation::Closed, now);
        if let Some(held) = self.held.get_mut(hash) {
            held.tickets = held.tickets.saturating_sub(1);
            if held.tickets > 0 {
                held.places.pop();
            }
        }
        self.look_at(*hash)
    }

    /// Takes a call out as if it had not been entered; returns whether its caller was seen to have left.
    pub(super) fn withdraw(&mut self, hash: &KeyHash, caller: CallerId) -> bool {
        let held = self.held.get_mut(hash);
        let seen = held.and_then(|held| held.callers.withdraw(caller));
        seen == Some(Exchange::Lost)
    }

    /// Remembers whether a mark is to be stored, and forgets what has nothing left to tell.
    fn look_at(&mut self, hash: KeyHash) -> bool {
        let Some(held) = self.held.get(&hash) else {
            return false;
        };
        if held.due().is_some() {
            self.due.insert(hash);
            return true;
        }
        self.due.remove(&hash);
        // What is on its way may say something else than what is known by now.
        if held.tickets == 0 && !held.is_storing {
            self.seen.put(hash, held.at);
            if let Some(others) = self.by_kin.get_mut(&held.kin) {
                others.remove(&hash);
                if others.is_empty() {
                    self.by_kin.remove(&held.kin);
                }
            }
            self.held.remove(&hash);
        }
        false
    }

    /// Returns what is to be stored, and what nobody came for again.
    pub(super) fn take_due(&mut self) -> Vec<(Subject, Delivery)> {
        let mut marks = vec![];
        for hash in core::mem::take(&mut self.due) {
            if let Some(held) = self.held.get_mut(&hash)
                && let Some(mark) = held.due()
            {
                held.is_storing = true;
                marks.push((held.subject.clone(), mark));
            }
        }
        let lapsed = self.lapsed.drain();
        marks.extend(lapsed.map(|(_, subject)| (subject, Delivery::Lapsed)));
        marks
    }

    /// Hears that a mark is stored, or that it never can be.
    pub(super) fn stored(&mut self, hash: KeyHash, mark: Delivery) {
        if let Some(held) = self.held.get_mut(&hash) {
            held.stored = Some(mark);
            held.is_storing = false;
        }
        self.look_at(hash);
    }

    /// Hears that a mark could not be stored now.
    pub(super) fn unstored(&mut self, hash: KeyHash) {
        if let Some(held) = self.held.get_mut(&hash) {
            held.is_storing = false;
        }
        self.look_at(hash);
    }

    pub(super) fn lapse(&mut self, subject: Subject) -> bool {
        // What is held here is marked by its own callers.
        let wanted = !self.held.contains_key(&subject.hash) && self.lapsed.len() < LAPSED_MAX;
        if wanted {
            self.lapsed.insert(subject.hash, subject);
        }
        wanted
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the callers of these kin.
    pub(super) fn of_kin(&self, kin: Kin) -> Seen {
        let hashes = self.by_kin.get(&kin).into_iter().flatten();
        let held = hashes.filter_map(|hash| Some((*hash, self.held.get(hash)?)));
        held.map(|(hash, held)| (hash, (held.callers.clone(), held.at)))
            .collect()
    }

    /// Returns the keys of these kin that are held here.
    pub(super) fn keys_of(&self, kin: Kin) -> Vec<Key> {
        let hashes = self.by_kin.get(&kin).into_iter().flatten();
        let held = hashes.filter_map(|hash| self.held.get(hash));
        held.filter_map(|held| held.subject.key.clone()).collect()
    }

    /// Returns when a call for an operation was last seen, if that was within the window.
    pub(super) fn last_seen(&self, hash: &KeyHash, now: Timestamp) -> Option<Timestamp> {
        let at = self.seen.get(hash).copied();
        at.filter(|at| now.since(*at) <= WINDOW)
    }

    /// Returns the operation that a call with this id was judged to be for.
    pub(super) fn by_call_id(&self, own: &KeyHash) -> Option<&Key> {
        self.call_ids.get(own)
    }

    pub(super) fn number(&self, kin: Kin) -> Option<u32> {
        self.numbers.get(&kin).copied()
    }

    pub(super) fn learn_number(&mut self, kin: Kin, number: u32) {
        self.numbers.put(kin, number);
    }
}
