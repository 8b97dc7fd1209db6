//! What a client over a network is told when a store fails.
//!
//! The words of a store name its file, the statement that failed or the host of its database: they are for the operator.
//! A client gets the same code and hint, what is known of its own request, and a number. The log of the process has the
//! number and the cause.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::store::StoreError;

/// A failure whose cause is for the operator only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The number that the client was told.
    pub id: IncidentId,
    /// The cause, for the log.
    pub cause: String,
}

/// The number by which an operator finds what a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncidentId(u64);

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An error without its cause.
#[derive(Debug)]
pub struct Concealed {
    /// What the client is told: the same kind of error, with the same code.
    pub error: Error,
    /// What the operator is told.
    pub incident: Incident,
}

impl Incident {
    /// Gives a cause a number.
    #[must_use]
    pub fn new(cause: String) -> Self {
        let mut random = [0; 8];
        // Without randomness the number is zero: the log still has the cause beside the time of the answer.
        let _zero = getrandom::fill(&mut random);
        Self {
            id: IncidentId(u64::from_le_bytes(random)),
            cause,
        }
    }
}

impl Error {
    /// Makes the error that a client over a network is told in place of this one; `None` where this one names nothing
    /// that is not the client's own.
    #[must_use]
    pub fn concealed(&self) -> Option<Concealed> {
        match self {
            Self::Store(error) => error.concealed().map(|(error, incident)| Concealed {
                error: Self::Store(error),
                incident,
            }),
            Self::Unstored {
                payload,
                noted,
                source,
            } => source.concealed().map(|(source, incident)| Concealed {
                error: Self::Unstored {
                    payload: payload.as_ref().map(Arc::clone),
                    noted: *noted,
                    source,
                },
                incident,
            }),
            Self::Refused(_)
            | Self::Failed(_)
            | Self::Interrupted { .. }
            | Self::InvalidKey(_)
            | Self::InvalidInput(_)
            | Self::Unauthorized(_)
            | Self::Unreadable(_)
            | Self::Crowded { .. }
            | Self::Ambiguous(_) => None,
        }
    }
}

impl StoreError {
    pub(crate) fn concealed(&self) -> Option<(Self, Incident)> {
        let incident = Incident::new(self.to_string());
        let told = |text: &str| {
            let id = incident.id;
            format!("{text} (the server's log has the cause: incident {id})")
        };
        let unusable = "the store cannot be used: it is closed, a copy, or not what was expected";
        let concealed = match self {
            Self::Unavailable(_) => {
                Self::Unavailable(told("the store does not answer, and nothing was written"))
            }
            Self::Unknown(_) => Self::Unknown(told(
                "the store does not answer, and it is not known whether this was written",
            )),
            Self::Corrupt(_) => Self::Corrupt(told("what is stored is damaged")),
            Self::Refused(_) => Self::Refused(told(unusable)),
            Self::Unusable { hint, .. } => Self::Unusable {
                text: told(unusable),
                hint,
            },
            Self::Unauthorized(_) | Self::Forbidden(_) | Self::TooLarge { .. } => return None,
        };
        Some((concealed, incident))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [&str; 3] = ["/var/lib/semel.db", "SELECT", "db.example:5432"];

    fn kinds() -> Vec<StoreError> {
        let makes = [
            StoreError::Unavailable,
            StoreError::Unknown,
            StoreError::Corrupt,
            StoreError::Refused,
        ];
        let mut kinds: Vec<_> = makes.map(|make| make(SECRETS.join(" "))).into();
        kinds.push(StoreError::Unusable {
            text: SECRETS.join(" "),
            hint: "semel restore",
        });
        kinds
    }

    #[test]
    fn concealed_errors_keep_their_code_and_hint_and_tell_no_cause() {
        let unstored = |source| Error::Unstored {
            payload: None,
            noted: true,
            source,
        };
        let stored = kinds().into_iter().map(Error::Store);
        for error in stored.chain(kinds().into_iter().map(unstored)) {
            let Concealed {
                error: told,
                incident,
            } = error.concealed().expect("it has a cause");
            let text = told.to_string();
            assert!(
                SECRETS.iter().all(|secret| !text.contains(secret)),
                "{text}"
            );
            assert!(text.contains(&incident.id.to_string()), "{text}");
            assert!(SECRETS.iter().all(|secret| incident.cause.contains(secret)));
            assert_eq!(
                (told.code(), told.hint(), told.retryable()),
                (error.code(), error.hint(), error.retryable())
            );
        }
    }

    #[test]
    fn incidents_have_different_numbers() {
        let number = || Incident::new(String::new()).id.to_string();
        let (one, other) = (number(), number());
        assert_eq!(one.len(), 16);
        assert_ne!(one, other);
    }
}
