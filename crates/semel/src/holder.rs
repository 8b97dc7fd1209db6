//! Who holds an attempt, and whether that process is still there.

use semel_core::Label;
use semel_core::ledger::Holder;

/// Describes this process so that another one on the same machine can tell whether it lives.
#[must_use]
pub fn this_process() -> Option<Holder> {
    process(std::process::id())
}

/// Describes a process of this machine.
pub(crate) fn process(pid: u32) -> Option<Holder> {
    Some(Holder {
        host: host()?,
        pid,
        boot: crate::clock::boot_id()?,
        pid_namespace: pid_namespace()?,
        started: started(pid)?,
    })
}

/// Whether the process that holds an attempt is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The same boot and process-id namespace, and the very process.
    Alive,
    /// The same boot and process-id namespace, and no such process, or another one under its
    /// number.
    Gone,
    /// It cannot be seen from here: another host, another container, no `/proc`.
    Unseen,
}

/// Looks for the process of a holder.
#[must_use]
pub fn presence(holder: &Holder) -> Presence {
    let same_place = crate::clock::boot_id() == Some(holder.boot)
        && pid_namespace() == Some(holder.pid_namespace);
    if !same_place {
        return Presence::Unseen;
    }
    match std::fs::read_to_string(format!("/proc/{}/stat", holder.pid)) {
        Ok(stat) => match parse_stat(&stat) {
            // A zombie has ended: it waits to be collected and will do nothing any more.
            Some((state, started)) if started != holder.started || state == 'Z' || state == 'X' => {
                Presence::Gone
            }
            Some(_) => Presence::Alive,
            None => Presence::Unseen,
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && proc_is_mounted() => {
            Presence::Gone
        }
        Err(_) => Presence::Unseen,
    }
}

/// Says whether a holder is provably gone. Where that cannot be known it is not gone.
#[must_use]
pub fn is_gone(holder: &Holder) -> bool {
    presence(holder) == Presence::Gone
}

/// Says whether a holder is provably alive. Where that cannot be known it is not said to be.
#[must_use]
pub fn is_alive(holder: &Holder) -> bool {
    presence(holder) == Presence::Alive
}

/// A missing process proves something only where processes can be seen at all.
fn proc_is_mounted() -> bool {
    started(std::process::id()).is_some()
}

fn host() -> Option<Label> {
    let name = rustix::system::uname();
    Label::new(&name.nodename().to_string_lossy()).ok()
}

fn pid_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let text = link.to_str()?;
    text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat).map(|(_, started)| started)
}

/// Reads state and start time; the command's name may hold spaces and parentheses, so counting
/// begins after its last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_gone_and_an_earlier_one_of_its_number_is() {
        let holder = this_process().expect("this system tells who we are");
        assert_eq!(presence(&holder), Presence::Alive);
        assert!(is_gone(&Holder {
            started: holder.started + 1,
            ..holder.clone()
        }));
    }

    #[test]
    fn what_cannot_be_known_is_not_gone() {
        let holder = this_process().expect("this system tells who we are");
        let elsewhere = Holder {
            boot: 1,
            pid: u32::MAX,
            ..holder.clone()
        };
        assert_eq!(presence(&elsewhere), Presence::Unseen);
        let contained = Holder {
            pid_namespace: 1,
            pid: u32::MAX,
            ..holder
        };
        assert_eq!(presence(&contained), Presence::Unseen);
    }

    #[test]
    fn a_child_is_gone_once_it_has_ended() {
        let _alone = crate::hold::alone();
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("true runs");
        let pid = child.id();
        let started = started(pid).expect("a child that was not waited for is still listed");
        let holder = Holder {
            pid,
            started,
            ..this_process().expect("this system tells")
        };
        child.wait().expect("it ends");
        assert!(is_gone(&holder));
    }

    #[test]
    fn names_with_spaces_and_parentheses_do_not_shift_the_fields() {
        let stat = "7 (a) R (b)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 0";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }
}
