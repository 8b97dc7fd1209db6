//! What comes from outside: commands delivered again, retention that looked earlier, clocks and
//! power, and somebody who pulls plugs.

use std::collections::BTreeSet;
use std::sync::Arc;

use semel::Label;
use semel::store::NewPayload;
use semel_core::ledger::{Adopt, Command, Delivery, Expire, Horizon};

use super::agent::Agent;
use super::bugs::Bug;
use super::history::Sim;
use super::process::kill;
use super::raw::Failed;
use super::trace::Seen;

/// Delivers commands again, much later than they were sent.
pub(crate) async fn repeat(sim: Arc<Sim>) {
    let Some(agent) = Agent::start(&sim, "again", false).await else {
        return;
    };
    for _ in 0..sim.plan.repeats {
        sim.nap(0, 2_500).await;
        let captured = sim.with(|s| {
            // The kind is drawn first, so that the rare ones are repeated as often as the others.
            let names: BTreeSet<_> = s.captured.iter().map(|c| c.command.name()).collect();
            let names: Vec<_> = names.into_iter().collect();
            let wanted = (!names.is_empty()).then(|| s.rng.pick(&names))?;
            let alike = s.captured.iter().filter(|c| c.command.name() == wanted);
            let alike: Vec<_> = alike.cloned().collect();
            let index = s.rng.index(alike.len());
            alike.into_iter().nth(index)
        });
        let Some(captured) = captured else { continue };
        let command = &captured.command;
        let payload = &captured.payload;
        let applied = agent.raw.apply(captured.key, command, payload).await;
        let seen = match applied {
            Ok(answered) if answered.wrote => Seen::RepeatAccepted(command.name()),
            Ok(_) | Err(Failed::Refused(_)) => Seen::RepeatRefused(command.name()),
            Err(Failed::Store) => continue,
        };
        agent.saw(seen);
    }
}

/// Sends what no agent sends: delivery marks, retention that looked earlier, adoption, and the
/// news that a holder is gone.
pub(crate) async fn tend(sim: Arc<Sim>) {
    let Some(agent) = Agent::start(&sim, "tend", false).await else {
        return;
    };
    for _ in 0..3 {
        sim.nap(0, 3_000).await;
        let (key, kind) = sim.draw(|rng| (rng.index(sim.plan.keys.len()), rng.below(20)));
        let mark = sim.with(|s| s.shelf.mark.filter(|_| s.retention_may_act()));
        let mut mark = mark.map(|mark| Horizon(mark.at));
        if sim.has(Bug::RetentionOnOneLook) {
            mark = Some(Horizon(sim.now()));
        }
        let gone = sim.with(|s| {
            let (fence, process) = s.checker.latest_holder(key)?;
            s.lives[process].is_dead().then_some(fence)
        });
        let command = match (kind, mark) {
            (0..=2, _) => Command::Deliver(Delivery::Delivered),
            (3, _) => Command::Deliver(Delivery::Undelivered),
            (4..=8, _) => Command::Expire(Expire { gone }),
            (9..=13, Some(horizon)) => Command::Bury(horizon),
            (14, Some(horizon)) => Command::Drop(horizon),
            (15, _) => Command::Adopt(Adopt {
                fence_step: 1_000,
                by: Label::new("restore").expect("a label"),
            }),
            _ => continue,
        };
        // Refused or not, the checker sees what it did.
        drop(agent.raw.apply(key, &command, &NewPayload::Keep).await);
    }
}

/// Moves the clocks, and now and then takes the store or the power away.
pub(crate) async fn meddle(sim: Arc<Sim>) {
    const MINUTE: i64 = 60_000_000;
    for _ in 0..sim.plan.clock_moves {
        sim.nap(0, 5_000).await;
        let (kind, by) = sim.draw(|rng| (rng.below(10), rng.between(1, 55)));
        let minutes = i64::try_from(by).unwrap_or(1) * MINUTE;
        match kind {
            0 => sim.move_clock("a few minutes forward", |clock| clock.jump(minutes)),
            1 => sim.move_clock("a few minutes back", |clock| clock.jump(-minutes)),
            2 | 3 => sim.move_clock("hours forward", |clock| {
                clock.jump(minutes * 60 + 70 * MINUTE)
            }),
            4 => sim.move_clock("hours back", |clock| {
                clock.jump(-minutes * 60 - 70 * MINUTE)
            }),
            5 | 6 => sim.with(|s| {
                let time = s.rng.millis(1_000, 8_000);
                s.go_out(time);
            }),
            _ => sim.lose_power(),
        }
    }
}

/// Kills processes wherever they are.
pub(crate) async fn slay(sim: Arc<Sim>) {
    let rate = sim.plan.rates.crash;
    for _ in 0..2 {
        sim.nap(0, 4_000).await;
        let victim = sim.with(|s| {
            if rate == 0 || !s.rng.chance(400) {
                return None;
            }
            let index = s.rng.index(s.lives.len().max(1));
            let life = s.lives.get(index)?;
            let name = life.name().to_owned();
            life.can_die().then_some((index, name))
        });
        if let Some((id, name)) = victim {
            sim.with(|s| {
                s.seen.note(Seen::Did("killed a process"));
                s.say(&name, format_args!("is killed"));
            });
            kill(&sim, id);
        }
    }
}
