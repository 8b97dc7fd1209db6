//! Which web pages may call a server.

use crate::http::Host;
use crate::http::site::{Admitted, Foreign, Origin, Provenance, Resource, Scheme, admit};

const TRUSTED: &str = "https://ops.example";

fn own() -> Origin {
    Origin::of(
        Scheme::Http,
        &Host::parse("localhost:7363").expect("a host"),
    )
}

/// Judges a request for something that is no page.
fn call(origin: Option<&str>, site: Option<&str>) -> Result<Admitted, Foreign> {
    let all = ["GET", "POST", "OPTIONS"].map(|method| {
        let request = Provenance {
            method,
            origin,
            site,
            mode: Some("navigate"),
            destination: Some("document"),
        };
        admit(
            &request,
            Resource::Call,
            &own(),
            &[TRUSTED.to_owned(), "null".to_owned()],
        )
    });
    assert!(all.iter().all(|one| *one == all[0]), "{origin:?} {site:?}");
    all[0]
}

#[test]
fn only_the_own_origin_trusted_ones_and_programs_call() {
    const OWN: &str = "http://localhost:7363";
    let sites = [
        None,
        Some("same-origin"),
        Some("none"),
        Some("same-site"),
        Some("cross-site"),
        Some("SAME-ORIGIN"),
        Some(""),
    ];
    for site in sites {
        let is_ours = matches!(site, None | Some("same-origin" | "none"));
        let expected = if is_ours {
            Ok(Admitted::Own)
        } else {
            Err(Foreign::Site)
        };
        assert_eq!(call(None, site), expected, "{site:?}");
        assert_eq!(call(Some(OWN), site), expected, "{site:?}");
        assert_eq!(call(Some(TRUSTED), site), Ok(Admitted::Trusted), "{site:?}");
        for origin in [
            "null",
            "",
            "http://localhost",
            "http://localhost:7364",
            "http://localhost.:7363",
            "http://127.0.0.1:7363",
            "https://localhost:7363",
            "http://evil.example",
            "http://evil.example:7363",
            "http://localhost:7363/",
            "http://localhost:7363.evil.example",
            "http://user@localhost:7363",
            "HTTP://localhost:7363",
            "localhost:7363",
            "file://",
            "https://ops.example.evil",
            "https://ops.example:443",
            "https://OPS.example",
        ] {
            let judged = call(Some(origin), site);
            assert_eq!(judged, Err(Foreign::Origin), "{origin} {site:?}");
        }
    }
}

#[test]
fn usual_port_need_not_be_said() {
    let host = |text| Host::parse(text).expect("a host");
    for (scheme, said, origin) in [
        (Scheme::Http, "a.example", "http://a.example"),
        (Scheme::Http, "a.example:80", "http://a.example"),
        (Scheme::Http, "A.example", "http://a.example:80"),
        (Scheme::Https, "a.example", "https://a.example"),
        (Scheme::Https, "[::1]:443", "https://[::1]"),
    ] {
        let own = Origin::of(scheme, &host(said));
        assert_eq!(Origin::parse(origin), Some(own), "{said} {origin}");
    }
    let http = Origin::of(Scheme::Http, &host("a.example"));
    for origin in [
        "https://a.example",
        "http://a.example:443",
        "http://a.example.",
    ] {
        assert_ne!(Origin::parse(origin).as_ref(), Some(&http), "{origin}");
    }
}

#[test]
fn links_lead_to_pages_and_frames_and_forms_do_not() {
    let link = Provenance {
        method: "GET",
        origin: None,
        site: Some("cross-site"),
        mode: Some("navigate"),
        destination: Some("document"),
    };
    let judge = |request| admit(&request, Resource::Page, &own(), &[]);
    assert_eq!(judge(link), Ok(Admitted::Own));
    let site = Some("same-site");
    assert_eq!(judge(Provenance { site, ..link }), Ok(Admitted::Own));
    assert_eq!(
        admit(&link, Resource::Call, &own(), &[]),
        Err(Foreign::Site)
    );
    for other in [
        Provenance {
            method: "POST",
            ..link
        },
        Provenance {
            method: "HEAD",
            ..link
        },
        Provenance {
            method: "get",
            ..link
        },
        Provenance {
            mode: Some("no-cors"),
            ..link
        },
        Provenance {
            mode: Some("cors"),
            ..link
        },
        Provenance { mode: None, ..link },
        Provenance {
            destination: Some("iframe"),
            ..link
        },
        Provenance {
            destination: Some("image"),
            ..link
        },
        Provenance {
            destination: Some("empty"),
            ..link
        },
        Provenance {
            destination: None,
            ..link
        },
    ] {
        assert_eq!(judge(other), Err(Foreign::Site), "{other:?}");
    }
    let origin = Some("http://evil.example");
    assert_eq!(judge(Provenance { origin, ..link }), Err(Foreign::Origin));
}
