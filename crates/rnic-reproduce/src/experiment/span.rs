//! An interval of simulated time.

use rnic_base::Duration;
use serde::Deserialize;

/// An interval of simulated time, from start to end: `["10ms", "20ms"]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "[String; 2]")]
pub struct Span {
    /// Start, since the beginning of the run.
    pub from: Duration,
    /// End, since the beginning of the run; after `from`.
    pub until: Duration,
}

impl TryFrom<[String; 2]> for Span {
    type Error = String;

    fn try_from([from, until]: [String; 2]) -> Result<Self, String> {
        let time = |text: &str| text.parse::<Duration>().map_err(|error| error.to_string());
        let (from, until) = (time(&from)?, time(&until)?);
        if from >= until {
            Err("the end of the time span must be after its start".to_owned())
        } else {
            Ok(Self { from, until })
        }
    }
}

/// A length of simulated time: `"100us"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Length(pub Duration);

impl TryFrom<String> for Length {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: rnic_base::UnitError| error.to_string())
    }
}
