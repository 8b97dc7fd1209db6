//! The proxy.

/// Stands before an HTTP API, so that requests to it take effect once, whoever retries
///
/// A request with an `Idempotency-Key` is claimed in the ledger before it is sent and recorded when it is
/// answered: a retry gets the recorded answer, also after a crash of the client, the API or this proxy.
/// Where nobody can know whether a request took effect, it is in doubt: it is not sent again, and its
/// caller is told so. GET and other safe methods pass. Requests without a key get one made from
/// themselves (--keyless): a repeat of a request whose answer never arrived is a retry, one that comes
/// after its answer arrived is a new request.
///
/// Streams pass at once and are recorded as they come; a retry that comes meanwhile joins them.
///
/// Without --upstream, the routes of semel.toml (`[[proxy.route]]`) say where requests go. docs/proxy.md
/// has all that can be set, docs/llm.md how to put it before a language model.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel proxy --upstream https://api.example.com
  semel proxy --upstream https://api.openai.com --profile llm
  semel proxy --upstream http://127.0.0.1:8080 --listen 127.0.0.1:9000 --keyless require
  curl -d amount=100 -H 'Idempotency-Key: order-7' http://127.0.0.1:7364/charges")]
pub(crate) struct Proxy {
    /// The URL of the API
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,

    /// Where clients come in: ADDRESS:PORT or unix:PATH [default: the setting proxy.listen]
    #[arg(long, value_name = "PLACE")]
    pub(crate) listen: Option<String>,

    /// What the specification of keys leaves open: semel, ietf, stripe, acp, ucp, square, llm, or one of
    /// semel.toml's
    /// [default: semel]
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub(crate) profile: Option<String>,

    /// What becomes of requests without a key: derive, require or pass [default: derive]
    #[arg(long, value_name = "WHAT", requires = "upstream")]
    pub(crate) keyless: Option<String>,

    /// Leaves the API alone while this breaker is open; its failures open it
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub(crate) breaker: Option<String>,
}
