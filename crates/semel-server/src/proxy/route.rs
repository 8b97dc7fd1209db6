//! Which route a request takes: the first one that fits.

use axum::http::Method;
use percent_encoding::percent_decode_str;
use semel::core::http::Host;

/// What the requests of a route have in common. What is not said fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    host: Option<Host>,
    path: Option<String>,
    methods: Vec<Method>,
}

impl Matches {
    /// Fits every request.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Fits requests for this host only, at any port unless one is named.
    ///
    /// # Errors
    /// Says why that is no host.
    pub fn host(mut self, host: &str) -> Result<Self, String> {
        let host = Host::parse(host).map_err(|_| {
            format!("`{host}` is no host: write it as in `api.example` or `api.example:8443`")
        })?;
        self.host = Some(host);
        Ok(self)
    }

    /// Fits requests for this path and those below it only. Paths are compared as they are written.
    ///
    /// # Errors
    /// Says why that is no path.
    pub fn path(mut self, path: &str) -> Result<Self, String> {
        if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
            return Err(format!(
                "`{path}` is no path: it begins with a slash and has no query"
            ));
        }
        if has_dots(path) {
            return Err(format!(
                "`{path}` has `.` or `..` in it, which no route fits"
            ));
        }
        self.path = Some(path.to_owned());
        Ok(self)
    }

    /// Fits requests with one of these methods only.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Returns the host that requests must be for, without its port.
    pub(super) fn name(&self) -> Option<Host> {
        self.host.as_ref().map(Host::without_port)
    }

    /// Returns what the route is called where requests are counted: by what it is for.
    pub(super) fn label(&self) -> String {
        let host = self.host.as_ref().map(Host::to_string);
        let (host, path) = (host.as_deref(), self.path.as_deref());
        let label = format!("{}{}", host.unwrap_or("*"), path.unwrap_or("/"));
        // A label is never quoted.
        let is_plain = |c: char| c.is_ascii_graphic() && !['"', '\\', ','].contains(&c);
        label.replace(|c| !is_plain(c), "_")
    }

    fn fits(&self, method: &Method, host: &Host, path: &str) -> bool {
        let wanted = self.host.as_ref();
        let for_host = wanted.is_none_or(|wanted| host.is_meant_by(wanted));
        let below = self.path.as_deref().is_none_or(|wanted| {
            path.strip_prefix(wanted).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || wanted.ends_with('/')
            })
        });
        let by_method = self.methods.is_empty() || self.methods.contains(method);
        for_host && below && by_method
    }
}

/// Why there is no route for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// None fits.
    Found,
    /// Where the path leads depends on who reads it.
    Dots,
}

/// Finds the first route that fits a request.
///
/// A path with `.` or `..` in it is another one for whoever resolves them: where routes are chosen by their paths, it
/// would slip by the one that is meant for it.
pub(super) fn find<'a, T>(
    routes: &'a [(Matches, T)],
    method: &Method,
    host: &Host,
    path: &str,
) -> Result<&'a T, NoRoute> {
    if routes.iter().any(|(matches, _)| matches.path.is_some()) && has_dots(path) {
        return Err(NoRoute::Dots);
    }
    let found = routes
        .iter()
        .find(|(matches, _)| matches.fits(method, host, path));
    found.map(|(_, route)| route).ok_or(NoRoute::Found)
}

fn has_dots(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    // Some take a backslash for a slash, and some a semicolon for the end of a segment.
    let segments = decoded.split(['/', '\\']);
    let mut names = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    names.any(|name| name == "." || name == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a host")
    }

    fn routes() -> Vec<(Matches, &'static str)> {
        let all = Matches::all;
        vec![
            (
                all()
                    .host("API.example")
                    .expect("a host")
                    .path("/v1")
                    .expect("a path"),
                "v1 of the API",
            ),
            (all().host("api.example").expect("a host"), "the API"),
            (all().host("other.example:8443").expect("a host"), "a port"),
            (
                all()
                    .path("/pay")
                    .expect("a path")
                    .methods([Method::POST, Method::PUT]),
                "payments",
            ),
            (all().path("/below/").expect("a path"), "below"),
            (all().path("/a").expect("a path"), "a"),
        ]
    }

    #[test]
    fn the_first_route_that_fits_is_taken() {
        for (method, asked, path, route) in [
            (Method::GET, "api.example", "/v1", Some("v1 of the API")),
            (
                Method::GET,
                "api.example:80",
                "/v1/x",
                Some("v1 of the API"),
            ),
            (Method::GET, "Api.Example", "/v10", Some("the API")),
            (Method::GET, "other.example:8443", "/", Some("a port")),
            (Method::GET, "other.example", "/", None),
            (Method::GET, "xapi.example", "/v1", None),
            (Method::POST, "h", "/pay", Some("payments")),
            (Method::PUT, "h", "/pay/1", Some("payments")),
            (Method::GET, "h", "/pay", None),
            (Method::POST, "h", "/payments", None),
            (Method::GET, "h", "/below/x", Some("below")),
            (Method::GET, "h", "/below", None),
            (Method::GET, "h", "/a/b", Some("a")),
            (Method::GET, "h", "/a/", Some("a")),
            (Method::GET, "h", "/ab", None),
            (Method::GET, "h", "/A", None),
            (Method::GET, "h", "/%61", None),
            (Method::GET, "h", "//a", None),
            (Method::OPTIONS, "h", "*", None),
        ] {
            let routes = routes();
            let found = find(&routes, &method, &host(asked), path);
            let expected = route.ok_or(NoRoute::Found);
            assert_eq!(found.copied(), expected, "{method} {asked} {path}");
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_for_others_has_no_route() {
        for path in [
            "/a/../pay",
            "/a/./b",
            "/a/..",
            "/a/%2e%2E/pay",
            "/a/.%2e/pay",
            "/a%2f..%2fpay",
            "/a/..;x/pay",
            "/a\\..\\pay",
        ] {
            let routes = routes();
            let found = find(&routes, &Method::GET, &host("h"), path);
            assert_eq!(found, Err(NoRoute::Dots), "{path}");
        }
        for path in ["/a/..b", "/a/b..", "/a/...", "/a/.well-known"] {
            let routes = routes();
            let found = find(&routes, &Method::GET, &host("h"), path);
            assert_eq!(found.copied(), Ok("a"), "{path}");
        }
        let one = [(Matches::all(), "all")];
        let found = find(&one, &Method::GET, &host("h"), "/a/../b");
        assert_eq!(found.copied(), Ok("all"), "paths decide nothing here");
    }

    #[test]
    fn what_no_request_can_fit_is_refused() {
        for host in [
            "",
            "http://a",
            "a/b",
            "a b",
            "ä.example",
            "[::1",
            "a:99999",
            "a:",
        ] {
            assert!(Matches::all().host(host).is_err(), "{host}");
        }
        for path in ["", "a", "/a?b", "/a#b", "/a/../b", "/%2e"] {
            assert!(Matches::all().path(path).is_err(), "{path}");
        }
        let ipv6 = Matches::all().host("[::1]:80").expect("a host");
        assert_eq!(ipv6.name(), Some(host("[::1]")));
    }
}
