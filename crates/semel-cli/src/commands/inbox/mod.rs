//! `semel inbox`

mod add;
mod list;
mod replay;
mod test;
pub(crate) mod watch;

use std::process::ExitCode;

use semel::core::webhook::SourceName;

use crate::args::inbox::{Inbox, InboxVerb};
use crate::args::values;
use crate::context::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &Context, args: &Inbox) -> Result<ExitCode, Failure> {
    match &args.verb {
        InboxVerb::Add(args) => add::run(context, args),
        InboxVerb::List(_) => list::run(context),
        InboxVerb::Test(args) => test::run(context, args).await,
        InboxVerb::Replay(args) => replay::run(context, args).await,
    }
}

/// Returns the path of a source's address.
fn path(name: &SourceName) -> String {
    format!("/in/{name}")
}

/// Returns where a server with these settings is reached on this machine; `None` where it has no address of its own.
fn base(context: &Context) -> Option<String> {
    let settings = &context.settings;
    let scheme = match settings.get("serve.tls_cert") {
        "" => "http",
        _ => "https",
    };
    match values::listen(settings.get("serve.listen")) {
        Ok(semel_server::Listen::Tcp(address)) => Some(format!("{scheme}://{address}")),
        Ok(semel_server::Listen::Unix(_)) | Err(_) => None,
    }
}
