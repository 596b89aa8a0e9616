//! Tonic's programs in their template against independent implementations, over the same simulated network (section
//! 6.2).
//!
//! Each run simulates both sides, one after the other: hosts whose links serve the template ([`host`]), and hosts with
//! an implementation that shares no code with programs: TCP ([`rnic_fabric::host::tcp`]), or an engine with go-back-N
//! and DCQCN. Receivers are the same for both, and know nothing of the template. The numbers of a run say how far the
//! sides differ ([`compare`]).
//!
//! Source: Tonic (NSDI'20), section 6.2 and figures 3 and 4.

pub mod compare;
pub mod host;
pub mod new_reno;
pub mod rates;
pub mod wire;

#[cfg(test)]
mod tests;

use rnic_base::{BitRate, Duration};
use rnic_fabric::{Plan, Simulation};
use rnic_program::{Fields as _, Transport};
use rnic_tonic::{Installed, Sizes, Tonic, Visits};
use serde::Deserialize;

use super::within;
use host::HostSettings;

/// The network of a run: hosts around one switch, the last of them the receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Sending hosts.
    pub senders: u32,
    /// Flows of each of them.
    pub flows: u16,
    /// Rate of all links, as in plans.
    pub rate: String,
    /// Delay of a link; a round trip has four.
    pub delay: String,
    /// Buffer of the switch.
    pub buffer: String,
    /// Largest random delay of data packets of senders on their links, less than the time of a packet: without any,
    /// senders of equal rate are in step, and a full buffer drops always the packets of the same one.
    pub jitter: String,
    /// Length of a segment in bytes.
    pub segment: u16,
    /// Simulated time.
    pub duration: String,
    /// Interval between samples.
    pub sample: String,
    /// Samples, or round trips for windows, that are not compared, at the beginning.
    pub skip: usize,
    /// Length of a cycle of the template.
    pub cycle: String,
    /// Number of flows of the Tonic NIC.
    pub template: u16,
    /// Packets between the template and the link.
    pub queue: usize,
    /// Segments after which a flow of the template ends; none by default.
    #[serde(default = "no_end")]
    pub segments: u64,
    /// True to run the Tonic NIC in every cycle, not only in those in which something can change: slow, with the same
    /// results.
    #[serde(default)]
    pub every_cycle: bool,
    /// Length of the traces in the result, from the start.
    pub trace: String,
}

fn no_end() -> u64 {
    u64::MAX
}

impl Network {
    fn check(&self) -> Result<(), String> {
        within("senders", self.senders, 1, 64)?;
        within("template", self.template, 1, 2_048)?;
        within("flows", self.flows, 1, self.template)?;
        within("segment", self.segment, 64, 8_192)?;
        within("queue", self.queue, 1, 1 << 16)?;
        let (duration, sample) = (self.duration()?, self.sample()?);
        within("duration", duration, Duration::from_us(1), Duration::from_secs(60))?;
        within("sample", sample, Duration::from_ns(100), duration)?;
        within("cycle", duration_of_cycle(self)?, Duration::from_ns(1), Duration::from_us(1))?;
        within("trace", self.trace()?, sample, sample.saturating_mul(TRACE_MAX).min(duration))?;
        let rate: BitRate = parse("rate", &self.rate)?;
        within("rate", rate.as_bps(), 1_000_000, 10_000_000_000_000)
    }

    fn duration(&self) -> Result<Duration, String> {
        duration("duration", &self.duration)
    }

    fn sample(&self) -> Result<Duration, String> {
        duration("sample", &self.sample)
    }

    /// Returns the round trip without waiting.
    fn round_trip(&self) -> Result<Duration, String> {
        Ok(duration("delay", &self.delay)?.saturating_mul(4).max(Duration::from_ns(1)))
    }

    fn trace(&self) -> Result<Duration, String> {
        duration("trace", &self.trace)
    }

