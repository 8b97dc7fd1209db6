//! TLS to a server: who is spoken to, and who is not.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use semel::Scope;
use semel::remote::RemoteStore;
use semel::store::StoreError;
use semel_testkit::certificates::{Authority, Vouched};
use semel_testkit::remote::{Server, caller};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::server;

/// Stands before a server and speaks TLS for it; ends with the runtime.
async fn front(server: &Server, vouched: &Vouched) -> SocketAddr {
    let certificates = CertificateDer::pem_file_iter(&vouched.certificate).expect("it reads");
    let certificates = certificates
        .collect::<Result<Vec<_>, _>>()
        .expect("it is PEM");
    let key = PrivateKeyDer::from_pem_file(&vouched.key).expect("it is a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("there are versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("they go together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let (address, behind) = (
        listener.local_addr().expect("it is bound"),
        server.address(),
    );
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.expect("it accepts");
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever does not trust us goes away.
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut behind = TcpStream::connect(behind).await.expect("it connects");
                drop(copy_bidirectional(&mut client, &mut behind).await);
            });
        }
    });
    address
}

fn url(host: &str, address: SocketAddr, authority: &Path) -> String {
    let (port, file) = (address.port(), authority.display());
    format!("https://{host}:{port}?ca={file}")
}

async fn refused(url: &str, said: &str) {
    match RemoteStore::open(url, None).await {
        Err(StoreError::Refused(text)) => assert!(text.contains(said), "{url}: {text}"),
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_proves_its_name() {
    let server = server().await;
    server.admit("a", caller("team-a", Scope::Admin));
    let authority = Authority::new("semel test");
    let vouched = authority.vouch("server", "DNS:localhost");
    let address = front(&server, &vouched).await;
    let good = url("localhost", address, &authority.certificate());
    let store = RemoteStore::open(&good, Some("a"))
        .await
        .expect("it is proven");
    let namespace = semel::store::Store::namespace(&store);
    assert_eq!(namespace.map(semel::Namespace::as_str), Some("team-a"));

    let other_name = url("127.0.0.1", address, &authority.certificate());
    refused(&other_name, "must name `127.0.0.1`").await;
    let stranger = Authority::new("stranger");
    refused(
        &url("localhost", address, &stranger.certificate()),
        "ca=PATH",
    )
    .await;
    let missing = url("localhost", address, Path::new("/nowhere/ca.pem"));
    refused(&missing, "/nowhere/ca.pem cannot be read").await;
    // Neither side takes the other's language for its own.
    let plain = RemoteStore::open(&format!("http://{address}"), None).await;
    assert!(plain.is_err(), "{plain:?}");
    let secured = url("127.0.0.1", server.address(), &authority.certificate());
    let secured = RemoteStore::open(&secured, None).await;
    assert!(
        matches!(secured, Err(StoreError::Unavailable(_))),
        "{secured:?}"
    );
}
