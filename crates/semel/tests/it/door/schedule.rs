//! Many callers at several processes, under a schedule of crashes, lost answers and doubts, with the
//! effects counted outside.
//!
//! Each caller has one intent after the other. It repeats its call until an answer arrives, and then goes
//! on. Held against it: no intent takes effect twice, whatever is lost; and each takes effect once, but
//! for those that a crash, or another process, could not know from a retry.

use semel::core::ledger::StateKind;

use super::*;

/// Processes on one store.
const DOORS: usize = 3;

const CALLERS: usize = 4;

const STEPS: usize = 250;

/// One that calls again until it has an answer.
#[derive(Debug, Default)]
struct Caller {
    /// What repeats its history.
    seed: u64,
    number: usize,
    calls: u32,
    /// How often the present intent has taken effect.
    effects: u32,
    intents: u32,
    swallowed: u32,
    /// Answers that arrived without all marks being stored: each may swallow one intent, at once or later.
    unmarked: u32,
    /// The doubt that is left of a process that died, and whether the effect had happened.
    doubt: Option<bool>,
}

/// Chance that can be repeated (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) % limit as u64;
        usize::try_from(drawn).expect("below the limit")
    }
}

struct World {
    bed: Arc<dyn Bed>,
    doors: Vec<Doorway>,
    random: Dice,
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut world = Self {
            bed: memory(),
            doors: vec![],
            random: Dice(seed),
        };
        for _ in 0..DOORS {
            world.doors.push(start(&world.bed).await);
        }
        world
    }

    /// Ends a process without a word, and starts another in its place. What it had in memory is gone
    /// before anything of it can be stored, as nothing else runs meanwhile.
    async fn crash(&mut self, at: usize, last: (Doorway, Ticket)) {
        self.doors.remove(at);
        drop(last);
        let next = start(&self.bed).await;
        self.doors.insert(at, next);
    }

    async fn step(&mut self, caller: &mut Caller) {
        let at = self.random.below(DOORS);
        let door = self.doors[at].clone();
        self.bed.clock().advance(Duration::from_secs(1));
        let entered = enter(&door, &caller.call()).await;
        let ticket = entered.ticket.expect("nobody is challenged");
        match entered.admission {
            Admission::Execute(permit) => {
                assert_eq!(
                    caller.effects, 0,
                    "seed {}: an intent takes effect twice: {caller:?}",
                    caller.seed
                );
                assert_eq!(
                    caller.doubt, None,
                    "seed {}: a doubt was run again: {caller:?}",
                    caller.seed
                );
                match self.random.below(10) {
                    0 => {
                        permit.not_done("refused").await.expect("it is stored");
                        ticket.see(Observation::PutOff);
                        return;
                    }
                    1 | 2 => {
                        let happened = self.random.below(2) == 0;
                        caller.effects = u32::from(happened);
                        caller.doubt = Some(happened);
                        std::mem::forget(permit);
                        self.crash(at, (door, ticket)).await;
                        return;
                    }
                    _ => {
                        caller.effects += 1;
                        done(permit).await;
                    }
                }
            }
            Admission::Replay(_) => {}
            Admission::Wait { .. } => {
                assert!(caller.doubt.is_some());
                ticket.see(Observation::PutOff);
                self.bed.clock().advance(2 * MINUTE);
                return;
            }
            Admission::InDoubt(record) => {
                ticket.see(Observation::PutOff);
                if self.random.below(2) == 0 {
                    self.resolve(caller, &door, &record).await;
                }
                return;
            }
            other => panic!("unexpected: {other:?}"),
        }
        self.answer(caller, at, door, ticket).await;
    }

    /// The answer arrives, or is lost on one of many ways.
    async fn answer(&mut self, caller: &mut Caller, at: usize, door: Doorway, ticket: Ticket) {
        match self.random.below(8) {
            0 => return ticket.see(Observation::Cancelled),
            1 => {
                ticket.see(Observation::Written);
                return ticket.see(Observation::Reset);
            }
            2 => return ticket.see(Observation::NotWritten),
            3 => return drop(ticket),
            4 => return self.crash(at, (door, ticket)).await,
            _ => arrived(&ticket),
        }
        caller.intents += 1;
        if caller.effects == 0 {
            let has_reason = caller.unmarked > 0;
            assert!(
                has_reason,
                "seed {}: swallowed though all marks were stored: {caller:?}",
                caller.seed
            );
            caller.unmarked -= 1;
            caller.swallowed += 1;
        }
        caller.effects = 0;
        caller.unmarked += 1;
        match self.random.below(8) {
            0 => self.crash(at, (door, ticket)).await,
            1 => drop(ticket),
            _ => {
                drop(ticket);
                let others = self.doors.iter().enumerate().filter(|(n, _)| *n != at);
                for door in others.map(|(_, door)| door).chain([&door]) {
                    door.flush().await.expect("the marks are stored");
                }
                caller.unmarked -= 1;
            }
        }
    }

    /// Somebody looks what happened, and says so.
    async fn resolve(&self, caller: &mut Caller, door: &Doorway, record: &Record) {
        let happened = caller.doubt.take().expect("somebody died");
        let operation = record.operation().expect("it lives");
        let (namespace, key) = (Namespace::default(), operation.spec.key.clone());
        let version = super::record(door, &key).await.version();
        let by = semel::Label::new("ann").expect("a valid name");
        let operator = door.engine().operator(&namespace, &key, version, by);
        let told = if happened {
            operator.resolve_done(true, Effect::Created, None).await
        } else {
            operator.resolve_not_done().await
        };
        let state = told.expect("it is resolved").state;
        let expected = [StateKind::Pending, StateKind::Succeeded][usize::from(happened)];
        assert_eq!(state, expected);
    }
}

impl Caller {
    /// Makes its call. Every other one plans it anew each time, and so gives it an id that nobody has seen.
    fn call(&mut self) -> Call {
        self.calls += 1;
        let (number, calls) = (self.number, self.calls);
        let call_id = (number % 2 == 1).then(|| text(&format!("toolu_{number}_{calls}")));
        let scope = Scope {
            conversation: Some(format!("chat-{}", self.number)),
            ..call().scope
        };
        Call {
            scope,
            call_id,
            ..call()
        }
    }
}

async fn history(seed: u64) -> (u32, u32) {
    let mut world = World::new(seed).await;
    let mut callers: Vec<Caller> = (0..CALLERS)
        .map(|number| Caller {
            seed,
            number,
            ..Caller::default()
        })
        .collect();
    for _ in 0..STEPS {
        let next = world.random.below(CALLERS);
        world.step(&mut callers[next]).await;
    }
    let intents = callers.iter().map(|caller| caller.intents).sum();
    let swallowed = callers.iter().map(|caller| caller.swallowed).sum();
    (intents, swallowed)
}

/// Time stands still, so that marks are stored when the schedule says so and at no other time.
#[tokio::test(start_paused = true)]
async fn no_intent_takes_effect_twice_and_those_that_were_answered_go_on() {
    let (mut intents, mut swallowed) = (0, 0);
    for seed in 1..=40 {
        let (all, lost) = history(seed).await;
        intents += all;
        swallowed += lost;
    }
    // A door that swallows everything, and one that is never asked, would pass what is above.
    assert!(intents > 2_000, "{intents} intents");
    assert!(
        swallowed * 4 < intents,
        "{swallowed} of {intents} swallowed"
    );
}
