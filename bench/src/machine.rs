//! How busy the machine is with other things: figures of a busy one compare badly.

use std::fs;

/// Counts of processor time, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// What all processors have spent, idle or not.
    total: u64,
    /// What they have spent on anything.
    busy: u64,
    /// What this process has spent, and those that it measures.
    own: u64,
}

/// Watches from a moment on what others do.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Option<Ticks>,
    /// The first process of a server that is measured.
    server: Option<u32>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self::new(None)
    }

    /// Counts a server and all of its processes as this program's own.
    pub(crate) fn with_server(process: u32) -> Self {
        Self::new(Some(process))
    }

    fn new(server: Option<u32>) -> Self {
        let began = now(server);
        Self { began, server }
    }

    /// Says what share of the processors others had since the start.
    pub(crate) fn others(&self) -> String {
        let share = self.began.zip(now(self.server));
        share
            .and_then(|(began, ended)| share_of_others(began, ended))
            .map_or_else(
                || "nobody knows how busy the machine was".to_owned(),
                |share| format!("others used {share:.0} % of the processors"),
            )
    }
}

fn now(server: Option<u32>) -> Option<Ticks> {
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let roots = [Some(std::process::id()), server];
    let mut own = 0;
    for entry in fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile; what it spent is then its parent's.
        let stat = fs::read_to_string(format!("/proc/{id}/stat"));
        let Some(process) = stat.ok().and_then(|stat| parse_process(&stat)) else {
            continue;
        };
        if roots.contains(&Some(id)) || roots.contains(&Some(process.parent)) {
            own += process.spent;
        }
    }
    parse(&machine, own)
}

/// What the kernel tells about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// The ticks that it and its children that have ended spent.
    spent: u64,
}

fn parse_process(stat: &str) -> Option<Process> {
    // The name before the last parenthesis may hold anything. After it the parent is the second
    // field; the process's and its ended children's user and system times are the 12th to 15th.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let times = fields.get(11..15)?.iter();
    let times = times
        .map(|time| time.parse().ok())
        .collect::<Option<Vec<u64>>>()?;
    Some(Process {
        parent,
        spent: times.iter().sum(),
    })
}

fn parse(machine: &str, own: u64) -> Option<Ticks> {
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user already.
    let line = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8)
        .collect();
    let total = fields.iter().sum();
    let waiting = fields.get(3)? + fields.get(4)?;
    Some(Ticks {
        total,
        busy: total - waiting,
        own,
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
    let others = (ended.busy - began.busy).saturating_sub(ended.own.saturating_sub(began.own));
    Some(100.0 * others as f64 / passed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_counts_are_understood() {
        let machine = "cpu  100 10 50 800 40 0 5 3 0 0\ncpu0 1 2 3\n";
        let process = "42 (a name) with ) S 1 2 3 4 5 6 7 8 9 10 60 7 9 1 20 0\n";
        let spent = Process {
            parent: 1,
            spent: 77,
        };
        assert_eq!(parse_process(process), Some(spent));
        assert_eq!(parse_process("42 (a name) S 1 2"), None);
        let ticks = Ticks {
            total: 1_008,
            busy: 168,
            own: 77,
        };
        assert_eq!(parse(machine, 77), Some(ticks));
        assert!(parse("", 77).is_none());
        assert!(now(None).is_some());
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
