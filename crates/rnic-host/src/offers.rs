//! The transports that a device offers to its peers, and loading of programs into them while the device is open.
//!
//! A queue pair keeps the transport with which it was created: a program that is loaded decides in those that are
//! created later (Tonic section 3.5, T-28).

use std::sync::Arc;

use rnic_base::Duration;
use rnic_engine::Transport;
use rnic_policy::{ProfileError, RecoveryPolicy};
use rnic_transports::SelectError;

use crate::defaults::TransportChoice;
use crate::settings::{Settings, SettingsError};

/// The offered transports, best first: at least one.
#[derive(Clone, Debug)]
pub struct Offers {
    offers: Vec<Offer>,
    /// True when the NIC exchanges messages with those of its peers.
    has_messages: bool,
    /// True when the device was opened to send and to count congestion marks.
    marks_congestion: bool,
}

/// One offered transport.
#[derive(Clone, Debug)]
struct Offer {
    name: String,
    /// Options by the user.
    options: Vec<(String, String)>,
    /// As it was when the device was opened.
    first: Arc<Transport>,
    /// As queue pairs get it now.
    current: Arc<Transport>,
}

/// The reason why a program was not loaded; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// No offered transport has the packets and the receiver that the program needs.
    #[error("it offers {offered}, and the program `{program}` needs {needed}; start it with --transport {needed}")]
    OtherTransport {
        /// Offered transports.
        offered: String,
        /// Name of the program.
        program: &'static str,
        /// A transport that has them.
        needed: &'static str,
    },
    /// Its packets cannot be marked.
    #[error(
        "the program `{program}` acts on congestion notifications, and its transport {transport} was started without; \
         start it with --transport FILE"
    )]
    NoMarks {
        /// Name of the program.
        program: &'static str,
        /// The offered transport.
        transport: String,
    },
    /// An option that the user has set does not fit the program.
    #[error(transparent)]
    Option(#[from] SelectError),
    /// The parts of the transport do not fit together.
    #[error(transparent)]
    Transport(#[from] ProfileError),
}

impl Offers {
    /// Returns the transports that `settings` name.
    ///
    /// # Errors
    /// When one of them does not exist, or does not have one of the options.
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        let choice = settings.transport_choice()?;
        let marks_congestion = choice.reacts_to_ecn();
        let mut offers = vec![Offer::new(&settings.transport, &settings.options, choice, settings)?];
        for (name, choice) in settings.fallbacks.iter().zip(settings.fallback_choices()?) {
            offers.push(Offer::new(name, &[], choice, settings)?);
        }
        Ok(Self { offers, has_messages: settings.messages.is_some(), marks_congestion })
    }

    /// Returns the preferred transport.
    pub fn preferred(&self) -> &Arc<Transport> {
        &self.offers[0].current
    }

    /// Returns the transport with number `index` in the list of offers.
    pub fn get(&self, index: usize) -> Option<&Arc<Transport>> {
        self.offers.get(index).map(|offer| &offer.current)
    }

    /// Returns the unit in which the preferred transport counts the time until a silent peer is declared failed:
    /// [`rnic_policy::Profile::silence_unit`].
    pub fn silence_unit(&self) -> Option<Duration> {
        self.preferred().profile().silence_unit()
    }

    /// Puts the program `policy`, which was loaded from a file, into each offered transport over which it runs, for the
    /// queue pairs that are created from now on, and returns the names of these transports.
    ///
    /// # Errors
    /// When it runs over none, or an option that was set when the device was opened does not fit it.
    pub fn load(&mut self, policy: RecoveryPolicy) -> Result<Vec<String>, LoadError> {
        let mut loaded = Vec::new();
        let mut needed = "";
        for (index, offer) in self.offers.iter().enumerate() {
            let options: Vec<_> = offer.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            // The options and signals of fallbacks are the defaults.
            let has_messages = self.has_messages && index == 0;
            match TransportChoice::with_program(has_messages, &offer.name, policy, &options) {
                Ok(choice) if choice.reacts_to_ecn() && !self.marks_congestion => {
                    return Err(LoadError::NoMarks { program: policy.name, transport: offer.name.clone() });
                }
                Ok(choice) => loaded.push((index, Arc::new(Transport::new(choice.profile)?))),
                Err(SelectError::OtherTransport { needed: other, .. }) => needed = other,
                Err(error) => return Err(error.into()),
            }
        }
        if loaded.is_empty() {
            let names: Vec<&str> = self.offers.iter().map(|offer| offer.name.as_str()).collect();
            return Err(LoadError::OtherTransport { offered: names.join(", "), program: policy.name, needed });
        }
        let set = |(index, transport): (usize, Arc<Transport>)| {
            self.offers[index].current = transport;
            self.offers[index].name.clone()
        };
        Ok(loaded.into_iter().map(set).collect())
    }

    /// Takes out what has been loaded since the device was opened, and returns the names of the transports that change.
    pub fn unload(&mut self) -> Vec<String> {
        let changed = self.offers.iter_mut().filter(|offer| !Arc::ptr_eq(&offer.first, &offer.current));
        let reset = |offer: &mut Offer| {
            offer.current = Arc::clone(&offer.first);
            offer.name.clone()
        };
        changed.map(reset).collect()
    }
}

