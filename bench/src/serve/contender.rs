//! The ledger over HTTP, as a contender: single calls, or arrays of them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::engines::{Contender, Cycles};
use crate::http::{Connection, Connections};
use crate::keys::Key;

/// Callers over HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    connections: Connections,
    /// How many calls go in one request; one goes by itself.
    together: usize,
}

impl Http {
    pub(crate) const fn new(address: String, together: usize) -> Self {
        Self {
            connections: Connections::new(address),
            together,
        }
    }

    /// Makes the body of a request: one call, or an array of calls about keys of one family.
    fn body(&self, key: Key, call: impl Fn(&str) -> String) -> Result<String> {
        let key = std::str::from_utf8(&key).context("keys are hexadecimal digits")?;
        if self.together == 1 {
            return Ok(call(key));
        }
        let calls = (0..self.together).map(|number| call(&format!("{key}-{number}")));
        Ok(format!("[{}]", calls.collect::<Vec<_>>().join(",")))
    }

    /// Returns the answers to a request.
    fn answers(&self, body: &[u8]) -> Result<Vec<Value>> {
        let answer: Value = serde_json::from_slice(body).context("the answer is not JSON")?;
        match answer {
            Value::Array(items) => {
                ensure!(items.len() == self.together, "some calls were not answered");
                let good = |item: &Value| item["status"] == 200;
                ensure!(items.iter().all(good), "a call was refused: {items:?}");
                Ok(items)
            }
            one => Ok(vec![one]),
        }
    }

    async fn begin(&self, connection: &mut Connection, key: Key) -> Result<Vec<Value>> {
        let call = |key: &str| format!(r#"{{"key":"{key}","name":"bench","attempt_id":"{key}"}}"#);
        let body = self.body(key, call)?;
        let answer = connection.post("/v1/begin", "", &body).await?;
        self.answers(&answer.body)
    }
}

impl Cycles for Http {
    async fn cycle(&self, key: Key, result: Vec<u8>) -> Result<()> {
        let mut connection = self.connections.take().await?;
        for granted in self.begin(&mut connection, key).await? {
            ensure!(
                granted["decision"] == "execute",
                "a fresh key was answered with {granted}"
            );
        }
        let data = String::from_utf8(result).context("results are JSON")?;
        let settle = |key: &str| {
            format!(
                r#"{{"key":"{key}","attempt_id":"{key}","fence":1,"verdict":"done","effect":"created","data":{data}}}"#
            )
        };
        let body = self.body(key, settle)?;
        let answer = connection.post("/v1/settle", "", &body).await?;
        for settled in self.answers(&answer.body)? {
            ensure!(
                settled["state"] == "succeeded",
                "a report was answered with {settled}"
            );
        }
        self.connections.put(connection);
        Ok(())
    }
}

impl Contender for Http {
    type Found = Vec<u8>;

    async fn replay(&self, key: Key) -> Result<Vec<u8>> {
        let mut connection = self.connections.take().await?;
        let answers = self.begin(&mut connection, key).await?;
        self.connections.put(connection);
        let first = answers.into_iter().next().context("nothing was answered")?;
        ensure!(
            first["decision"] == "replay",
            "a settled key was answered with {first}"
        );
        Ok(serde_json::to_vec(&first["receipt"]["data"])?)
    }
}
