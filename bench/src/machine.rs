//! How busy the machine is with other things: figures of a busy one compare badly.

use std::fs;

/// Counts of processor time, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// What all processors have spent, idle or not.
    total: u64,
    /// What they have spent on anything.
    busy: u64,
    /// What this process has spent.
    own: u64,
}

/// Watches from a moment on what others do.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Option<Ticks>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self { began: now() }
    }

    /// Says what share of the processors others had since the start.
    pub(crate) fn others(&self) -> String {
        let share = self.began.zip(now());
        share
            .and_then(|(began, ended)| share_of_others(began, ended))
            .map_or_else(
                || "nobody knows how busy the machine was".to_owned(),
                |share| format!("others used {share:.0} % of the processors"),
            )
    }
}

fn now() -> Option<Ticks> {
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let process = fs::read_to_string("/proc/self/stat").ok()?;
    parse(&machine, &process)
}

fn parse(machine: &str, process: &str) -> Option<Ticks> {
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user already.
    let line = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8)
        .collect();
    let total = fields.iter().sum();
    let waiting = fields.get(3)? + fields.get(4)?;
    // The name before the last parenthesis may hold anything; user and system time are the 12th
    // and 13th after it.
    let (_, rest) = process.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (times.next()?.parse().ok()?, times.next()?.parse().ok()?);
    Some(Ticks {
        total,
        busy: total - waiting,
        own: user + system,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks of one run are far below 2^52"
)]
fn share_of_others(began: Ticks, ended: Ticks) -> Option<f64> {
    let passed = ended
        .total
        .checked_sub(began.total)
        .filter(|passed| *passed > 0)?;
    let others = (ended.busy - began.busy).saturating_sub(ended.own - began.own);
    Some(100.0 * others as f64 / passed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_counts_are_understood() {
        let machine = "cpu  100 10 50 800 40 0 5 3 0 0\ncpu0 1 2 3\n";
        let process = "42 (a name) with ) S 1 2 3 4 5 6 7 8 9 10 70 7 0 0 20 0\n";
        let ticks = Ticks {
            total: 1_008,
            busy: 168,
            own: 77,
        };
        assert_eq!(parse(machine, process), Some(ticks));
        assert!(parse("", process).is_none() && parse(machine, "").is_none());
        assert!(now().is_some());
    }

    #[test]
    fn what_this_process_does_is_not_others() {
        let began = Ticks {
            total: 1_000,
            busy: 500,
            own: 100,
        };
        let ended = Ticks {
            total: 1_200,
            busy: 650,
            own: 200,
        };
        assert_eq!(share_of_others(began, ended), Some(25.0));
        assert_eq!(share_of_others(began, began), None);
    }
}