    /// Returns the first samples of `values`, as many as traces have.
    fn traced<'v>(&self, values: &'v [f64]) -> Result<&'v [f64], String> {
        let count = self.trace()?.as_ps() / self.sample()?.as_ps().max(1);
        Ok(&values[..values.len().min(count as usize)])
    }

    /// Returns the payload that the receiver's link moves in the time of a run: a measure of the work of a run.
    fn bytes(&self) -> Result<u64, String> {
        let rate: BitRate = parse("rate", &self.rate)?;
        Ok((u128::from(rate.as_bps()) * u128::from(self.duration()?.as_ps()) / 8_000_000_000_000) as u64)
    }

    fn host_settings(&self) -> Result<HostSettings, String> {
        let cycle = duration_of_cycle(self)?;
        let Self { segment, queue, segments, every_cycle, .. } = *self;
        Ok(HostSettings { cycle, segment_bytes: segment, queue, segments, every_cycle })
    }

    /// Returns the receiving host.
    fn receiver(&self) -> u32 {
        self.senders
    }

    /// Builds the simulation, without traffic; `switch` has further keys of the plan's switch.
    fn simulation(&self, transport: &str, switch: &toml::Table, seed: u64) -> Result<Simulation, String> {
        let Self { senders, rate, delay, buffer, segment, jitter, .. } = self;
        let (hosts, mtu) = (senders + 1, (*segment).max(256).next_multiple_of(4));
        let fault = match duration("jitter", jitter)? {
            Duration::ZERO => String::new(),
            _ => format!(
                "fault = [{{ kind = \"delay\", jitter = \"{jitter}\", packets = \"data\", links = \"host-*>*\" }}]\n"
            ),
        };
        let switch: String = switch.iter().map(|(key, value)| format!(", {key} = {value}")).collect();
        let text = format!(
            "mtu = {mtu}\n\
             topology = {{ kind = \"star\", hosts = {hosts} }}\n\
             links = {{ rate = \"{rate}\", delay = \"{delay}\" }}\n\
             switch = {{ model = \"shared-buffer\", buffer = \"{buffer}\", alpha = \"64\"{switch} }}\n\
             transport = {transport}\n\
             workload = {{ kind = \"manual\" }}\n{fault}"
        );
        let plan = Plan::from_toml(&text).map_err(|error| error.to_string())?;
        Simulation::new(&plan, seed).map_err(|error| error.to_string())
    }

    /// Returns the NIC of a sender that runs `program`, some of whose parameters have other values than the defaults.
    fn nic(&self, program: &str, parameters: &[(&str, u64)], window: u16) -> Result<NicSpec, String> {
        let program = program_named(program)?;
        let description = program.description();
        let mut words = description.defaults();
        for (name, word) in parameters {
            let place = description.parameters.iter().position(|parameter| &*parameter.name == *name);
            words[place.ok_or_else(|| format!("the program has no parameter `{name}`"))?] = *word;
        }
        let rate: BitRate = parse("rate", &self.rate)?;
        let sizes = Sizes { flows: self.template, window, ..Sizes::default() };
        Ok(NicSpec { program, parameters: words, link_rate: rate_word(rate), sizes, every_cycle: self.every_cycle })
    }
}

/// The NIC of a sender: what a model or a circuit is made for.
#[derive(Clone)]
pub struct NicSpec {
    /// The program.
    pub program: &'static dyn Transport,
    /// Values of the program's parameters.
    pub parameters: Vec<u64>,
    /// Rate of a flow to which the program gives none, in bytes per 2^16 cycles.
    pub link_rate: u32,
    /// Sizes of the NIC.
    pub sizes: Sizes,
    /// True if every cycle is run.
    pub every_cycle: bool,
}

impl NicSpec {
    /// Returns the model of the NIC.
    ///
    /// # Errors
    /// When the program cannot be installed, or a size is out of range.
    pub fn model(&self) -> Result<Tonic, String> {
        let installed = Installed::new(self.program, self.parameters.clone(), self.link_rate);
        let installed = installed.map_err(|error| error.to_string())?;
        let mut tonic = Tonic::new(self.sizes, installed).map_err(|error| error.to_string())?;
        tonic.set_visits(if self.every_cycle { Visits::All } else { Visits::Due });
        Ok(tonic)
    }
}

fn program_named(name: &str) -> Result<&'static dyn Transport, String> {
    rnic_transports::programs::find(name).ok_or_else(|| format!("there is no program `{name}`"))
}

/// Returns a rate in bytes per 2^16 cycles of 10 ns.
fn rate_word(rate: BitRate) -> u32 {
    // A unit is 390,625 / 32 bit/s.
    u32::try_from(rate.as_bps().saturating_mul(32) / 390_625).unwrap_or(u32::MAX)
}

fn parse<T: core::str::FromStr<Err: core::fmt::Display>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{name}: {error}"))
}

fn duration(name: &str, text: &str) -> Result<Duration, String> {
    parse(name, text)
}

/// Maximum number of samples in a trace.
const TRACE_MAX: u64 = 4_000;

fn duration_of_cycle(network: &Network) -> Result<Duration, String> {
    duration("cycle", &network.cycle)
}
