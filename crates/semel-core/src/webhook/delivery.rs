//! One delivery, as it arrived.

use super::refusal::Refusal;

/// One delivery: its headers and the bytes of its body, before anybody has read anything into them.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Names, in any case, and values, one pair for each line.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Delivery<'a> {
    /// Returns the value of a header; one that is there twice means nothing, as the sender's software and ours may each
    /// take another one.
    pub(super) fn header(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let mut lines = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let first = lines.next();
        if lines.next().is_some() {
            let name = name.to_owned();
            return Err(Refusal::RepeatedHeader { name });
        }
        Ok(first.map(|(_, value)| *value))
    }

    /// Returns the value of a header that has to be there and to say something.
    pub(super) fn needed(&self, name: &str) -> Result<&'a [u8], Refusal> {
        let value = self.header(name)?.filter(|value| !value.is_empty());
        value.ok_or_else(|| Refusal::MissingHeader {
            name: name.to_owned(),
        })
    }
}
