//! The gateway for MCP.

/// Stands before an MCP server, so that its tools take effect once, whoever retries
///
/// The server is a command that speaks on its standard input and output, or one at a URL. Clients are
/// served on standard input and output too, or over HTTP with --listen. Everything passes as it came,
/// but for calls of tools: a call is claimed in the ledger before it is sent and recorded when it is
/// answered. A retry gets the recorded answer, also after a crash of the client, the server or this
/// gateway; a second call that is meant runs. Where nobody can know whether a call took effect, it is
/// in doubt: it is not sent again, and its caller is told what to do.
///
/// Without COMMAND and --upstream, the servers that semel.toml names (`[mcp.servers.NAME]`) are behind one
/// endpoint.
///
/// What each tool may do is set in semel.toml (`semel mcp inspect` writes a first one): a tool that only
/// reads is `class = "safe"` and passes untouched. docs/mcp.md has the settings for the usual hosts.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "Examples:
  semel mcp -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  semel mcp --upstream https://mcp.example.com/mcp
  semel mcp --listen 127.0.0.1:7364 -- python3 server.py
  semel mcp --breaker shop --upstream https://shop.example.com/mcp
  semel mcp inspect -- npx -y @modelcontextprotocol/server-memory
  claude mcp add files -- semel mcp -- npx -y @modelcontextprotocol/server-filesystem /srv/files"
)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    pub(crate) verb: Option<McpVerb>,

    #[command(flatten)]
    pub(crate) server: McpServer,

    /// Serves clients over HTTP at this place: ADDRESS:PORT or unix:PATH [default: standard input and output]
    #[arg(long, value_name = "PLACE")]
    pub(crate) listen: Option<String>,

    /// What the server is called in the ledger: calls of two names never meet [default: its command or URL; its name
    /// in semel.toml]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Leaves the server alone while this breaker is open; its failures open it
    #[arg(long, value_name = "NAME")]
    pub(crate) breaker: Option<String>,

    /// Believes the server when it says which of its tools only read, or may be repeated
    #[arg(long)]
    pub(crate) trust_annotations: bool,

    /// Adds tools of the gateway's own: semel_status, semel_list and semel_resolve
    #[arg(long)]
    pub(crate) admin_tools: bool,
}

/// Which server.
#[derive(Debug, clap::Args)]
pub(crate) struct McpServer {
    /// The URL of a server that speaks HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(crate) upstream: Option<String>,

    /// The command of a server that speaks on standard input and output
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum McpVerb {
    /// Lists a server's tools and how each would be treated
    ///
    /// Asks the server for its tools, calls none of them, and says for each which class it would get and why,
    /// and whether it takes a key of its own that the gateway could fill in. Without a server, all that
    /// semel.toml names are asked.
    #[command(after_long_help = "Examples:
  semel mcp inspect -- npx -y @modelcontextprotocol/server-memory
  semel mcp inspect --write semel.toml --upstream https://mcp.example.com/mcp")]
    Inspect(Inspect),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) server: McpServer,

    /// Writes settings for these tools into a new file, to be looked through
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Option<std::path::PathBuf>,
}
