//! Requests that a browser sends for a web page: whose page it is, and whether it may call a server that trusts its
//! callers by where they are.
//!
//! A page of any site can make its visitor's browser call a server on the visitor's machine or network, and the
//! server sees an ordinary local caller. Browsers say for whom they send a request: in `Origin`, and in
//! `Sec-Fetch-Site`, which pages cannot set. Programs send neither.

use super::host::Host;

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Encrypted.
    Https,
}

impl Scheme {
    const fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// An origin: a scheme, a host and a port (RFC 6454). Two are the same only where all three are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: Scheme,
    /// With its port.
    host: Host,
}

impl Origin {
    /// Makes the origin of the pages that a server gives under a host.
    #[must_use]
    pub fn of(scheme: Scheme, host: &Host) -> Self {
        let host = host.at_port(scheme.usual_port());
        Self { scheme, host }
    }

    /// Reads an `Origin` header; `None` for `null` and for everything else that names no place on the web.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, host) = text.split_once("://")?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        Some(Self::of(scheme, &Host::parse(host).ok()?))
    }
}

/// What a request says about where it comes from. A header that is there twice, or is no text, is given as empty: it
/// says nothing that can be believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provenance<'a> {
    /// `GET`, `POST` and so on.
    pub method: &'a str,
    /// `Origin`.
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub site: Option<&'a str>,
    /// `Sec-Fetch-Mode`.
    pub mode: Option<&'a str>,
    /// `Sec-Fetch-Dest`.
    pub destination: Option<&'a str>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A page for people that anybody may be led to, the same for everybody.
    Page,
    /// Everything else.
    Call,
}

/// Why a request may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// No page of another site sends it.
    Own,
    /// A page of a trusted origin sends it, and may read the answer.
    Trusted,
}

/// Why a request may not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// `Origin` names neither this server nor a trusted origin.
    Origin,
    /// `Sec-Fetch-Site` says that a page of another site sends it.
    Site,
}

/// Says whether a request may come in, by what its browser says about it.
///
/// | Origin | Sec-Fetch-Site | |
/// |---|---|---|
/// | in `trusted` | any | passes |
/// | the own one | none, `same-origin`, `none` | passes |
/// | any other, `null` | any | refused |
/// | none | none (a program), `same-origin`, `none` (a typed address) | passes |
/// | none | `same-site`, `cross-site`, any other | refused, unless it leads a person to a page |
///
/// # Errors
/// Says which of the two headers is the reason.
pub fn admit(
    request: &Provenance<'_>,
    resource: Resource,
    own: &Origin,
    trusted: &[String],
) -> Result<Admitted, Foreign> {
    let is_same_site = matches!(request.site, None | Some("same-origin" | "none"));
    match request.origin {
        // Frames in a sandbox, files and redirects across sites all have this one: it names no page.
        Some("null") => Err(Foreign::Origin),
        Some(origin) if trusted.iter().any(|known| known == origin) => Ok(Admitted::Trusted),
        Some(origin) if Origin::parse(origin).as_ref() != Some(own) => Err(Foreign::Origin),
        Some(_) | None if is_same_site => Ok(Admitted::Own),
        None if resource == Resource::Page && leads_to_page(request) => Ok(Admitted::Own),
        Some(_) | None => Err(Foreign::Site),
    }
}

/// Says whether a request opens a page in a window of its own: a link somewhere else leads there. What a frame or a
/// script asks for does not.
fn leads_to_page(request: &Provenance<'_>) -> bool {
    request.method == "GET"
        && request.mode == Some("navigate")
        && request.destination == Some("document")
}
