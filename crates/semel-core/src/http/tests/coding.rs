use crate::http::coding::accepts;

fn check(accepted: &[&str], coded: &[&str], expected: bool) {
    let bytes = |lines: &[&str]| -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.as_bytes().to_vec()).collect()
    };
    let (accepted, coded) = (bytes(accepted), bytes(coded));
    let read = accepts(
        accepted.iter().map(Vec::as_slice),
        coded.iter().map(Vec::as_slice),
    );
    assert_eq!(read, expected, "{accepted:?} of {coded:?}");
}

#[test]
fn c084_a_coding_is_accepted_as_rfc_9110_says() {
    // Whoever says nothing takes everything.
    check(&[], &["br"], true);
    check(&[], &[], true);
    for accepted in [
        "br",
        "gzip, br",
        "BR;q=0.001",
        "*",
        "*;q=0.5, gzip;q=0",
        "gzip;q=0, br ; q=1.0",
    ] {
        check(&[accepted], &["br"], true);
    }
    for accepted in [
        "",
        "gzip",
        "identity",
        "br;q=0",
        "br;q=0.000",
        "*;q=0",
        "*, br;q=0",
        "brotli",
    ] {
        check(&[accepted], &["br"], false);
    }
    // What is not coded needs no leave, unless it is refused.
    for accepted in ["", "gzip", "br;q=0", "*;q=0"] {
        check(&[accepted], &[], true);
    }
    check(&["gzip"], &["identity"], true);
    check(&["identity;q=0"], &["identity"], false);
    check(&["*;q=0"], &["identity"], false);
}

#[test]
fn c084_lists_and_old_names_count() {
    check(&["gzip", "br"], &["br"], true);
    check(&["gzip, br"], &["gzip", "br"], true);
    check(&["gzip, br"], &["gzip, br"], true);
    check(&["gzip"], &["gzip, br"], false);
    check(&["x-gzip"], &["gzip"], true);
    check(&["gzip"], &["X-GZIP"], true);
    check(&["compress"], &["x-compress"], true);
    check(&["x-br"], &["br"], false);
}

#[test]
fn c084_what_cannot_be_read_accepts_nothing() {
    for accepted in [
        "br;q",
        "br;q=",
        "br;q=2",
        "br;q=1.001",
        "br;q=0.0000",
        "br;q=-1",
        "br;x=1",
        "br;q=1;q=1",
        ";q=1",
        ",",
    ] {
        check(&[accepted], &["br"], false);
    }
    check(&["br;q=x, br"], &["br"], true);
}
