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

/// A header is there more than once.
struct Repeated;

impl<'a> Delivery<'a> {
    /// Returns the value of a header; one that is there twice means nothing, as the sender's software and ours may each
    /// take another one.
    pub(super) fn header(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let repeated = |Repeated| Refusal::RepeatedHeader {
            name: name.to_owned(),
        };
        self.only(name).map_err(repeated)
    }

    /// As [`Delivery::header`], for what says which delivery it is: the signature is right by then.
    pub(super) fn id_header(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let repeated = |Repeated| Refusal::RepeatedId {
            name: name.to_owned(),
        };
        self.only(name).map_err(repeated)
    }

    fn only(&self, name: &str) -> Result<Option<&'a [u8]>, Repeated> {
        let mut lines = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let first = lines.next();
        if lines.next().is_some() {
            return Err(Repeated);
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
