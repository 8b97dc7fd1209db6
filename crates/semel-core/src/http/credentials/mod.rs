//! Credentials: whose request it is, read from what it carries.
//!
//! A [`CredentialRule`] reduces the credentials of a request to canonical bytes. A door hashes them with a secret key and
//! calls the result the principal: keys and recorded answers of two principals never meet. So the rule has to hold in both
//! directions. If two callers got the same bytes, one would read the other's answers. If the retry of one caller got other
//! bytes, it would take effect a second time.
//!
//! | a request carries | what counts |
//! |---|---|
//! | a header that is named, or whose name ends as listed | its whole value |
//! | `Authorization` with a signature scheme | the key id: the signature is another one for each attempt |
//! | an account header | its value |
//! | a query parameter whose name ends as listed | its value |
//! | `Cookie`, and none of the above but an account header | its cookies, in any order, without [ignored ones](CredentialRule::IGNORED_COOKIES) |
//!
//! Nothing here is verified: the upstream does that. A value that cannot be reduced counts as a whole, so that an
//! unreadable credential is never taken for another caller's.

mod claims;
mod cookies;
mod parameters;
mod signature;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::BTreeMap;

pub use self::cookies::CookiePattern;

/// What the canonical bytes begin with. Another way to write them needs another one, as principals are kept in stores.
const MARK: &[u8] = b"semel-credentials-1\0";

/// The words before the colon of a source that does not count a header's plain value.
const FORMS: [&str; 7] = [
    "whole", "account", "jwt", "keyid", "profile", "cookie", "query",
];

/// One place where a request carries a credential, and how much of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// `NAME`: a header. `Authorization` with a signature scheme counts by its key id, `Cookie` only where the request has
    /// no other credential.
    Header(String),
    /// `*ENDING`: every header and every query parameter whose name is this or ends in it.
    Ending(String),
    /// `whole:NAME`: a header, byte for byte, whatever it holds.
    Whole(String),
    /// `account:NAME`: a header that selects an account. It proves nothing, so a cookie beside it still counts.
    Account(String),
    /// `jwt:NAME`: a header with a JSON Web Token, of which issuer and subject count.
    Jwt(String),
    /// `keyid:NAME`: a header that names the key of a signature (RFC 9421, and the draft before it).
    KeyId(String),
    /// `profile:NAME`: a header whose member `profile` names an agent.
    Profile(String),
    /// `cookie:NAME`: one cookie, whatever else there is.
    Cookie(String),
    /// `query:NAME`: one query parameter.
    Query(String),
}

/// Says why a text names no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// It is not the name of a header, a cookie or a parameter.
    #[error("`{0}` is not a header name")]
    Name(String),
    /// The word before the colon is unknown.
    #[error("`{0}:` is unknown; write a header's name, `*ENDING`, or one of {forms}", forms = FORMS.map(|form| format!("`{form}:NAME`")).join(", "))]
    Form(String),
    /// It is no pattern for the names of cookies.
    #[error(
        "`{0}` is not a cookie's name; a `*` may stand at its end, after at least one character"
    )]
    Pattern(String),
}

