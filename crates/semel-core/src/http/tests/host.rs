//! Host fields, read strictly.

use crate::http::{Host, HostError};

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn hosts_are_read_in_one_way_or_not_at_all() {
    let long_label = "a".repeat(63);
    let long = [
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61),
    ]
    .join(".");
    let accepted: &[(&str, &str, Option<u16>)] = &[
        ("localhost", "localhost", None),
        ("LocalHost:7363", "localhost:7363", Some(7363)),
        ("localhost.", "localhost.", None),
        ("localhost.:80", "localhost.:80", Some(80)),
        ("127.0.0.1:1", "127.0.0.1:1", Some(1)),
        ("127.0.0.1:65535", "127.0.0.1:65535", Some(65_535)),
        ("localhost:00080", "localhost:80", Some(80)),
        ("[::1]", "[::1]", None),
        ("[0:0::1]:443", "[::1]:443", Some(443)),
        ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]", None),
        ("my_service:8080", "my_service:8080", Some(8080)),
        ("api-1.example", "api-1.example", None),
        ("1.example", "1.example", None),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
        (&long_label, &long_label, None),
        (&long, &long, None),
    ];
    for (text, written, port) in accepted {
        let host = host(text);
        assert_eq!(host.to_string(), *written, "{text}");
        assert_eq!(host.port(), *port, "{text}");
    }
    let refused = [
        "",
        " ",
        ".",
        "..",
        ":",
        ":80",
        "localhost:",
        "localhost:0",
        "localhost:99999",
        "localhost:65536",
        "localhost:000080",
        "localhost:+80",
        "localhost:-1",
        "localhost:8 0",
        "localhost:80:80",
        "localhost:http",
        " localhost",
        "localhost ",
        "local host",
        "localhost\t",
        "localhost\0",
        "localhost..",
        "a..b",
        ".localhost",
        "user@localhost",
        "user:word@localhost",
        "localhost/",
        "localhost?",
        "localhost#",
        "localhost\\",
        "localhost, evil.example",
        "http://localhost",
        "*",
        "%6cocalhost",
        "b\u{fc}cher.example",
        "127.0.0.1.",
        "127.1",
        "127.0.0.256",
        "127.0.0.01",
        "2130706433",
        "a.1",
        "a.1.",
        "::1",
        "::1:80",
        "[::1",
        "[::1:80",
        "::1]",
        "[::1]x",
        "[::1]:",
        "[::1]:99999",
        "[::1]80",
        "[[::1]]",
        "[127.0.0.1]",
        "[localhost]",
        "[]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[v1.x]",
    ];
    for text in refused {
        assert_eq!(Host::parse(text), Err(HostError), "{text:?}");
    }
    for text in [
        format!("{long_label}a"),
        format!("{long}e"),
        "a.".repeat(127) + "a",
    ] {
        assert_eq!(Host::parse(&text), Err(HostError), "{text}");
    }
}

#[test]
fn only_this_machine_is_loopback() {
    for text in [
        "localhost",
        "LOCALHOST.:1",
        "127.0.0.1",
        "127.9.9.9",
        "[::1]:5",
    ] {
        assert!(host(text).is_loopback(), "{text}");
    }
    for text in [
        "localhost.evil.example",
        "localhost.localdomain",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[2001:db8::1]",
    ] {
        assert!(!host(text).is_loopback(), "{text}");
    }
}

#[test]
fn known_host_counts_at_every_port_unless_it_names_one() {
    for (asked, known, is_meant) in [
        ("api.example", "API.example", true),
        ("api.example:8443", "api.example", true),
        ("api.example.", "api.example", true),
        ("api.example:8443", "api.example:8443", true),
        ("api.example", "api.example:8443", false),
        ("api.example:80", "api.example:8443", false),
        ("xapi.example", "api.example", false),
        ("[::1]:80", "[::1]", true),
        ("127.0.0.1", "localhost", false),
    ] {
        assert_eq!(
            host(asked).is_meant_by(&host(known)),
            is_meant,
            "{asked} {known}"
        );
    }
}
