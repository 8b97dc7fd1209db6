use std::collections::BTreeSet;

use crate::mcp::union::names::{Found, Names, Place};

fn names(servers: &[(&str, &[&str])], reserved: &[&str]) -> Names {
    let own = servers.iter().map(|(_, own)| {
        let own = own.iter().map(|&name| name.to_owned());
        own.collect::<BTreeSet<_>>()
    });
    let names = servers.iter().map(|(name, _)| (*name).to_owned());
    Names::of(names.collect(), own.collect(), reserved)
}

fn at(at: usize, name: &str) -> Found {
    let name = name.to_owned();
    Found::At(Place { at, name })
}

#[test]
fn a_name_that_two_have_gets_its_server_before_it() {
    let names = names(
        &[
            ("shop", &["charge", "refund"]),
            ("bank", &["charge", "balance"]),
        ],
        &[],
    );
    for (server, own, shown) in [
        (0, "charge", "shop_charge"),
        (0, "refund", "refund"),
        (1, "charge", "bank_charge"),
        (1, "balance", "balance"),
    ] {
        assert_eq!(names.shown(server, own), shown);
        assert_eq!(names.find(shown), at(server, own));
    }
    let both = ["shop_charge", "bank_charge"].map(str::to_owned).to_vec();
    assert_eq!(names.find("charge"), Found::Ambiguous(both));
    assert_eq!(names.find("other"), Found::Unknown);
    assert_eq!(names.find("bank_refund"), Found::Unknown);
}

#[test]
fn the_longer_name_stays_when_the_clash_is_gone() {
    let names = names(&[("shop", &["charge"]), ("bank", &["balance"])], &[]);
    assert_eq!(names.shown(0, "charge"), "charge");
    assert_eq!(names.find("charge"), at(0, "charge"));
    assert_eq!(names.find("shop_charge"), at(0, "charge"));
}

#[test]
fn no_two_have_one_name_whatever_they_are_called() {
    let servers: &[(&str, &[&str])] = &[
        ("a", &["b_c", "x"]),
        ("a_b", &["c", "x"]),
        ("b", &["c", "b_c", "a_b_c", "x"]),
        ("c", &["a_x", "b_c", "semel_list"]),
    ];
    let names = names(servers, &["semel_list"]);
    let mut seen = BTreeSet::new();
    for (server, (_, own)) in servers.iter().enumerate() {
        for own in *own {
            let shown = names.shown(server, own);
            assert!(seen.insert(shown.clone()), "{shown}");
            assert_eq!(names.find(&shown), at(server, own), "{shown}");
        }
    }
    assert!(!seen.contains("semel_list"));
    assert_eq!(names.shown(3, "semel_list"), "c_semel_list");
}

#[test]
fn names_stay_short_enough() {
    let long = "t".repeat(128);
    let own: &[&str] = &[&long];
    let server = "s".repeat(32);
    let names = names(&[(&server, own), ("other", own)], &[]);
    for server in 0..2 {
        let shown = names.shown(server, &long);
        assert!(shown.len() <= 128, "{shown}");
        assert_eq!(names.find(&shown), at(server, &long));
    }
}

#[test]
fn what_can_be_meant_twice_is_not_guessed() {
    // `a_b` is a tool of x, and what the tool `b` of the server a would be called.
    let names = names(&[("a", &["b"]), ("c", &["b"]), ("x", &["a_b"])], &[]);
    let Found::Ambiguous(shown) = names.find("a_b") else {
        panic!("{:?}", names.find("a_b"));
    };
    assert_eq!(shown.len(), 2);
    assert_eq!(names.find(&shown[0]), at(0, "b"));
    assert_eq!(names.find(&shown[1]), at(2, "a_b"));
}