impl CredentialSource {
    /// Reads a source as settings write it.
    ///
    /// # Errors
    /// Refuses unknown forms, and what cannot be a name.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let named = |name: &str| {
            let is_name = !name.is_empty() && name.bytes().all(is_token);
            is_name
                .then(|| name.to_owned())
                .ok_or_else(|| CredentialError::Name(name.to_owned()))
        };
        if let Some(ending) = text.strip_prefix('*') {
            return named(ending).map(Self::Ending);
        }
        let Some((form, name)) = text.split_once(':') else {
            return named(text).map(Self::Header);
        };
        let source = match form {
            "whole" => Self::Whole,
            "account" => Self::Account,
            "jwt" => Self::Jwt,
            "keyid" => Self::KeyId,
            "profile" => Self::Profile,
            "cookie" => Self::Cookie,
            "query" => Self::Query,
            other => return Err(CredentialError::Form(other.to_owned())),
        };
        named(name).map(source)
    }

    /// Says whether this source is about a header of this name.
    fn is_header(&self, name: &str) -> bool {
        match self {
            Self::Header(own)
            | Self::Whole(own)
            | Self::Account(own)
            | Self::Jwt(own)
            | Self::KeyId(own)
            | Self::Profile(own) => is_same(own, name),
            Self::Ending(_) | Self::Cookie(_) | Self::Query(_) => false,
        }
    }

    fn is_ending_of(&self, name: &str) -> bool {
        let Self::Ending(ending) = self else {
            return false;
        };
        let start = name.len().checked_sub(ending.len());
        start.is_some_and(|start| name.is_char_boundary(start) && is_same(ending, &name[start..]))
    }

    /// Says whether a cookie beside this source's credential no longer counts: whether it proves who the caller is.
    fn replaces_cookies(&self) -> bool {
        match self {
            // It is shown to a proxy, and says nothing about the user of the upstream.
            Self::Header(name) | Self::Whole(name) if is_same(name, "proxy-authorization") => false,
            Self::Header(_)
            | Self::Ending(_)
            | Self::Whole(_)
            | Self::Jwt(_)
            | Self::Cookie(_)
            | Self::Query(_) => true,
            // These names are public. Gateways and agents add them beside the cookies of their users.
            Self::Account(_) | Self::KeyId(_) | Self::Profile(_) => false,
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => f.write_str(name),
            Self::Ending(ending) => write!(f, "*{ending}"),
            Self::Whole(name) => write!(f, "whole:{name}"),
            Self::Account(name) => write!(f, "account:{name}"),
            Self::Jwt(name) => write!(f, "jwt:{name}"),
            Self::KeyId(name) => write!(f, "keyid:{name}"),
            Self::Profile(name) => write!(f, "profile:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
        }
    }
}

/// Which credentials of a request count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialRule {
    /// Where credentials are. Of two sources for one header the later one counts.
    pub sources: Vec<CredentialSource>,
    /// The cookies that say nothing about the caller.
    pub ignored_cookies: Vec<CookiePattern>,
}

impl Default for CredentialRule {
    fn default() -> Self {
        let sources = Self::SOURCES.iter();
        let cookies = Self::IGNORED_COOKIES.iter();
        Self {
            sources: sources
                .map(|text| CredentialSource::parse(text).expect("it is a source"))
                .collect(),
            ignored_cookies: cookies
                .map(|text| CookiePattern::parse(text).expect("it is a pattern"))
                .collect(),
        }
    }
}

impl CredentialRule {
    /// The sources that count unless settings say otherwise.
    pub const SOURCES: [&'static str; 20] = [
        "Authorization",
        "Proxy-Authorization",
        "*api-key",
        "*apikey",
        "*auth-key",
        "*api-secret",
        "*auth-token",
        "*access-token",
        "*private-token",
        "*security-token",
        "*vault-token",
        "*functions-key",
        "*subscription-key",
        "keyid:Signature-Input",
        "keyid:Signature",
        "account:Stripe-Account",
        "account:OpenAI-Organization",
        "account:OpenAI-Project",
        "account:X-Goog-User-Project",
        "Cookie",
    ];

    /// The cookies of load balancers, bot filters, analytics and consent banners: they change without the caller
    /// changing. Each is written as narrowly as it can be, because a session cookie that matched would no longer tell
    /// two users apart: Rails calls the session of an application `gateway` `_gateway_session`, which `_ga*` would match.
    pub const IGNORED_COOKIES: [&'static str; 51] = [
        // Load balancers.
        "AWSALB*",
        "AWSELB*",
        "ARRAffinity*",
        "ApplicationGatewayAffinity*",
        "BIGipServer*",
        "GCLB",
        "GCILB",
        "INGRESSCOOKIE",
        "__cflb",
        // Bot filters.
        "__cf_bm",
        "__cfruid",
        "_cfuvid",
        "cf_clearance",
        "ak_bmsc",
        "bm_sz",
        "bm_sv",
        "bm_mi",
        "_abck",
        "visid_incap_*",
        "incap_ses_*",
        "nlbi_*",
        // Analytics.
        "_ga",
        "_ga_*",
        "_gat",
        "_gat_*",
        "_gac_*",
        "_gaexp",
        "_gcl_au",
        "_gcl_aw",
        "_gcl_dc",
        "_gid",
        "__utm*",
        "_fbp",
        "_fbc",
        "_hjSession_*",
        "_hjSessionUser_*",
        "_pk_id.*",
        "_pk_ses.*",
        "_pk_ref.*",
        "_clck",
        "_clsk",
        "_uetsid",
        "_uetvid",
        "_dd_s",
        "ai_session",
        "ai_user",
        "ajs_anonymous_id",
        // Consent.
        "OptanonConsent",
        "OptanonAlertBoxClosed",
        "CookieConsent",
        "euconsent-v2",
    ];

