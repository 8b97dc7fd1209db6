//! Where callers come in: an address or a socket in the file system.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::config::Listen;
use crate::socket::Socket;

/// An open door.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket's file; removed at the end.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It is left over at worst, and the next start removes it.
        drop(std::fs::remove_file(&self.0));
    }
}

/// A connection, of whichever kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    pub(crate) async fn open(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => {
                remove_stale(path).await?;
                // Nobody else can connect before the permissions are right: it gets its name last.
                let mut unfinished = path.clone().into_os_string();
                unfinished.push(format!(".{}", std::process::id()));
                let socket = SocketFile(unfinished.into());
                // In a container the process has the same number each time.
                remove_stale(&socket.0).await?;
                let listener = UnixListener::bind(&socket.0)?;
                std::fs::set_permissions(&socket.0, std::fs::Permissions::from_mode(0o600))?;
                std::fs::rename(&socket.0, path)?;
                Ok(Self::Unix(listener, SocketFile(path.clone())))
            }
        }
    }

    /// Says where it is, as callers write it.
    pub(crate) fn address(&self, encrypted: bool) -> io::Result<String> {
        let scheme = if encrypted { "https" } else { "http" };
        Ok(match self {
            Self::Tcp(listener) => format!("{scheme}://{}", listener.local_addr()?),
            Self::Unix(_, socket) => format!("unix:{}", socket.0.display()),
        })
    }

    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Whoever has left by now is no reason to take nobody for a while.
                drop(stream.set_nodelay(true));
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok(Socket::Unix(stream))
            }
        }
    }
}

/// Removes a socket that nobody listens at any more.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        let text = "there is a file of another kind";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server listens there",
        )),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}
