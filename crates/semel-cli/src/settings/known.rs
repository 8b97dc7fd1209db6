//! All that can be set.

use std::fmt;

use semel::CopyPolicy;

use super::credentials;
use super::redact;
use crate::args::values;

/// One thing that can be set.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) env: &'static str,
    pub(super) default: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text.
    Plain,
    /// A whole number.
    Number,
    /// Text that is never shown.
    Secret,
    /// Any number of texts: an array in a file, one on each line elsewhere.
    List,
}

const fn plain(
    name: &'static str,
    env: &'static str,
    default: &'static str,
    about: &'static str,
    check: fn(&str) -> Result<(), String>,
) -> Setting {
    Setting {
        name,
        env,
        default,
        about,
        kind: Kind::Plain,
        check,
    }
}

const fn list(name: &'static str, env: &'static str, about: &'static str) -> Setting {
    Setting {
        name,
        env,
        default: "",
        about,
        kind: Kind::List,
        check: anything,
    }
}

/// All that can be set.
pub(crate) const SETTINGS: [Setting; 46] = [
    plain("store", "SEMEL_STORE", "", "where the ledger is", anything),
    plain(
        "namespace",
        "SEMEL_NAMESPACE",
        "default",
        "the wall behind which keys live",
        |text| ok(semel::Namespace::new(text)),
    ),
    Setting {
        kind: Kind::Secret,
        ..plain(
            "token",
            "SEMEL_TOKEN",
            "",
            "the token for a remote store",
            anything,
        )
    },
    plain(
        "auth",
        "SEMEL_AUTH",
        "loopback",
        "who needs a token: `loopback` (all but this machine) or `required` (everybody)",
        |text| one_of(text, &["loopback", "required"]),
    ),
    plain(
        "store.copied",
        "SEMEL_STORE_COPIED",
        "refuse",
        "what becomes of a store whose file was copied (`cp`, an image): `refuse` (only read), `adopt` or `ignore`",
        |text| one_of(text, &CopyPolicy::ALL.map(CopyPolicy::as_str)),
    ),
    plain(
        "run.lease",
        "SEMEL_RUN_LEASE",
        "60s",
        "how long a wrapper may be silent before its attempt is in doubt",
        |text| ok(values::lease(text)),
    ),
    plain(
        "run.wait",
        "SEMEL_RUN_WAIT",
        "30s",
        "how long to wait for the same operation running elsewhere",
        |text| ok(values::duration(text)),
    ),
    plain(
        "run.retention",
        "SEMEL_RUN_RETENTION",
        "30d",
        "how long answers are kept",
        |text| ok(values::retention(text)),
    ),
    plain(
        "serve.listen",
        "SEMEL_SERVE_LISTEN",
        "127.0.0.1:7363",
        "where the server listens: ADDRESS:PORT or unix:PATH",
        |text| ok(values::listen(text)),
    ),
    plain(
        "serve.tls_cert",
        "SEMEL_SERVE_TLS_CERT",
        "",
        "the server's certificate, a PEM file",
        anything,
    ),
    plain(
        "serve.tls_key",
        "SEMEL_SERVE_TLS_KEY",
        "",
        "the certificate's key, a PEM file",
        anything,
    ),
    list(
        "serve.hosts",
        "SEMEL_SERVE_HOSTS",
        "further names that callers know the server by",
    ),
    list(
        "serve.origins",
        "SEMEL_SERVE_ORIGINS",
        "the origins whose pages may call the server",
    ),
    Setting {
        kind: Kind::Number,
        ..plain(
            "serve.rate_limit",
            "SEMEL_SERVE_RATE_LIMIT",
            "0",
            "how many calls a token may make each second; 0 is no limit",
            |text| ok(values::number(text)),
        )
    },
    plain(
        "serve.body_limit",
        "SEMEL_SERVE_BODY_LIMIT",
        "2MiB",
        "the largest body of a request",
        |text| ok(values::size(text)),
    ),
    plain(
        "serve.wait_limit",
        "SEMEL_SERVE_WAIT_LIMIT",
        "60s",
        "the longest that a begin may wait for another one's attempt",
        |text| ok(values::duration(text)),
    ),
    plain(
        "serve.deadline",
        "SEMEL_SERVE_DEADLINE",
        "10s",
        "the longest that the store may take for a call",
        |text| ok(values::some_duration(text)),
    ),
    Setting {
        kind: Kind::Number,
        ..plain(
            "serve.connections",
            "SEMEL_SERVE_CONNECTIONS",
            "16384",
            "the most connections at once",
            |text| ok(values::some_number(text)),
        )
    },
    Setting {
        kind: Kind::Number,
        ..plain(
            "serve.streams",
            "SEMEL_SERVE_STREAMS",
            "12000",
            "the most event streams at once",
            |text| ok(values::some_number(text)),
        )
    },
    plain(
        "serve.drain",
        "SEMEL_SERVE_DRAIN",
        "10s",
        "how long a stop waits for what is under way",
        |text| ok(values::duration(text)),
    ),
    plain(
        "serve.log",
        "SEMEL_SERVE_LOG",
        "info",
        "what the server's log says: error, warn, info, debug or trace",
        |text| one_of(text, &["error", "warn", "info", "debug", "trace"]),
    ),
    plain(
        "serve.otlp",
        "SEMEL_SERVE_OTLP",
        "",
        "where traces are sent to, a collector's URL such as http://127.0.0.1:4318/v1/traces",
        |text| ok(optional(text, semel_server::Url::parse)),
    ),
    plain(
        "notify.command",
        "SEMEL_NOTIFY_COMMAND",
        "",
        "a line of shell that the server runs for each doubt and each dead operation",
        anything,
    ),
    Setting {
        kind: Kind::Secret,
        ..plain(
            "notify.webhook",
            "SEMEL_NOTIFY_WEBHOOK",
            "",
            "the URL that the server sends each doubt and each dead operation to",
            |text| ok(optional(text, semel_server::Url::parse)),
        )
    },
    Setting {
        kind: Kind::Secret,
        ..plain(
            "notify.secret",
            "SEMEL_NOTIFY_SECRET",
            "",
            "what webhooks are signed with: whsec_ and 24 to 64 bytes in base64",
            |text| ok(optional(text, semel_server::Secret::parse)),
        )
    },
    plain(
        "doctor.doubt_limit",
        "SEMEL_DOCTOR_DOUBT_LIMIT",
        "1h",
        "how old a doubt may be before `doctor` finds fault with it",
        |text| ok(values::duration(text)),
    ),
    plain(
        "redact.enabled",
        "SEMEL_REDACT_ENABLED",
        "on",
        "whether secrets are kept out of what is stored and shown: on or off",
        |text| ok(redact::is_on(text)),
    ),
    Setting {
        check: |text| ok(redact::patterns(text)),
        ..list(
            "redact.patterns",
            "SEMEL_REDACT_PATTERNS",
            "texts that are secrets, too; `*` stands for the rest of a word",
        )
    },
    Setting {
        check: |text| ok(redact::outputs(text)),
        ..list(
            "redact.outputs",
            "SEMEL_REDACT_OUTPUTS",
            "JSON pointers to what is not recorded of an answer",
        )
    },
    Setting {
        check: |text| ok(redact::headers(text)),
        ..list(
            "redact.headers",
            "SEMEL_REDACT_HEADERS",
            "headers that may be shown, beside the usual ones",
        )
    },
    plain(
        "mcp.class",
        "SEMEL_MCP_CLASS",
        "unsafe",
        "the class of tools that have none of their own: `safe`, `idempotent` or `unsafe`",
        |text| one_of(text, &["safe", "idempotent", "unsafe"]),
    ),
    plain(
        "mcp.trust_annotations",
        "SEMEL_MCP_TRUST_ANNOTATIONS",
        "off",
        "whether an MCP server is believed that a tool only reads or may be repeated",
        |text| ok(redact::is_on(text)),
    ),
    plain(
        "mcp.admin_tools",
        "SEMEL_MCP_ADMIN_TOOLS",
        "off",
        "whether the MCP gateway has tools of its own",
        |text| ok(redact::is_on(text)),
    ),
    plain(
        "mcp.wait",
        "SEMEL_MCP_WAIT",
        "25s",
        "how long an identical call waits for the one that runs",
        |text| ok(values::duration(text)),
    ),
    plain(
        "mcp.timeout",
        "SEMEL_MCP_TIMEOUT",
        "1h",
        "how long an MCP server may take for a call before it is in doubt",
        |text| ok(values::some_duration(text)),
    ),
    plain(
        "mcp.drain",
        "SEMEL_MCP_DRAIN",
        "30s",
        "how long the MCP gateway waits for calls under way when its client has gone",
        |text| ok(values::duration(text)),
    ),
    plain(
        "mcp.log",
        "SEMEL_MCP_LOG",
        "warn",
        "what the MCP gateway writes to its log: `error`, `warn`, `info`, `debug` or `off`",
        |text| one_of(text, &["off", "error", "warn", "info", "debug"]),
    ),
    list(
        "mcp.call_ids",
        "SEMEL_MCP_CALL_IDS",
        "where harnesses put a call id that stays the same across retries: members of `_meta`",
    ),
    list(
        "mcp.conversations",
        "SEMEL_MCP_CONVERSATIONS",
        "where clients put a hint which conversation a call belongs to: members of `_meta`",
    ),
    list(
        "mcp.lost_texts",
        "SEMEL_MCP_LOST_TEXTS",
        "texts of failures behind which the effect may have happened",
    ),
    Setting {
        check: |text| ok(credentials::sources(text.lines())),
        ..list(
            "mcp.credentials",
            "SEMEL_MCP_CREDENTIALS",
            "the headers of clients over HTTP that say whose call it is, as in proxy.credentials",
        )
    },
    Setting {
        check: |text| ok(credentials::cookies(text.lines())),
        ..list(
            "mcp.ignored_cookies",
            "SEMEL_MCP_IGNORED_COOKIES",
            "cookies of clients over HTTP that say nothing about the caller",
        )
    },
    plain(
        "proxy.listen",
        "SEMEL_PROXY_LISTEN",
        "127.0.0.1:7364",
        "where clients of the proxy come in: ADDRESS:PORT or unix:PATH",
        |text| ok(values::listen(text)),
    ),
    plain(
        "proxy.log",
        "SEMEL_PROXY_LOG",
        "info",
        "what the proxy writes to its log: `error`, `warn`, `info`, `debug` or `off`",
        |text| one_of(text, &["off", "error", "warn", "info", "debug"]),
    ),
    Setting {
        check: |text| ok(credentials::sources(text.lines())),
        ..list(
            "proxy.credentials",
            "SEMEL_PROXY_CREDENTIALS",
            "the headers whose values say whose request it is; `*` stands for the beginning of a name",
        )
    },
    Setting {
        check: |text| ok(credentials::cookies(text.lines())),
        ..list(
            "proxy.ignored_cookies",
            "SEMEL_PROXY_IGNORED_COOKIES",
            "cookies that say nothing about the caller; `*` stands for the end of a name",
        )
    },
];

#[expect(clippy::unnecessary_wraps, reason = "has the shape of a check")]
const fn anything(_: &str) -> Result<(), String> {
    Ok(())
}

fn ok<T, E: fmt::Display>(parsed: Result<T, E>) -> Result<(), String> {
    parsed.map(drop).map_err(|error| error.to_string())
}

/// Reads what may be left out.
pub(super) fn optional<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    (!text.is_empty()).then(|| parse(text)).transpose()
}

fn one_of(text: &str, words: &[&str]) -> Result<(), String> {
    if words.contains(&text) {
        return Ok(());
    }
    Err(format!("`{text}` is not one of {}", words.join(", ")))
}
