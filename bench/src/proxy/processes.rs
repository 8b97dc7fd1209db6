//! The processes that are measured: the upstream, and what stands before it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::upstream::{self, STREAM};
use crate::running::{Running, free_port};
use crate::serve::process::{listening, semel};

/// Where nginx is looked for: Debian's is in a directory that only root searches.
const NGINX: [&str; 2] = ["/usr/sbin/nginx", "/usr/bin/nginx"];

/// The most connections at once; nginx keeps as many to the upstream.
pub(crate) const CALLERS_MAX: i64 = 256;

/// Starts the upstream and returns where it listens.
pub(crate) fn upstream() -> Result<(Running, String)> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let child = Command::new(program)
        .arg(upstream::COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.context("cannot start the upstream")?;
    let output = child.stdout.take();
    let running = Running(child);
    let output = output.context("the upstream has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(!line.is_empty(), "the upstream does not start");
    Ok((running, line.trim_end().to_owned()))
}

/// Starts the proxy before an upstream, with its ledger in this directory, and returns where it listens.
pub(crate) fn proxy(program: &Path, directory: &Path, upstream: &str) -> Result<(Running, String)> {
    let store = format!("sqlite:{}", directory.join("semel.db").display());
    let mut command = semel(program, &store);
    // Settings of whoever measures must not change what is measured.
    let settings = directory.join("semel.toml");
    fs::write(&settings, "").context("cannot write the settings")?;
    command.arg("--config").arg(settings);
    command.args(["proxy", "--listen", "127.0.0.1:0"]);
    command.args(["--upstream", &format!("http://{upstream}")]);
    let (child, address) = listening(command)?;
    Ok((Running(child), address))
}

/// nginx, as it is installed.
#[derive(Debug)]
pub(crate) struct Nginx {
    program: PathBuf,
    pub(crate) version: String,
}

impl Nginx {
    pub(crate) fn find(given: Option<&Path>) -> Result<Self> {
        let found = match given {
            Some(given) => Some(given.to_owned()),
            None => NGINX
                .map(PathBuf::from)
                .into_iter()
                .find(|path| path.exists()),
        };
        let Some(program) = found.filter(|program| program.exists()) else {
            let place = given.map_or_else(|| NGINX[0].to_owned(), |it| it.display().to_string());
            bail!(
                "nginx is not installed: there is no {place}\n\
                 hint: `RUNLEVEL=1 apt-get install nginx-light` installs it on Debian without starting it, \
                 `--nginx PATH` names it, and `--only` measures without it"
            );
        };
        let output = Command::new(&program).arg("-v").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let version = said.trim().rsplit('/').next().unwrap_or_default();
        Ok(Self {
            program,
            version: version.to_owned(),
        })
    }

    /// Starts one of its own before an upstream, with its files in this directory, and returns where it listens.
    pub(crate) fn start(&self, directory: &Path, upstream: &str) -> Result<(Running, String)> {
        let port = free_port()?;
        let settings = directory.join("nginx.conf");
        fs::write(&settings, configuration(directory, port, upstream))
            .context("cannot write nginx's settings")?;
        let mut command = Command::new(&self.program);
        command.arg("-p").arg(directory).arg("-c").arg(&settings);
        // Until it has read its settings, it would complain elsewhere.
        command.arg("-e").arg(directory.join("error.log"));
        let running = Running::listening(command, port);
        let said = || fs::read_to_string(directory.join("error.log")).unwrap_or_default();
        let running = running.with_context(|| format!("nginx says: {}", said().trim()))?;
        Ok((running, format!("127.0.0.1:{port}")))
    }
}

/// Writes the settings of a plain reverse proxy that was given every care: it keeps its connections on both sides for
/// any number of requests, writes no log, and hands streams on as they come.
fn configuration(directory: &Path, port: u16, upstream: &str) -> String {
    let directory = directory.display();
    // Root's workers would become somebody who cannot enter this directory.
    let user = if rustix::process::geteuid().is_root() {
        "user root;\n"
    } else {
        ""
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {directory}/{name};\n"))
        .concat();
    format!(
        "daemon off;
{user}worker_processes auto;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
{temporary}    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    upstream bare {{
        server {upstream};
        keepalive {CALLERS_MAX};
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    server {{
        listen 127.0.0.1:{port} reuseport;
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
        location / {{
            proxy_pass http://bare;
        }}
        location {STREAM} {{
            proxy_pass http://bare;
            proxy_buffering off;
        }}
    }}
}}
"
    )
}
