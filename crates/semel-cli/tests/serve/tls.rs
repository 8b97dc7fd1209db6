//! Encrypted connections, seen by clients that are not ours: curl and openssl.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use semel_testkit::certificates::{Authority, Vouched};

use crate::harness::World;
use crate::server::{Server, wait_until};

/// Puts a certificate and its key where the server looks for them.
fn install(world: &World, vouched: &Vouched) {
    for (from, name) in [(&vouched.key, "tls.key"), (&vouched.certificate, "tls.pem")] {
        // As those do who renew certificates: whole files change their place.
        let unfinished = world.path(&format!("{name}.new"));
        fs::copy(from, &unfinished).expect("it can be copied");
        fs::rename(&unfinished, world.path(name)).expect("it gets its name");
    }
}

fn encrypted(world: &World) -> Command {
    let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
    command
        .env("SEMEL_SERVE_TLS_CERT", world.path("tls.pem"))
        .env("SEMEL_SERVE_TLS_KEY", world.path("tls.key"));
    command
}

/// Asks whether the server lives, as a client that trusts this authority only.
fn alive(server: &Server, authority: &Path) -> (bool, String) {
    let url = format!("https://127.0.0.1:{}/healthz", server.port());
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--cacert"])
        .arg(authority)
        .arg(url)
        .output()
        .expect("curl is installed (`./test` does it)");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

/// Returns the number of the certificate that the server shows.
fn shown(server: &Server) -> String {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{} | openssl x509 -noout -serial",
        server.port()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl is installed (`./test` does it)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn callers_who_trust_the_authority_are_served_and_nobody_in_plain_text() {
    let world = World::new();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    install(&world, &ours.vouch("server", "IP:127.0.0.1"));
    let server = Server::spawn(&mut encrypted(&world));
    assert_eq!(
        alive(&server, &ours.certificate()),
        (true, "ok\n".to_owned())
    );
    let (trusted, said) = alive(&server, &other.certificate());
    assert!(!trusted, "{said}");
    let mut plain = server.connect();
    plain
        .send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it is sent");
    assert!(plain.answer().is_err(), "it was answered in plain text");
    // Those who are encrypted do not notice.
    assert!(alive(&server, &ours.certificate()).0);
}

#[test]
fn a_new_certificate_is_shown_without_a_restart_and_a_bad_one_is_not() {
    let world = World::new();
    let authority = Authority::new("ours");
    install(&world, &authority.vouch("first", "IP:127.0.0.1"));
    let server = Server::spawn(&mut encrypted(&world));
    let first = shown(&server);
    assert!(first.starts_with("serial="), "{first:?}");
    fs::write(world.path("tls.pem"), "nonsense").expect("it can be written");
    let refused = server.wait_for_line(|line| {
        (line["message"] == "the new certificate cannot be used").then_some(())
    });
    assert!(refused.is_some(), "{}", server.said());
    assert_eq!(shown(&server), first);
    install(&world, &authority.vouch("second", "IP:127.0.0.1"));
    wait_until("the new certificate is shown", || {
        let now = shown(&server);
        now.starts_with("serial=") && now != first
    });
    assert!(alive(&server, &authority.certificate()).0);
}

#[test]
fn what_cannot_be_used_is_said_at_the_start() {
    let world = World::new();
    let (status, said) = Server::try_spawn(&mut encrypted(&world)).expect_err("no files");
    assert_eq!(status.code(), Some(64), "{said}");
    assert!(said.contains("tls.pem"), "{said}");
    let mut half = encrypted(&world);
    half.env_remove("SEMEL_SERVE_TLS_KEY");
    let (status, said) = Server::try_spawn(&mut half).expect_err("no key");
    assert_eq!(status.code(), Some(64), "{said}");
    assert!(said.contains("serve.tls_key"), "{said}");
}
