//! TLS to PostgreSQL: who is spoken to, and who is not.

use std::path::Path;
use std::sync::Arc;

use semel::store::StoreError;
use semel::store::postgres::PostgresStore;
use semel::{Engine, Key};
use semel_testkit::certificates::Authority;
use semel_testkit::conformance::scratch;
use semel_testkit::postgres::{Cluster, Setup};

/// Lets everybody in by TLS only; the others say who asks for a client's certificate and for a password.
const DOORS: &str = "hostssl all certified 127.0.0.1/32 cert\n\
                     hostssl all locked 127.0.0.1/32 scram-sha-256\n\
                     hostssl all all 127.0.0.1/32 trust";

/// The name that the servers' certificates have; nobody can look it up.
const NAME: &str = "db.semel.test";

fn start(setup: Setup) -> Cluster {
    let doors = DOORS.to_owned();
    Cluster::start_with(&Setup { doors, ..setup })
}

/// The URL of the database `postgres`, with a name that leads to the server, and these parameters.
fn url(cluster: &Cluster, user: &str, name: &str, parameters: &str) -> String {
    let port = cluster.port();
    format!("postgres://{user}@{name}:{port}/postgres?hostaddr=127.0.0.1&{parameters}")
}

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    Ok(PostgresStore::open(url).await?.without_notes())
}

/// Expects that a person must change something, and what is said about it.
async fn refused(url: &str, said: &[&str]) {
    let answer = open(url).await;
    let Err(StoreError::Refused(text)) = answer else {
        panic!("{url}: {answer:?}");
    };
    for said in said {
        assert!(text.contains(said), "{url}: {text}");
    }
    assert!(!text.contains("s3cret"), "{text}");
}

/// How the server sees the connections of a node.
fn seen(cluster: &Cluster) -> String {
    cluster.sql(
        "postgres",
        "SELECT DISTINCT ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'semel'",
    )
}