impl Offer {
    fn new(
        name: &str,
        options: &[(String, String)],
        choice: TransportChoice,
        settings: &Settings,
    ) -> Result<Self, SettingsError> {
        let first = Arc::new(Transport::new(choice.profile).map_err(|error| SettingsError::Transport {
            transport: settings.transport_list(),
            options: String::new(),
            reason: error.to_string(),
        })?);
        let current = Arc::clone(&first);
        Ok(Self { name: name.to_owned(), options: options.to_vec(), first, current })
    }
}

#[cfg(test)]
mod tests {
    use rnic_transports::programs;

    use super::*;

    fn offers(variables: &[(&str, &str)]) -> Offers {
        Offers::of(&Settings::from_variables(variables.iter().copied()).expect("legal")).expect("transports")
    }

    fn loaded(name: &str) -> RecoveryPolicy {
        let text = programs::to_file(programs::find(name).expect("registered")).expect("it has graphs");
        programs::load(text.as_bytes()).expect("a program")
    }

    fn programs_of(offers: &Offers) -> Vec<Option<&'static str>> {
        (0..).map_while(|index| offers.get(index)).map(|offer| offer.profile().loaded_program()).collect()
    }

    #[test]
    fn t28_a_loaded_program_decides_in_the_transports_over_which_it_runs() {
        let mut offers = offers(&[("RNIC_TRANSPORT", "tonic-sack,irn,tonic-new-reno,tonic-ndp")]);
        assert_eq!(offers.load(loaded("reno")).expect("it runs"), ["tonic-sack", "tonic-new-reno"]);
        assert_eq!(programs_of(&offers), [Some("reno"), None, Some("reno"), None]);
        let kept = Arc::clone(offers.preferred());
        assert_eq!(offers.load(loaded("irn")).expect("it runs"), ["tonic-sack", "tonic-new-reno"]);
        assert_eq!(offers.load(loaded("ndp")).expect("it runs"), ["tonic-ndp"]);
        assert_eq!(programs_of(&offers), [Some("irn"), None, Some("irn"), Some("ndp")]);
        assert_eq!(kept.profile().loaded_program(), Some("reno"), "a queue pair lost its program");
        assert_eq!(offers.unload(), ["tonic-sack", "tonic-new-reno", "tonic-ndp"]);
        assert_eq!(programs_of(&offers), [None; 4]);
        assert_eq!(offers.unload(), [""; 0]);
    }

    #[test]
    fn options_by_the_user_stay_in_force_and_defaults_of_software_apply() {
        let mut offers = offers(&[("RNIC_TRANSPORT", "tonic-new-reno"), ("RNIC_SET", "rto_min=77ms")]);
        let value = |offers: &Offers, name: &str| {
            let found = offers.preferred().profile().options().find(|(spec, _)| spec.name == name);
            found.map(|(_, value)| value)
        };
        let timeout = value(&offers, "rto_min").expect("an option");
        offers.load(loaded("sack")).expect("it runs");
        assert_eq!(value(&offers, "rto_min"), Some(timeout));
        let cap = value(&offers, "cap_packets");
        offers.unload();
        assert_eq!(value(&offers, "cap_packets"), cap);
    }

    #[test]
    fn a_program_that_does_not_fit_is_refused_and_changes_nothing() {
        let reason = |variables: &[(&str, &str)], program: &str| {
            let mut offers = offers(variables);
            let before = programs_of(&offers);
            let error = offers.load(loaded(program)).expect_err("it does not fit").to_string();
            assert_eq!(programs_of(&offers), before);
            assert_eq!(error.lines().count(), 1, "{error}");
            error
        };
        let error = reason(&[("RNIC_TRANSPORT", "irn,roce-gbn")], "reno");
        assert!(error.contains("offers irn, roce-gbn") && error.contains("--transport tonic-new-reno"), "{error}");
        let error = reason(&[("RNIC_TRANSPORT", "tonic-new-reno")], "dcqcn");
        assert!(error.contains("--transport tonic-dcqcn"), "{error}");
        let error = reason(&[("RNIC_TRANSPORT", "tonic-new-reno"), ("RNIC_SET", "dup_threshold=4")], "irn");
        assert!(error.contains("dup_threshold"), "{error}");
        let error = reason(&[("RNIC_TRANSPORT", "tonic-ndp,tonic-dcqcn")], "dcqcn");
        assert!(error.contains("congestion notifications"), "{error}");
    }
}
