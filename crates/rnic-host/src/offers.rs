//! The transports that a device offers to its peers, and loading of transport programs and laws into them while the
//! device is open.
//!
//! A queue pair keeps the transport with which it was created: a program that is loaded decides in those that are
//! created later (Tonic section 3.5, T-28).

use std::sync::Arc;

use rnic_base::Duration;
use rnic_engine::Transport;
use rnic_policy::ProfileError;
use rnic_transports::{LoadedProgram, SelectError};

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
    /// The transport as it was when the device was opened.
    first: Arc<Transport>,
    /// Programs that have been loaded since, at most one for each option.
    loaded: Vec<LoadedProgram>,
    /// The transport that new queue pairs use now.
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
        /// Value of the option `--transport` with which the program can be loaded: a transport, or `FILE`.
        needed: &'static str,
    },
    /// The transport's packets cannot be congestion-marked.
    #[error(
        "the program `{program}` acts on congestion marks, and the process was started with {transport} and nothing \
         that acts on them; start it with a file that does, such as this one: {option}"
    )]
    NoMarks {
        /// Name of the program.
        program: &'static str,
        /// Name of the offered transport.
        transport: String,
        /// Option with which a process is started with such a program.
        option: String,
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

    /// Returns the transport that is offered to peers first.
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

    /// Installs `program`, which was loaded from a file, in every offered transport that supports it, for queue pairs
    /// that are created from now on. Returns the names of these transports.
    ///
    /// # Errors
    /// If no offered transport supports the program, or an option that was set when the device was opened is not valid
    /// with it.
    pub fn load(&mut self, program: LoadedProgram) -> Result<Vec<String>, LoadError> {
        let mut loaded = Vec::new();
        let (mut needed, mut refused) = ("", None);
        for (index, offer) in self.offers.iter().enumerate() {
            let options: Vec<_> = offer.options.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            // The options and signals of fallbacks are the defaults.
            let has_messages = self.has_messages && index == 0;
            let mut programs = offer.loaded.clone();
            programs.retain(|other| other.option() != program.option());
            programs.push(program);
            match TransportChoice::with_programs(has_messages, &offer.name, &programs, &options) {
                Ok(choice) if choice.reacts_to_ecn() && !self.marks_congestion => {
                    return Err(LoadError::NoMarks {
                        program: program.name(),
                        transport: self.offers[0].name.clone(),
                        option: match program {
                            LoadedProgram::Transport(_) => "--transport FILE".to_owned(),
                            LoadedProgram::Law(law) => format!("--set {}=FILE", law.kind().name()),
                        },
                    });
                }
                Ok(choice) => loaded.push((index, programs, Arc::new(Transport::new(choice.profile)?))),
                Err(SelectError::OtherTransport { needed: other, .. }) => needed = other,
                // Another of the offered transports may have what a law needs.
                Err(error @ SelectError::Composition(_)) => refused = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        if loaded.is_empty() {
            let names: Vec<&str> = self.offers.iter().map(|offer| offer.name.as_str()).collect();
            let needed = if self.lacks_marks(&program, needed) { "FILE" } else { needed };
            let other = LoadError::OtherTransport { offered: names.join(", "), program: program.name(), needed };
            return Err(refused.map_or(other, LoadError::from));
        }
        let set = |(index, programs, transport): (usize, Vec<LoadedProgram>, Arc<Transport>)| {
            let offer = &mut self.offers[index];
            (offer.loaded, offer.current) = (programs, transport);
            offer.name.clone()
        };
        Ok(loaded.into_iter().map(set).collect())
    }

    /// Returns whether `program` acts on congestion marks, and a process that is started with the transport `needed`
    /// would not send and count them.
    fn lacks_marks(&self, program: &LoadedProgram, needed: &str) -> bool {
        let reacts = |programs: &[LoadedProgram]| {
            TransportChoice::with_programs(self.has_messages, needed, programs, &[])
                .is_ok_and(|choice| choice.reacts_to_ecn())
        };
        reacts(&[*program]) && !reacts(&[])
    }

    /// Takes out what has been loaded since the device was opened, and returns the names of the transports that change.
    pub fn unload(&mut self) -> Vec<String> {
        let changed = self.offers.iter_mut().filter(|offer| !Arc::ptr_eq(&offer.first, &offer.current));
        let reset = |offer: &mut Offer| {
            offer.loaded.clear();
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
        Ok(Self { name: name.to_owned(), options: options.to_vec(), first, loaded: Vec::new(), current })
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use rnic_transports::{laws, programs};

    use super::*;

    fn offers(variables: &[(&str, &str)]) -> Offers {
        Offers::of(&Settings::from_variables(variables.iter().copied()).expect("legal")).expect("transports")
    }

    fn loaded(name: &str) -> LoadedProgram {
        let text = match laws::find(name) {
            Some(law) => laws::to_file(law),
            None => programs::to_file(programs::find(name).expect("registered")),
        };
        LoadedProgram::load(text.expect("it has graphs").as_bytes()).expect("a program")
    }

    fn programs_of(offers: &Offers) -> Vec<Option<Cow<'static, str>>> {
        (0..).map_while(|index| offers.get(index)).map(|offer| offer.profile().loaded_programs()).collect()
    }

    #[test]
    fn t28_laws_are_loaded_beside_each_other_and_beside_a_program() {
        let mut offers = offers(&[("RNIC_TRANSPORT", "irn,tonic-new-reno")]);
        assert_eq!(offers.load(loaded("law-aimd")).expect("irn has no controller"), ["irn"]);
        assert_eq!(offers.load(loaded("law-water-filling")).expect("both have a scheduler"), ["irn", "tonic-new-reno"]);
        assert_eq!(offers.load(loaded("reno")).expect("it runs"), ["tonic-new-reno"]);
        let both = |names: &[&'static str]| Some(Cow::from(names.join(", ")));
        assert_eq!(programs_of(&offers), [both(&["aimd", "water-filling"]), both(&["reno", "water-filling"])]);
        let error = offers.load(loaded("law-probed")).expect_err("the NIC exchanges no messages").to_string();
        assert!(error.contains("messages") && error.lines().count() == 1, "{error}");
        assert_eq!(programs_of(&offers), [both(&["aimd", "water-filling"]), both(&["reno", "water-filling"])]);
        assert_eq!(offers.unload(), ["irn", "tonic-new-reno"]);
        assert_eq!(programs_of(&offers), [None, None]);
    }

    #[test]
    fn t28_a_loaded_program_decides_in_the_transports_over_which_it_runs() {
        let mut offers = offers(&[("RNIC_TRANSPORT", "tonic-sack,irn,tonic-new-reno,tonic-ndp")]);
        assert_eq!(offers.load(loaded("reno")).expect("it runs"), ["tonic-sack", "tonic-new-reno"]);
        assert_eq!(programs_of(&offers), [Some("reno".into()), None, Some("reno".into()), None]);
        let kept = Arc::clone(offers.preferred());
        assert_eq!(offers.load(loaded("irn")).expect("it runs"), ["tonic-sack", "tonic-new-reno"]);
        assert_eq!(offers.load(loaded("ndp")).expect("it runs"), ["tonic-ndp"]);
        assert_eq!(programs_of(&offers), [Some("irn".into()), None, Some("irn".into()), Some("ndp".into())]);
        assert_eq!(kept.profile().loaded_programs(), Some("reno".into()), "a queue pair lost its program");
        assert_eq!(offers.unload(), ["tonic-sack", "tonic-new-reno", "tonic-ndp"]);
        assert_eq!(programs_of(&offers), [const { None }; 4]);
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
    fn a_process_for_a_program_that_acts_on_marks_is_started_with_a_file() {
        let reno = programs::to_file(programs::find("reno").expect("registered")).expect("it has graphs");
        let marked = reno.replace("rto_max", "cnp_interval").replace("name = \"reno\"", "name = \"marked\"");
        let marked = LoadedProgram::load(marked.as_bytes()).expect("a program");
        for transport in ["irn", "tonic-new-reno"] {
            let mut offers = offers(&[("RNIC_TRANSPORT", transport)]);
            let error = offers.load(marked).expect_err("it was started without marks").to_string();
            assert!(error.contains("`marked`") && error.ends_with("--transport FILE"), "{transport}: {error}");
        }
        // This transport acts on marks.
        let mut with_marks = offers(&[("RNIC_TRANSPORT", "tonic-dcqcn,tonic-new-reno")]);
        assert_eq!(with_marks.load(marked).expect("marks are on"), ["tonic-new-reno"]);
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
        assert!(error.contains("congestion marks") && error.ends_with("--transport FILE"), "{error}");
    }
}
