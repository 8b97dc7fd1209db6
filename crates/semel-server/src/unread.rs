//! How much of what was written waits to be read at the other end.

use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat};

/// Says how many of the bytes that were written to a pipe or a socket its other end has not taken yet: of a pipe
/// or a local socket those that no process has read, of TCP those that the peer has not acknowledged.
///
/// `None` where nobody can tell: of a file, a terminal, or on a system that does not say.
pub(crate) fn unread(fd: impl AsFd) -> Option<usize> {
    let kind = FileType::from_raw_mode(fstat(&fd).ok()?.st_mode);
    match kind {
        // Both ends of a pipe tell what is in it.
        FileType::Fifo => usize::try_from(rustix::io::ioctl_fionread(&fd).ok()?).ok(),
        FileType::Socket => queue::untaken(fd),
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => None,
    }
}

#[cfg(target_os = "linux")]
mod queue {
    #![expect(
        unsafe_code,
        reason = "no library that is used here has a safe name for this one question to the kernel"
    )]

    use std::ffi::c_int;
    use std::os::fd::AsFd;

    use rustix::ioctl::{Getter, Opcode, ioctl};

    /// `SIOCOUTQ`: the size of a socket's send queue, `int *` (tcp(7), unix(7)).
    const SIOCOUTQ: Opcode = 0x5411;

    /// Asks how much of the send queue of a socket is not taken yet.
    pub(super) fn untaken(fd: impl AsFd) -> Option<usize> {
        // SAFETY: The kernel writes one int to the place that it is given, and nothing else, for every socket
        // that knows the question; others refuse it.
        let queued = unsafe { ioctl(fd, Getter::<SIOCOUTQ, c_int>::new()) };
        usize::try_from(queued.ok()?).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod queue {
    use std::os::fd::AsFd;

    /// This system is not asked.
    pub(super) fn untaken(_: impl AsFd) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pipe_tells_what_nobody_has_read() {
        let (mut reader, mut writer) = std::io::pipe().expect("there are pipes");
        assert_eq!(unread(&writer), Some(0));
        writer.write_all(b"seven..").expect("there is room");
        assert_eq!(unread(&writer), Some(7));
        reader.read_exact(&mut [0; 5]).expect("it is there");
        assert_eq!(unread(&writer), Some(2));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_local_socket_tells_what_nobody_has_read() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        ours.write_all(b"answer").expect("there is room");
        // How the kernel counts a piece of a local socket is its own; that some of it is there is certain.
        assert!(unread(&ours).expect("it is a socket") > 0);
        theirs.read_exact(&mut [0; 6]).expect("it is there");
        assert_eq!(unread(&ours), Some(0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn tcp_tells_what_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has one");
        let theirs = TcpStream::connect(address).expect("it listens");
        let (mut ours, _) = listener.accept().expect("it connected");
        assert_eq!(unread(&ours), Some(0));
        // More than both buffers hold: the rest waits here, as nobody reads.
        ours.set_nonblocking(true).expect("it can be");
        while ours.write(&[7; 65_536]).is_ok() {}
        assert!(unread(&ours).expect("it is a socket") > 0);
        drop(theirs);
    }

    #[test]
    fn nobody_can_tell_of_a_file() {
        let file = tempfile::tempfile().expect("there is room");
        assert_eq!(unread(&file), None);
    }
}
