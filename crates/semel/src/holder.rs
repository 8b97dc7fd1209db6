//! Who holds an attempt, and whether that process is still there.

use rustix::io::Errno;
use rustix::process::Pid;
use semel_core::Label;
use semel_core::ledger::Holder;

/// Describes this process so that another one on the same machine can tell whether it lives.
#[must_use]
pub fn this_process() -> Option<Holder> {
    process(std::process::id())
}

/// Describes a process of this machine.
pub(crate) fn process(pid: u32) -> Option<Holder> {
    if !proc_is_of_this_namespace() {
        return None;
    }
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
    /// The same boot and process-id namespace, and proof that the process has ended: the kernel knows
    /// no process of this number, or shows a zombie or a later process under it.
    Gone,
    /// Neither can be proven from here: another host, another container, or a `/proc` that hides the
    /// processes of other users (`hidepid`).
    Unseen,
}

/// Looks for the process of a holder.
#[must_use]
pub fn presence(holder: &Holder) -> Presence {
    if is_here(holder) {
        let entry = ProcessEntry::read(holder.pid);
        judge(entry, holder.started, || Probed::ask(holder.pid))
    } else {
        Presence::Unseen
    }
}

/// Whether a holder's process numbers mean the same processes here as they did there.
fn is_here(holder: &Holder) -> bool {
    crate::clock::boot_id() == Some(holder.boot)
        && pid_namespace() == Some(holder.pid_namespace)
        && proc_is_of_this_namespace()
}

/// What `/proc/PID/stat` shows of a process.
#[derive(Clone, Copy, Debug)]
enum ProcessEntry {
    Shown { state: char, started: u64 },
    // With `hidepid=2` a living process of another user has no entry, so a missing one says nothing.
    Hidden,
}

impl ProcessEntry {
    fn read(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        match stat.ok().as_deref().and_then(parse_stat) {
            Some((state, started)) => Self::Shown { state, started },
            None => Self::Hidden,
        }
    }
}

/// What `kill(pid, 0)` says of a process. No mount option of `/proc` changes it.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// A process of this number exists; whether it is ours to signal does not matter.
    Exists,
    NoProcess,
    Unknown,
}

impl Probed {
    fn ask(pid: u32) -> Self {
        // Zero and negative numbers would name process groups.
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Self::Unknown;
        };
        match rustix::process::test_kill_process(pid) {
            Ok(()) | Err(Errno::PERM) => Self::Exists,
            Err(Errno::SRCH) => Self::NoProcess,
            Err(_) => Self::Unknown,
        }
    }
}

/// Judges a process by what can be seen of it. Without a readable entry its number may belong to the
/// holder or to a later process: that it exists proves neither.
fn judge(entry: ProcessEntry, started: u64, probe: impl FnOnce() -> Probed) -> Presence {
    match entry {
        ProcessEntry::Shown { started: shown, .. } if shown != started => Presence::Gone,
        // A zombie has ended: it waits to be collected and does nothing any more.
        ProcessEntry::Shown {
            state: 'Z' | 'X', ..
        } => Presence::Gone,
        ProcessEntry::Shown { .. } => Presence::Alive,
        ProcessEntry::Hidden => match probe() {
            Probed::NoProcess => Presence::Gone,
            Probed::Exists | Probed::Unknown => Presence::Unseen,
        },
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

/// Says whether a process of this boot and process-id namespace is not provably gone. After a reboot
/// and in another container nothing is known of it, and the lease decides.
pub(crate) fn may_live_here(holder: &Holder) -> bool {
    is_here(holder) && presence(holder) != Presence::Gone
}

/// Whether the numbers in `/proc` are those of this process's own namespace. `unshare --pid` without
/// `--mount-proc` leaves a `/proc` that shows other processes under our numbers.
fn proc_is_of_this_namespace() -> bool {
    let this = std::fs::read_link("/proc/self").ok();
    let number = this.as_deref().and_then(|link| link.to_str()?.parse().ok());
    number == Some(std::process::id())
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
    match ProcessEntry::read(pid) {
        ProcessEntry::Shown { started, .. } => Some(started),
        ProcessEntry::Hidden => None,
    }
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
    fn missing_entry_proves_nothing_without_the_kernels_word() {
        let shown = |state, started| ProcessEntry::Shown { state, started };
        let table = [
            (shown('S', 7), Probed::Exists, Presence::Alive),
            (shown('Z', 7), Probed::Exists, Presence::Gone),
            (shown('X', 7), Probed::Exists, Presence::Gone),
            (shown('S', 8), Probed::Exists, Presence::Gone),
            (ProcessEntry::Hidden, Probed::NoProcess, Presence::Gone),
            (ProcessEntry::Hidden, Probed::Exists, Presence::Unseen),
            (ProcessEntry::Hidden, Probed::Unknown, Presence::Unseen),
        ];
        for (entry, probed, presence) in table {
            assert_eq!(judge(entry, 7, || probed), presence, "{entry:?} {probed:?}");
        }
    }

    #[test]
    fn numbers_that_name_no_single_process_are_never_signalled() {
        for pid in [0, 1 << 31, u32::MAX] {
            assert!(matches!(Probed::ask(pid), Probed::Unknown), "{pid}");
        }
        assert!(matches!(Probed::ask(std::process::id()), Probed::Exists));
        assert!(matches!(Probed::ask(1), Probed::Exists), "even if not ours");
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
