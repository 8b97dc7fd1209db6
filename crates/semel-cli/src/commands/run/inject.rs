//! `SEMEL_INJECT`: faults on purpose, so that people can test their own scripts.

use semel::{Engine, Fault, Point};
use signal_hook::consts::{SIGKILL, SIGSTOP};
use signal_hook::low_level::raise;

use crate::failure::Failure;
use crate::settings::nearest;

/// The variable that names the faults, separated by commas.
pub(crate) const VARIABLE: &str = "SEMEL_INJECT";

/// A moment at which this process can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    BeforeClaim,
    AfterClaim,
    MidEffect,
    AfterEffect,
    AfterSettle,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Injected {
    /// This process is killed.
    Die(Moment),
    /// This process is stopped, until somebody lets it go on.
    Stop(Moment),
    /// All is done and stored, and nobody hears of it.
    DropReply,
    Store(Point, Fault),
    Repeat(Point),
}

const KNOWN: [(&str, Injected); 13] = [
    ("die-before-claim", Injected::Die(Moment::BeforeClaim)),
    ("die-after-claim", Injected::Die(Moment::AfterClaim)),
    ("stop-after-claim", Injected::Stop(Moment::AfterClaim)),
    ("die-mid-effect", Injected::Die(Moment::MidEffect)),
    ("die-after-effect", Injected::Die(Moment::AfterEffect)),
    ("die-after-settle", Injected::Die(Moment::AfterSettle)),
    ("drop-reply", Injected::DropReply),
    ("refuse-claim", Injected::Store(Point::Begin, Fault::Refuse)),
    (
        "lose-claim",
        Injected::Store(Point::Begin, Fault::LoseReply),
    ),
    (
        "refuse-settle",
        Injected::Store(Point::Settle, Fault::Refuse),
    ),
    (
        "lose-settle",
        Injected::Store(Point::Settle, Fault::LoseReply),
    ),
    ("repeat-claim", Injected::Repeat(Point::Begin)),
    ("repeat-settle", Injected::Repeat(Point::Settle)),
];

/// How often a store's fault strikes: until the attempt gives up.
const ALWAYS: u32 = u32::MAX;

/// The faults that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Injected>);

impl Faults {
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let names = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        names.map(fault).collect::<Result<_, _>>().map(Self)
    }

    /// Reads those that can strike a server: it can be killed and stopped by anybody.
    pub(crate) fn for_server() -> Result<Self, Failure> {
        let faults = Self::from_environment()?;
        let of_process = |injected: &Injected| match injected {
            Injected::Die(_) | Injected::Stop(_) => true,
            Injected::DropReply | Injected::Store(..) | Injected::Repeat(_) => false,
        };
        if faults.0.iter().any(of_process) {
            let text = format!("{VARIABLE}: a server does not kill or stop itself");
            return Err(Failure::input(text).hint("use `kill -9` or `kill -STOP` on its process"));
        }
        Ok(faults)
    }

    /// Plans those that strike at the store.
    pub(crate) fn plan(&self, engine: &Engine) {
        for injected in &self.0 {
            match *injected {
                Injected::Store(point, fault @ Fault::Refuse) => {
                    engine.inject_error(point, fault, ALWAYS);
                }
                Injected::Store(point, fault @ Fault::LoseReply) => {
                    engine.inject_error(point, fault, 1);
                }
                Injected::Repeat(point) => engine.inject_repeat(point, 1),
                Injected::Die(_) | Injected::Stop(_) | Injected::DropReply => {}
            }
        }
    }

    /// Dies or stops now, if that was asked for.
    pub(crate) fn strike(&self, moment: Moment) {
        // Nobody can handle either, so it strikes before it returns, or was not allowed.
        if self.0.contains(&Injected::Stop(moment)) {
            drop(raise(SIGSTOP));
        }
        if self.0.contains(&Injected::Die(moment)) {
            drop(raise(SIGKILL));
        }
    }

    /// Says whether the answer is to be lost.
    pub(crate) fn drops_reply(&self) -> bool {
        self.0.contains(&Injected::DropReply)
    }
}

fn fault(name: &str) -> Result<Injected, Failure> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    known.map(|(_, injected)| *injected).ok_or_else(|| {
        let unknown = Failure::input(format!("{VARIABLE}: unknown fault `{name}`"));
        match nearest(name, KNOWN.iter().map(|(known, _)| *known)) {
            Some(near) => unknown.hint(format!("did you mean `{near}`?")),
            None => {
                let all: Vec<_> = KNOWN.iter().map(|(known, _)| *known).collect();
                unknown.hint(format!("use one of {}", all.join(", ")))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_found_by_its_name_and_others_get_a_hint() {
        for (name, injected) in KNOWN {
            assert_eq!(fault(name).ok(), Some(injected));
        }
        let wrong = fault("drop-replies").expect_err("it is unknown");
        assert_eq!(wrong.hint.as_deref(), Some("did you mean `drop-reply`?"));
        assert_eq!(wrong.exit(), 64);
    }
}