    /// Reduces the credentials of a request to bytes that no other credentials have; `None` where it carries none.
    ///
    /// Header names may be in any case and order; the lines of one header are in the order in which they came. The query
    /// is as it was written.
    #[must_use]
    pub fn read<'a>(
        &self,
        headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        query: Option<&str>,
    ) -> Option<Vec<u8>> {
        let mut lines: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
        for (name, value) in headers {
            if is_same(name, "cookie") || self.source_of(name).is_some() {
                let name = name.to_ascii_lowercase();
                lines.entry(name).or_default().push(value.trim_ascii());
            }
        }
        let mut found = Vec::new();
        let mut has_proof = false;
        for (name, values) in &lines {
            let Some(source) = self.source_of(name) else {
                continue;
            };
            for value in values.iter().filter(|value| !is_vacant(name, value)) {
                let read = source.read(name, value);
                has_proof |= read.is_some() && source.replaces_cookies();
                found.extend(read);
            }
        }
        for (name, value) in query.into_iter().flat_map(parameters::query) {
            if self.is_query_source(&name) && !value.is_empty() {
                has_proof = true;
                found.push(Credential::new(Place::Query, &name, "value", [value]));
            }
        }
        let cookies = lines.get("cookie").map(Vec::as_slice).unwrap_or_default();
        for (name, value) in cookies::all(cookies) {
            if self.names_cookie(name) {
                has_proof = true;
                found.push(Credential::cookies([(name, value)]));
            }
        }
        if !has_proof && self.counts_cookies() {
            let mut kept: Vec<_> = cookies::all(cookies)
                .filter(|(name, _)| !self.ignores_cookie(name))
                .collect();
            // Their order says nothing, but for cookies of one name, of which servers take the first.
            kept.sort_by_key(|(name, _)| *name);
            if !kept.is_empty() {
                found.push(Credential::cookies(kept));
            }
        }
        if found.is_empty() {
            return None;
        }
        let mut bytes = MARK.to_vec();
        found
            .iter()
            .for_each(|credential| credential.write(&mut bytes));
        Some(bytes)
    }

    /// Says whether the value of a header counts, or a part of it.
    #[must_use]
    pub fn counts_header(&self, name: &str) -> bool {
        let is_cookie = is_same(name, "cookie");
        let names_one = |source: &CredentialSource| matches!(source, CredentialSource::Cookie(_));
        self.source_of(name).is_some()
            || is_cookie && (self.counts_cookies() || self.sources.iter().any(names_one))
    }

    /// Returns the source that is about a header.
    fn source_of(&self, name: &str) -> Option<&CredentialSource> {
        let mut sources = self.sources.iter().rev();
        let named = sources.find(|source| source.is_header(name));
        let source = named.or_else(|| self.sources.iter().find(|source| source.is_ending_of(name)));
        // Cookies are looked at last: they count where nothing else does.
        source.filter(|source| {
            !is_same(name, "cookie") || matches!(source, CredentialSource::Whole(_))
        })
    }

    fn is_query_source(&self, name: &str) -> bool {
        self.sources.iter().any(|source| match source {
            CredentialSource::Query(own) => own == name,
            ending @ CredentialSource::Ending(_) => ending.is_ending_of(name),
            CredentialSource::Header(_)
            | CredentialSource::Whole(_)
            | CredentialSource::Account(_)
            | CredentialSource::Jwt(_)
            | CredentialSource::KeyId(_)
            | CredentialSource::Profile(_)
            | CredentialSource::Cookie(_) => false,
        })
    }

    fn counts_cookies(&self) -> bool {
        let mut sources = self.sources.iter().rev();
        let found = sources.find(|source| source.is_header("cookie"));
        matches!(found, Some(CredentialSource::Header(_)))
    }

    fn names_cookie(&self, name: &[u8]) -> bool {
        self.sources.iter().any(|source| match source {
            CredentialSource::Cookie(own) => own.as_bytes() == name,
            CredentialSource::Header(_)
            | CredentialSource::Ending(_)
            | CredentialSource::Whole(_)
            | CredentialSource::Account(_)
            | CredentialSource::Jwt(_)
            | CredentialSource::KeyId(_)
            | CredentialSource::Profile(_)
            | CredentialSource::Query(_) => false,
        })
    }

    fn ignores_cookie(&self, name: &[u8]) -> bool {
        self.ignored_cookies
            .iter()
            .any(|pattern| pattern.fits(name))
    }
}

