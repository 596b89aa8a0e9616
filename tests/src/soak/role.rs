//! Roles in which the soak test starts its own program.

use crate::Place;
use crate::campaign::Campaign;

use super::attack;

/// A part of a step that runs as a process of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// The semantics fuzz, both ends in one process.
    Semantics {
        /// True to use memory instead of sockets.
        through_memory: bool,
        /// Name of the transport.
        transport: String,
        /// Seed of the first run.
        seed: u64,
    },
    /// An attack on NICs.
    Attack {
        /// Duration in milliseconds.
        ms: u64,
        /// Addresses of sockets, and abstract socket names with an `@` in front.
        targets: Vec<String>,
    },
}

impl Role {
    /// Returns the role as words of a command line.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Semantics { through_memory, transport, seed } => {
                let place = if *through_memory { "memory" } else { "sockets" };
                vec!["semantics".to_owned(), place.to_owned(), transport.clone(), seed.to_string()]
            }
            Self::Attack { ms, targets } => [vec!["attack".to_owned(), ms.to_string()], targets.clone()].concat(),
        }
    }

    /// Parses a role from these words.
    pub fn parse(words: &[String]) -> Option<Self> {
        let (name, rest) = words.split_first()?;
        match (name.as_str(), rest) {
            ("semantics", [place, transport, seed]) => Some(Self::Semantics {
                through_memory: place == "memory",
                transport: transport.clone(),
                seed: seed.parse().ok()?,
            }),
            ("attack", [ms, targets @ ..]) => Some(Self::Attack { ms: ms.parse().ok()?, targets: targets.to_vec() }),
            _ => None,
        }
    }

    /// Runs the role to its end.
    ///
    /// # Errors
    /// The finding of the fuzz.
    pub fn play(self) -> Result<(), String> {
        match self {
            Self::Semantics { through_memory, transport, seed } => {
                let place = if through_memory { Place::Memory } else { Place::Sockets };
                let (packets, packets_per_run) = (u64::MAX, PACKETS_PER_RUN);
                let campaign = Campaign {
                    place,
                    transport,
                    ordering: None,
                    flows: None,
                    seed,
                    runs: RUNS,
                    packets,
                    packets_per_run,
                    capture: None,
                };
                campaign.run(|_, _| {}).map(drop)
            }
            Self::Attack { ms, targets } => {
                attack::run(std::time::Duration::from_millis(ms), &targets);
                Ok(())
            }
        }
    }
}

/// Number of runs: some seconds of work on a busy machine.
const RUNS: u64 = 12;
const PACKETS_PER_RUN: u64 = 4_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_survive_conversion_to_words() {
        for role in [
            Role::Semantics { through_memory: true, transport: "irn".to_owned(), seed: 9 },
            Role::Attack { ms: 700, targets: vec!["127.0.0.1:1".to_owned(), "@rnic-wire-1".to_owned()] },
        ] {
            assert_eq!(Role::parse(&role.words()), Some(role));
        }
        assert_eq!(Role::parse(&["other".to_owned()]), None);
    }
}
