//! Agents die at every named moment and at any other; nothing happens twice, nothing is lost.

use std::time::{Duration, Instant};

use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{
    Agent, CrashPoint, Dice, Ended, Keys, Orders, Scene, resolve_truthfully, unsettled,
};
use semel_testkit::scaled;

use crate::agent;

/// Kills that one store sees before a new one is used: verifying reads the whole log each time.
const KILLS_PER_STORE: u64 = 25;

/// How long agents are sent again until every key is settled: a probe waits for its lease's end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How soon they are sent again when all that is left waits for a probe.
const PAUSE: Duration = Duration::from_millis(50);

/// A store, its agents, and what was seen of it.
struct Trial {
    scene: Scene,
    seen: Seen,
    dice: Dice,
    seed: u64,
    keys: Vec<String>,
    kills: u64,
}

impl Trial {
    fn new() -> Self {
        let (seed, dice) = Dice::fresh();
        Self {
            scene: Scene::new(),
            seen: Seen::default(),
            dice,
            seed,
            keys: vec![],
            kills: 0,
        }
    }

    /// Adds keys that nobody has used; returns them.
    fn new_keys(&mut self, count: usize) -> Vec<String> {
        let first = self.keys.len();
        let kinds = ["hold", "hold", "retry", "probe"];
        let keys: Vec<_> = (first..first + count)
            .map(|number| format!("{}-{number}", kinds[number % kinds.len()]))
            .collect();
        self.keys.extend(keys.iter().cloned());
        keys
    }

    /// Makes the orders of one of several agents that share keys.
    fn orders(&mut self, keys: &[String]) -> Orders {
        let mut orders = Orders::new(&self.scene, Keys::These(keys.to_vec()));
        orders.tasks = 1 + usize::try_from(self.dice.below(3)).unwrap_or(0);
        orders.threads = 1 + usize::try_from(self.dice.below(2)).unwrap_or(0);
        orders.wait = Duration::from_millis(self.dice.below(20));
        orders.seed = self.dice.next();
        orders
    }

    /// Counts who was killed; whoever was not must have done what it was told.
    fn bury(&mut self, agents: Vec<Agent>) {
        for ended in agents.into_iter().map(Agent::wait) {
            if ended.was_killed() {
                self.kills += 1;
            } else {
                let Ended { status, said } = ended;
                assert!(status.success(), "{status}: {said} (seed {})", self.seed);
            }
        }
    }

    /// Audits what the dead have left behind, and settles what they left in doubt.
    async fn judge(&mut self) {
        let engine = self.scene.open().await;
        let audited = audit(&engine, &self.scene, &mut self.seen).await;
        audited.unwrap_or_else(|wrong| panic!("{wrong} (seed {})", self.seed));
        resolve_truthfully(&engine, &self.scene, &self.keys).await;
    }

    /// Sends agents that nobody kills until every key is settled, then counts the effects.
    async fn finish(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let left = unsettled(&self.scene.open().await, &self.keys).await;
            if left.is_empty() {
                self.judge().await;
                self.count_effects();
                return;
            }
            let orders = self.orders(&left);
            self.bury(vec![agent().start(&orders)]);
            self.judge().await;
            if left.iter().all(|key| key.starts_with("probe-")) {
                tokio::time::sleep(PAUSE).await;
            }
        }
        panic!("some keys are never settled (seed {})", self.seed);
    }

    /// Where every doubt was resolved truthfully, each key took effect once; keys that may be
    /// retried say why in the log, which the audit has seen.
    fn count_effects(&self) {
        let lines = self.scene.sink().lines();
        for key in &self.keys {
            let effects = lines.iter().filter(|line| line.key == *key).count();
            let once = effects == 1 || (effects > 1 && key.starts_with("retry-"));
            assert!(
                once,
                "{key} took effect {effects} times (seed {})",
                self.seed
            );
        }
    }
}

#[tokio::test]
async fn agents_killed_at_every_named_moment_neither_repeat_nor_lose_an_effect() {
    for point in CrashPoint::ALL {
        let wanted = scaled(200, 10);
        let mut killed = 0;
        while killed < wanted {
            let mut trial = Trial::new();
            while trial.kills < KILLS_PER_STORE && killed + trial.kills < wanted {
                let keys = trial.new_keys(8);
                let doomed = [1, 3].map(|nth| Orders {
                    crash: Some((point, nth)),
                    ..trial.orders(&keys)
                });
                let survivor = trial.orders(&keys);
                let orders = [&doomed[0], &survivor, &doomed[1]];
                trial.bury(orders.map(|orders| agent().start(orders)).into());
                trial.judge().await;
            }
            trial.finish().await;
            killed += trial.kills;
        }
    }
}

#[tokio::test]
async fn agents_killed_at_any_time_neither_repeat_nor_lose_an_effect() {
    let wanted = scaled(1_000, 50);
    let mut killed = 0;
    while killed < wanted {
        let mut trial = Trial::new();
        while trial.kills < KILLS_PER_STORE && killed + trial.kills < wanted {
            let keys = trial.new_keys(24);
            let mut agents = [(); 3].map(|()| {
                let orders = trial.orders(&keys);
                agent().start(&orders)
            });
            for agent in &mut agents {
                std::thread::sleep(trial.dice.up_to(Duration::from_millis(25)));
                agent.kill();
            }
            trial.bury(agents.into());
            trial.judge().await;
        }
        trial.finish().await;
        killed += trial.kills;
    }
}
