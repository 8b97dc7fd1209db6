//! A server of HTTP/2.

use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;

/// How HTTP/2 is spoken without encryption.
pub(super) fn http2() -> Options {
    Options {
        version: Version::Http2,
        ..Options::default()
    }
}

/// A request that came, and what answers it.
pub(super) type Come = (Request<RecvStream>, SendResponse<Bytes>);

/// A connection that is driven while a test answers what comes on it.
pub(super) struct Driven {
    come: mpsc::UnboundedReceiver<Come>,
    pub(super) task: JoinHandle<()>,
}

impl Driven {
    pub(super) async fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        streams_max: u32,
    ) -> Self {
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(streams_max);
        let connection: Connection<_, Bytes> = soon(builder.handshake(stream))
            .await
            .expect("it speaks HTTP/2");
        let (sender, come) = mpsc::unbounded_channel();
        let task = tokio::spawn(drive(connection, sender));
        Self { come, task }
    }

    pub(super) async fn next(&mut self) -> Come {
        soon(self.come.recv()).await.expect("it goes on")
    }

    pub(super) async fn answer(&mut self, text: &'static str) {
        let (_, mut respond) = self.next().await;
        answer(&mut respond, text);
    }
}

async fn drive(
    mut connection: Connection<impl AsyncRead + AsyncWrite + Unpin, Bytes>,
    come: mpsc::UnboundedSender<Come>,
) {
    while let Some(Ok(next)) = connection.accept().await {
        if come.send(next).is_err() {
            return;
        }
    }
}

pub(super) fn answer(respond: &mut SendResponse<Bytes>, text: &'static str) {
    let mut stream = respond
        .send_response(Response::new(()), false)
        .expect("it is open");
    stream
        .send_data(Bytes::from_static(text.as_bytes()), true)
        .expect("it is open");
}
