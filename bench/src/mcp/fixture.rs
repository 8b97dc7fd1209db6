//! The server behind every contender: it answers at once and does nothing, so that what stands before it
//! is what is measured.

use std::io::{self, Read as _, Write as _};

use anyhow::{Context, Result};
use serde_json::value::RawValue;

use super::wire::{ACT, LOOK, PROTOCOL};
use crate::keys::RESULT_BYTES;

/// The name of the hidden command that is this server.
pub(crate) const COMMAND: &str = "mcp-fixture";

/// How much is read at once: what a pipe holds.
const READ_SIZE: usize = 64 * 1024;

#[derive(serde::Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    arguments: Arguments<'a>,
}

#[derive(serde::Deserialize)]
struct Arguments<'a> {
    order: &'a str,
}

/// Serves until its input ends. What was read together is answered together.
pub(crate) fn serve() -> Result<String> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut held, mut answers) = (vec![], vec![]);
    let mut chunk = vec![0; READ_SIZE];
    loop {
        let read = input.read(&mut chunk).context("cannot read")?;
        if read == 0 {
            return Ok(String::new());
        }
        held.extend_from_slice(&chunk[..read]);
        let whole = held.iter().rposition(|byte| *byte == b'\n');
        let Some(whole) = whole else { continue };
        for line in held[..whole].split(|byte| *byte == b'\n') {
            answer(line, &mut answers)?;
        }
        held.drain(..=whole);
        output.write_all(&answers).context("cannot write")?;
        output.flush().context("cannot write")?;
        answers.clear();
    }
}

fn answer(line: &[u8], answers: &mut Vec<u8>) -> Result<()> {
    let asked: Asked<'_> = serde_json::from_slice(line).context("this is no request")?;
    let Some(id) = asked.id else { return Ok(()) };
    let params = asked.params.map_or("{}", RawValue::get);
    let (id, result) = (id.get(), result(asked.method, params)?);
    writeln!(
        answers,
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    )?;
    Ok(())
}

fn result(method: &str, params: &str) -> Result<String> {
    Ok(match method {
        "tools/call" => {
            let called: Called<'_> = serde_json::from_str(params).context("this is no call")?;
            let order = called.arguments.order;
            format!(r#"{{"content":[{{"type":"text","text":"{order:.<RESULT_BYTES$}"}}]}}"#)
        }
        "initialize" => format!(
            r#"{{"protocolVersion":"{PROTOCOL}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"fixture","version":"1"}}}}"#
        ),
        "tools/list" => {
            let tool = |name: &str| {
                format!(
                    r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"order":{{"type":"string"}}}}}}}}"#
                )
            };
            format!(r#"{{"tools":[{},{}]}}"#, tool(LOOK), tool(ACT))
        }
        // A ping, and whatever else is asked: none of it is measured.
        _ => "{}".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_answered_with_its_order() {
        let mut answers = vec![];
        let call = super::super::wire::Calls {
            tool: ACT,
            keyed: true,
        };
        answer(call.write(5, "o-1").as_bytes(), &mut answers).unwrap();
        answer(super::super::wire::INITIALIZED.as_bytes(), &mut answers).unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answers).unwrap();
        assert_eq!(answer["id"], 5);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("o-1.") && text.len() == RESULT_BYTES);
    }
}
