//! What callers send and what they are answered, written by hand so that it costs next to nothing.

use anyhow::{Context, Result, bail, ensure};
use serde_json::value::RawValue;

/// The tool that only reads.
pub(crate) const LOOK: &str = "look";

/// The tool that acts.
pub(crate) const ACT: &str = "act";

/// The revision of the protocol that everybody here speaks.
pub(crate) const PROTOCOL: &str = "2025-06-18";

/// One answer in so many is compared with what was asked, so that comparing costs nothing.
const CHECKED_EVERY: u64 = 64;

pub(crate) fn initialize() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{{"protocolVersion":"{PROTOCOL}","capabilities":{{}},"clientInfo":{{"name":"semel-bench","version":"1"}}}}}}"#
    )
}

pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    /// The tool that is called.
    pub(crate) tool: &'static str,
    /// Whether each call brings a key of its own; else its arguments tell it from the others.
    pub(crate) keyed: bool,
}

impl Calls {
    /// Writes a call with this number; no other one has its order.
    pub(crate) fn write(self, number: u64, order: &str) -> String {
        let tool = self.tool;
        let meta = if self.keyed {
            format!(r#","_meta":{{"dev.semel/key":"{order}"}}"#)
        } else {
            String::new()
        };
        format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"order":"{order}"}}{meta}}}}}"#
        )
    }
}

/// An answer, as far as it is looked at.
#[derive(serde::Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// Returns the number of the call that this answers well; anything else is an error.
pub(crate) fn answered(line: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(line).context("an answer is not text")?;
    let answer: Answer<'_> =
        serde_json::from_str(text).with_context(|| format!("this is no answer: {text}"))?;
    let number = answer.id.get().parse();
    let number = number.with_context(|| format!("this answers no call: {text}"))?;
    let Some(result) = answer.result else {
        bail!("a call was refused: {text}");
    };
    let failed = result.get().contains(r#""isError":true"#);
    ensure!(!failed, "a call failed: {text}");
    Ok(number)
}

/// Compares an answer with what was asked, now and then.
pub(crate) fn check(number: u64, order: &str, line: &[u8]) -> Result<()> {
    if number.is_multiple_of(CHECKED_EVERY) {
        let found = line
            .windows(order.len())
            .any(|part| part == order.as_bytes());
        ensure!(found, "a call was answered with another's result");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_counts() {
        let good = br#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;
        assert_eq!(answered(good).unwrap(), 7);
        for bad in [
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"isError":true}}"#,
            r#"{"jsonrpc":"2.0","id":"hello","result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
            "noise",
        ] {
            assert!(answered(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_s_result_is_found_out() {
        assert!(check(64, "abc", b"..abc..").is_ok());
        assert!(check(64, "abc", b"..abd..").is_err());
        assert!(check(65, "abc", b"..abd..").is_ok(), "it is not looked at");
    }

    #[test]
    fn a_call_names_its_key_only_where_it_has_one() {
        let calls = |keyed| Calls { tool: ACT, keyed }.write(3, "o-1");
        let parsed: serde_json::Value = serde_json::from_str(&calls(true)).unwrap();
        assert_eq!(parsed["params"]["_meta"]["dev.semel/key"], "o-1");
        assert_eq!(parsed["params"]["arguments"]["order"], "o-1");
        let parsed: serde_json::Value = serde_json::from_str(&calls(false)).unwrap();
        assert!(parsed["params"].get("_meta").is_none());
    }
}