fn root(path: &Path) -> String {
    format!("sslrootcert={}", path.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_proves_its_name_is_used_for_a_whole_cycle() {
    let authority = Authority::new("ours");
    let cluster = start(
        authority
            .vouch("server", &format!("DNS:{NAME}"))
            .setup(None),
    );
    let parameters = format!("{}&connections=2", root(&authority.certificate()));
    let url = url(&cluster, "semel", NAME, &parameters);
    let store = open(&url).await.expect("it is verified");
    let engine = Engine::builder().store(Arc::new(store)).sweep_every(None);
    let engine = engine.start().await.expect("an engine starts");
    for replayed in [false, true] {
        let key = Key::new("order-7").expect("a key");
        let call = engine.effect("pay", key);
        let done = call.run(|_| async { Ok(42) }).await.expect("it is done");
        assert_eq!((done.value, done.replayed), (42, replayed));
    }
    assert_eq!(seen(&cluster), "t|");
    let verified = engine.verify().await.expect("it is verified");
    assert_eq!(verified.difference, None);
}

#[tokio::test]
async fn a_server_must_prove_as_much_as_the_url_asks_for() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let cluster = start(
        authority
            .vouch("server", &format!("DNS:{NAME}"))
            .setup(None),
    );
    let (ours, others) = (root(&authority.certificate()), root(&other.certificate()));
    for parameters in [
        "sslmode=require",
        "sslmode=prefer",
        "",
        &format!("sslmode=require&{ours}"),
        &format!("sslmode=verify-ca&{ours}"),
    ] {
        let url = url(&cluster, "semel:s3cret", "elsewhere.test", parameters);
        let store = open(&url).await;
        let _store = store.unwrap_or_else(|error| panic!("{parameters}: {error}"));
        assert_eq!(seen(&cluster), "t|", "{parameters}");
    }
    let unknown = ["UnknownIssuer", "sslrootcert=PATH"];
    // A system may trust nobody at all.
    let unlisted = ["sslrootcert=PATH"];
    let misnamed = ["elsewhere.test", NAME, "certificate must name"];
    for (name, parameters, said) in [
        (NAME, format!("sslmode=verify-full&{others}"), &unknown[..]),
        (NAME, format!("sslmode=verify-ca&{others}"), &unknown),
        (NAME, format!("sslmode=require&{others}"), &unknown),
        (NAME, others, &unknown),
        (NAME, "sslmode=verify-full".to_owned(), &unlisted),
        (NAME, "sslmode=verify-ca".to_owned(), &unlisted),
        (NAME, "sslrootcert=system".to_owned(), &unlisted),
        (
            "elsewhere.test",
            format!("sslmode=verify-full&{ours}"),
            &misnamed,
        ),
        ("elsewhere.test", ours, &misnamed),
        (
            NAME,
            "sslmode=disable".to_owned(),
            &["no encryption", "sslmode"],
        ),
    ] {
        refused(&url(&cluster, "semel:s3cret", name, &parameters), said).await;
    }
}

#[tokio::test]
async fn a_certificate_that_signed_itself_counts_when_it_was_named() {
    let (itself, other) = (Authority::new(NAME), Authority::new("other"));
    let cluster = start(itself.itself().setup(None));
    let named = root(&itself.certificate());
    let verified = url(
        &cluster,
        "semel",
        NAME,
        &format!("sslmode=verify-ca&{named}"),
    );
    open(&verified).await.expect("it is the one that was named");
    // It has a common name only, which does not count any more.
    let full = url(&cluster, "semel", NAME, &named);
    refused(&full, &["subjectAltName", NAME]).await;
    let other = url(&cluster, "semel", NAME, &root(&other.certificate()));
    refused(&other, &["sslrootcert"]).await;
}

#[tokio::test]
async fn a_server_without_tls_gets_nothing_unless_plain_text_was_asked_for() {
    let authority = Authority::new("ours");
    let cluster = Cluster::start_with(&Setup {
        tcp: true,
        doors: "host all all 127.0.0.1/32 trust".to_owned(),
        ..Setup::default()
    });
    for parameters in ["", "sslmode=prefer", "sslmode=disable"] {
        let url = url(&cluster, "semel", "localhost", parameters);
        let store = open(&url).await;
        let _store = store.unwrap_or_else(|error| panic!("{parameters}: {error}"));
        assert_eq!(seen(&cluster), "f|", "{parameters}");
    }
    let ours = root(&authority.certificate());
    for parameters in ["sslmode=require", "sslmode=verify-full", &ours] {
        let url = url(&cluster, "semel:s3cret", "localhost", parameters);
        refused(&url, &["does not support TLS", "ssl = on"]).await;
    }
    let socket = cluster.url("semel", "postgres");
    for parameters in ["sslmode=require", "sslmode=verify-full", &ours] {
        refused(&format!("{socket}?{parameters}"), &["Unix socket"]).await;
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_the_server_asks_for_one() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let server = authority.vouch("server", &format!("DNS:{NAME}"));
    let cluster = start(server.setup(Some(&authority)));
    cluster.sql("postgres", "CREATE ROLE certified LOGIN SUPERUSER");
    let ours = root(&authority.certificate());
    let shown = |vouched: &semel_testkit::certificates::Vouched| {
        let (certificate, key) = (vouched.certificate.display(), vouched.key.display());
        let parameters = format!("{ours}&sslcert={certificate}&sslkey={key}");
        url(&cluster, "certified", NAME, &parameters)
    };
    let store = open(&shown(&authority.vouch("certified", ""))).await;
    let _store = store.expect("it is let in");
    assert_eq!(seen(&cluster), "t|/CN=certified");

    let without = url(&cluster, "certified", NAME, &ours);
    refused(&without, &["client certificate", "sslcert"]).await;
    refused(&shown(&authority.vouch("somebody", "")), &["pg_hba.conf"]).await;
    refused(
        &shown(&other.vouch("certified", "")),
        &["sslcert and sslkey"],
    )
    .await;
}

#[tokio::test]
async fn a_password_is_bound_to_the_connection() {
    let authority = Authority::new("ours");
    let cluster = start(
        authority
            .vouch("server", &format!("DNS:{NAME}"))
            .setup(None),
    );
    let role = "CREATE ROLE locked LOGIN SUPERUSER PASSWORD 's3cret'; \
                CREATE ROLE open LOGIN SUPERUSER";
    cluster.sql("postgres", role);
    let bound = format!("{}&channel_binding=require", root(&authority.certificate()));
    let store = open(&url(&cluster, "locked:s3cret", NAME, &bound)).await;
    store.expect("the password is bound to the connection");
    // Where no password is asked for, nothing binds.
    refused(
        &url(&cluster, "open:s3cret", NAME, &bound),
        &["channel_binding"],
    )
    .await;
    let wrong = url(
        &cluster,
        "locked:s3cret-not",
        NAME,
        &root(&authority.certificate()),
    );
    refused(&wrong, &["check user and password"]).await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let (authority, directory) = (Authority::new("ours"), scratch());
    let file = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("it is changed");
        path.display().to_string()
    };
    let ours = authority.vouch("ours", "");
    let key = std::fs::read_to_string(&ours.key).expect("it is read");
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let (text, broken) = (file("text", "hello", 0o600), file("broken", broken, 0o600));
    let (junk, known) = (file("junk", junk, 0o600), file("known", &key, 0o644));
    let (certificate, key) = (ours.certificate.display(), ours.key.display());
    let others = authority.vouch("others", "");
    for (parameters, said) in [
        (
            "sslrootcert=/nowhere/ca.pem".to_owned(),
            "sslrootcert: /nowhere/ca.pem cannot be read",
        ),
        (format!("sslrootcert={text}"), "holds no certificate"),
        (format!("sslrootcert={broken}"), "no PEM file"),
        (
            format!("sslrootcert={junk}"),
            "no certificate that can be used",
        ),
        (format!("sslcert={certificate}"), "name both or none"),
        (format!("sslkey={key}"), "name both or none"),
        (
            format!("sslcert={certificate}&sslkey={text}"),
            "holds no key",
        ),
        (format!("sslcert={certificate}&sslkey={known}"), "chmod 600"),
        (format!("sslcert={text}&sslkey={key}"), "sslcert: "),
        (
            format!("sslcert={certificate}&sslkey={}", others.key.display()),
            "cannot be used together",
        ),
    ] {
        refused(
            &format!("postgres://a:s3cret@localhost/x?{parameters}"),
            &[said],
        )
        .await;
    }
}
