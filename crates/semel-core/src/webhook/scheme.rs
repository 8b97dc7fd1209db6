//! The ways in which senders sign.

use core::time::Duration;

use super::id::IdFrom;
use super::mac::{Algorithm, Encoding};
use super::secret::{Secret, SecretError};
use super::template::Template;

/// How a sender signs its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Standard Webhooks 1.0, with the headers `webhook-…` or, where there are none of these, `svix-…`.
    Standard,
    /// Stripe's `Stripe-Signature`.
    Stripe,
    /// GitHub's `X-Hub-Signature-256`.
    Github,
    /// Slack's `X-Slack-Signature`.
    Slack,
    /// An HMAC in a header of the sender's choice.
    Hmac(Keyed),
    /// Not at all: whoever knows the address can deliver.
    None,
}

/// Where an HMAC is and how it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The header that has it.
    pub header: String,
    /// What comes before it there.
    pub prefix: String,
    /// What it was hashed with.
    pub algorithm: Algorithm,
    /// How it is written.
    pub encoding: Encoding,
    /// What was signed.
    pub signed: Template,
    /// The header with the time at which it was signed, in seconds since 1970.
    pub timestamp: Option<String>,
}

const HOUR: u64 = 60 * 60;
const DAY: u64 = 24 * HOUR;

impl Scheme {
    /// All words that users see.
    pub const WORDS: [&str; 6] = ["standard", "stripe", "github", "slack", "hmac", "none"];

    /// Returns the word that users see.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::Github => "github",
            Self::Slack => "slack",
            Self::Hmac(_) => "hmac",
            Self::None => "none",
        }
    }

    /// Reads a secret as the sender gives it to its customers.
    ///
    /// # Errors
    /// Says what is wrong, without showing it.
    pub fn secret(&self, text: &str) -> Result<Secret, SecretError> {
        match self {
            Self::Standard => Secret::standard(text),
            Self::Stripe | Self::Github | Self::Slack | Self::Hmac(_) | Self::None => {
                Secret::plain(text)
            }
        }
    }

    /// Says whether its signatures say when they were made.
    #[must_use]
    pub const fn is_dated(&self) -> bool {
        match self {
            Self::Standard | Self::Stripe | Self::Slack => true,
            Self::Hmac(keyed) => keyed.timestamp.is_some(),
            Self::Github | Self::None => false,
        }
    }

    /// Returns where the sender's id usually is; `None` where every sender has its own way.
    #[must_use]
    pub fn usual_id(&self) -> Option<IdFrom> {
        let pointer = |text| IdFrom::parse(text).ok();
        match self {
            Self::Standard => Some(IdFrom::Signed),
            Self::Stripe => pointer("/id"),
            Self::Github => Some(IdFrom::Header("x-github-delivery".to_owned())),
            Self::Slack => pointer("/event_id"),
            Self::Hmac(_) | Self::None => None,
        }
    }

    /// Returns for how long a sender may come back with a delivery: what is not remembered for longer is taken for
    /// a new one.
    #[must_use]
    pub const fn horizon(&self) -> Duration {
        Duration::from_secs(match self {
            // The schedule that the specification suggests: 75 h 35 min after the first attempt.
            Self::Standard => 75 * HOUR + 35 * 60,
            // Live events are tried for three days.
            Self::Stripe => 3 * DAY,
            // Nothing is tried again by itself, and people can redeliver what is up to three days old.
            Self::Github => 3 * DAY,
            // Three attempts within minutes, or hourly for a day where the app asked for that.
            Self::Slack => DAY,
            // Nobody knows: as long as those keep at it who are known to keep at it longest.
            Self::Hmac(_) | Self::None => 7 * DAY,
        })
    }
}