impl CredentialSource {
    /// Reads what counts of a line of a header.
    fn read(&self, name: &str, value: &[u8]) -> Option<Credential> {
        let credential = |form, fields: Vec<Vec<u8>>| Credential {
            place: Place::Header,
            name: name.to_owned(),
            form,
            fields,
        };
        let whole = || credential("value", vec![value.to_vec()]);
        Some(match self {
            Self::Header(_) if name == "authorization" => match signature::key_id(value) {
                Some(fields) => credential("signature", fields),
                None => whole(),
            },
            Self::Jwt(_) => match claims::issuer_and_subject(value) {
                Some(fields) => credential("jwt", fields.to_vec()),
                None => whole(),
            },
            Self::Profile(_) => match parameters::profile(value) {
                Some(profile) => credential("profile", vec![profile]),
                None => whole(),
            },
            // The signature itself is another one for each attempt: without a key id it tells no callers apart.
            Self::KeyId(_) if name == "signature" => {
                credential("keyid", vec![signature::draft_key_id(value)?])
            }
            Self::KeyId(_) => match signature::key_ids(value) {
                Some(fields) => credential("keyid", fields),
                None => whole(),
            },
            Self::Header(_) | Self::Ending(_) | Self::Whole(_) | Self::Account(_) => whole(),
            Self::Cookie(_) | Self::Query(_) => return None,
        })
    }
}

/// Adds the token of Semel's own that a caller showed beside credentials for the upstream.
pub fn add_token(credentials: &mut Vec<u8>, token_id: &str) {
    let id = token_id.as_bytes().to_vec();
    Credential::new(Place::Token, "semel-token", "value", [id]).write(credentials);
}

/// Where a credential was found.
#[derive(Clone, Copy, Debug)]
enum Place {
    Header,
    Query,
    Cookies,
    Token,
}

/// A credential as far as it counts.
#[derive(Debug)]
struct Credential {
    place: Place,
    name: String,
    /// How it was reduced: a reduced value is never taken for a whole one.
    form: &'static str,
    fields: Vec<Vec<u8>>,
}

impl Credential {
    fn new(
        place: Place,
        name: &str,
        form: &'static str,
        fields: impl IntoIterator<Item = Vec<u8>>,
    ) -> Self {
        Self {
            place,
            name: name.to_owned(),
            form,
            fields: fields.into_iter().collect(),
        }
    }

    fn cookies<'a>(cookies: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let fields = cookies.into_iter().flat_map(|(name, value)| [name, value]);
        let fields = fields.map(<[u8]>::to_vec);
        Self::new(Place::Cookies, "cookie", "cookies", fields)
    }

    /// Writes it. Each part tells its length, so that no two lists of credentials share their bytes.
    fn write(&self, bytes: &mut Vec<u8>) {
        let mut put = |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        };
        put(match self.place {
            Place::Header => b"header",
            Place::Query => b"query",
            Place::Cookies => b"cookies",
            Place::Token => b"token",
        });
        put(self.name.as_bytes());
        put(self.form.as_bytes());
        put(&(self.fields.len() as u64).to_be_bytes());
        self.fields.iter().for_each(|field| put(field));
    }
}

/// Says whether a line carries nothing: clients send `Authorization: Bearer` before their user has logged in, and the
/// cookie beside it has to count.
fn is_vacant(name: &str, value: &[u8]) -> bool {
    let is_scheme = ["bearer", "basic"]
        .iter()
        .any(|scheme| value.eq_ignore_ascii_case(scheme.as_bytes()));
    value.is_empty() || name == "authorization" && is_scheme
}

/// Compares names as upstreams do: in any case, and many of them read `_` as `-`.
fn is_same(one: &str, other: &str) -> bool {
    let folded = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

/// Says whether a byte may stand in a name (RFC 9110: `token`).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
