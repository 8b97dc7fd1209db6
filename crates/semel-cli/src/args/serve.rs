//! Serving the ledger to others.

/// Serves the ledger over HTTP, for callers in any language
///
/// Listens on this machine only unless told otherwise, where callers need no token and act in the
/// namespace of --namespace; beyond it every call needs one (`semel token create`). With --namespace,
/// tokens of other namespaces are refused. The API is under /v1;
/// /docs describes it for people and /openapi.json for programs; /healthz, /readyz and /metrics are for
/// those who run it. SIGTERM and Ctrl-C stop it: what is under way is finished first, and a second one
/// ends it at once. The log is on standard error, as JSON unless that is a terminal.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  semel serve
  semel serve --listen 127.0.0.1:8080 --store sqlite:/var/lib/semel/semel.db
  semel serve --listen unix:/run/semel/semel.sock
  SEMEL_AUTH=required semel serve
  semel serve --proxy
  curl -s localhost:7363/v1/begin -d '{\"key\": \"o-1\", \"name\": \"create-order\", \"input\": {\"amount\": 100}}'")]
pub(crate) struct Serve {
    /// Where to listen: ADDRESS:PORT or unix:PATH [default: the setting serve.listen]
    #[arg(long, value_name = "PLACE")]
    pub(crate) listen: Option<String>,

    /// Serves the routes of semel.toml (`[[proxy.route]]`) as well, as `semel proxy` does, at the setting proxy.listen
    #[arg(long)]
    pub(crate) proxy: bool,
}
