//! The signals of the hosts of a run (SCR mechanism S-4), for a log. Collecting changes neither the run nor its trace.

use rnic_base::Time;
use rnic_engine::{Signal, SignalSettings, Signals};

use super::Simulation;

/// Signals of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignalLog {
    /// Names of the hosts, by their numbers.
    pub hosts: Vec<String>,
    /// Records with the numbers of their hosts, in the order of their last signals, then of hosts.
    pub records: Vec<(u32, Signal)>,
    /// Number of signals that are not in `records`, because it was full.
    pub lost: u64,
}

impl Simulation {
    /// Starts to collect the signals of all hosts.
    pub fn collect_signals(&mut self) {
        let settings = SignalSettings { records_max: RECORDS_MAX / self.parts.host_count(), ..Default::default() };
        self.parts.hosts_mut().for_each(|host| Signals::of(&mut host.engine).collect(settings));
    }

    /// Removes and returns the signals that were collected; `None` if the simulation does not collect signals.
    pub fn take_signals(&mut self) -> Option<SignalLog> {
        let (topology, mut records, mut lost) = (self.plan.topology.build(), Vec::new(), 0);
        let numbers = 0..self.parts.host_count() as u32;
        for number in numbers.clone() {
            let engine = &mut self.parts.host_mut(number).engine;
            if !Signals::of(engine).are_collected() {
                return None;
            }
            let of_host = Signals::of(engine).take(Time::from_ps(u64::MAX), usize::MAX);
            records.extend(of_host.map(|record| (number, record)));
            lost += Signals::of(engine).lost();
        }
        // The sort is stable: hosts remain in order.
        records.sort_by_key(|(_, record)| record.last);
        Some(SignalLog { hosts: numbers.map(|number| topology.name(number)).collect(), records, lost })
    }
}

/// Maximum number of records of all hosts.
const RECORDS_MAX: usize = 1 << 22;
