//! The properties of a Falcon connection in addition to its policies: the options of transport `falcon`.
//!
//! Sources: Falcon (SIGCOMM'25) sections 4 and 5; OCP Falcon Transport Protocol and RDMA over Falcon Transport, both
//! Rev 0.9. Both ends of a connection must agree on order, errors and the number of flows.

use rnic_base::Duration;

use crate::params::{ParamError, ParamSpec};
use crate::paths::FLOWS_MAX;

/// The ordering guarantee of a queue pair (RDMA over Falcon, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FalconOrdering {
    /// Verbs ordering, on an ordered connection: requests are executed in order.
    #[default]
    Ordered,
    /// On an unordered connection: data is placed as it arrives, completions are in order at both ends.
    Weak,
    /// On an unordered connection: data is placed and requests complete in the order in which packets arrive.
    Unordered,
}

/// The effect of an error on a queue pair (RDMA over Falcon, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FalconErrors {
    /// Verbs error handling: both queue pairs fail.
    #[default]
    Verbs,
    /// The request completes in error, and the connection continues.
    CompleteInError,
}

/// The mechanism that keeps a connection from using all resources (Falcon mechanisms F-34 to F-36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FalconIsolation {
    /// No isolation of connections from each other.
    #[default]
    None,
    /// Each connection may hold a fixed number of packets of each resource, and buffers for that number of full
    /// packets.
    Static,
    /// Each connection may hold a share of the free resources, as set by the adaptive engine.
    Dynamic,
}

/// The location of the adaptive engine's per-connection state (Falcon mechanism F-40).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AdaptiveForm {
    /// In a table of the adaptive engine.
    #[default]
    Table,
    /// In the connections: the state is sent with each event and returned with the response; the engine keeps none.
    Stateless,
    /// In a table of which the cache lines are prefetched before the events that access them.
    Prefetching,
}

/// The place where the adaptive engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AdaptivePlace {
    /// In the datapath: in simulated time with the packets, or with the delays given by [`FalconShape::fae_interface`]
    /// and [`FalconShape::fae_work`].
    #[default]
    Datapath,
    /// On a separate thread, with the real latency of that thread. Not available in simulations, whose results would
    /// otherwise not be repeatable.
    Thread,
}

/// The options of a Falcon connection, as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FalconShape {
    /// Ordering guarantee of the connection's transactions.
    pub ordering: FalconOrdering,
    /// Error handling. [`FalconErrors::Verbs`] needs an order, so that one request is the first that fails; therefore
    /// an unordered connection completes requests in error (Rev 0.9, RDMA section 6) unless the user sets another
    /// value, which is refused.
    pub errors: FalconErrors,
    /// True when the user set `errors` explicitly.
    pub errors_given: bool,
    /// Flows (paths) of a connection: 1 to [`FLOWS_MAX`].
    pub flows: u8,
    /// True when a packet beyond the receiver's window is dropped, as in the specification; false when it is kept if
    /// there is space, as in the paper.
    pub drops_beyond_window: bool,
    /// True when a sender that is notified of packets dropped beyond the window sends no new requests in that window
    /// until its oldest packet is acknowledged (the public simulator has a similar mechanism).
    pub pauses_beyond_window: bool,
    /// Width of the receiver's request window in bits: 64, 128, 256 or 512.
    pub request_window: u32,
    /// Width of the receiver's data window in bits: 64, 128, 256 or 512.
    pub data_window: u32,
    /// Maximum number of packets in flight in each window; a power of two.
    pub tx_window: u32,
    /// Maximum number of transactions in flight; a power of two.
    pub outstanding: u32,
    /// Mechanism that isolates connections from each other.
    pub isolation: FalconIsolation,
    /// With [`FalconIsolation::Static`]: packets that a connection may hold of each resource.
    pub isolation_packets: u32,
    /// Resources of the NIC, in percent of those of the public simulator's NIC of 200 Gbit/s.
    pub resources_percent: u32,
    /// True when the user set `resources_percent` explicitly. Otherwise the setting of the NIC's previous queue pair
    /// remains in use.
    pub resources_given: bool,
    /// Number of packets of a flow after which a receiver sends an acknowledgement.
    pub coalesce_count: u32,
    /// Maximum delay of an acknowledgement after the first packet that it covers.
    pub coalesce_timeout: Duration,
    /// Latency between the datapath and the adaptive engine, both directions together.
    pub fae_interface: Duration,
    /// Processing time of the adaptive engine for one event. When this and the latency are zero, it responds
    /// immediately.
    pub fae_work: Duration,
    /// Number of events that can be queued for an adaptive engine that does not respond immediately.
    pub fae_queue: u32,
    /// Queue occupancy, in percent of `fae_queue`, above which fewer events are queued.
    pub fae_throttle: u32,
    /// Location of the adaptive engine's state.
    pub fae_form: AdaptiveForm,
    /// Place where the adaptive engine runs.
    pub fae_place: AdaptivePlace,
    /// True when switches write their congestion level into packets (CSIG). Not an option: the builder of the network
    /// sets it ([`Profile::set_network`](crate::Profile::set_network)).
    pub csig: bool,
}

impl FalconShape {
    /// The default options.
    pub const DEFAULT: Self = Self {
        ordering: FalconOrdering::Ordered,
        errors: FalconErrors::Verbs,
        errors_given: false,
        flows: 1,
        drops_beyond_window: false,
        pauses_beyond_window: false,
        request_window: 64,
        data_window: 128,
        tx_window: 1_024,
        outstanding: 256,
        isolation: FalconIsolation::Dynamic,
        isolation_packets: 64,
        resources_percent: 100,
        resources_given: false,
        coalesce_count: 10,
        coalesce_timeout: Duration::from_us(8),
        fae_interface: Duration::ZERO,
        fae_work: Duration::ZERO,
        // Events of about a quarter of a millisecond, at 15 million events per second.
        fae_queue: 4_096,
        fae_throttle: 100,
        fae_form: AdaptiveForm::Table,
        fae_place: AdaptivePlace::Datapath,
        csig: false,
    };

    /// Returns the current value of every option, in the order of [`FALCON_PARAMS`].
    pub fn values(&self) -> [u64; FALCON_PARAMS.len()] {
        [
            self.ordering as u64,
            self.errors as u64,
            u64::from(self.flows),
            u64::from(self.drops_beyond_window),
            u64::from(self.pauses_beyond_window),
            u64::from((self.request_window / 64).trailing_zeros()),
            u64::from((self.data_window / 64).trailing_zeros()),
            u64::from(self.tx_window),
            u64::from(self.outstanding),
            self.isolation as u64,
            u64::from(self.isolation_packets),
            u64::from(self.resources_percent),
            u64::from(self.coalesce_count),
            self.coalesce_timeout.as_ps(),
            self.fae_interface.as_ps(),
            self.fae_work.as_ps(),
            u64::from(self.fae_queue),
            u64::from(self.fae_throttle),
            self.fae_form as u64,
            self.fae_place as u64,
        ]
    }

    /// Sets the option `name` from text; returns whether an option of that name exists.
    ///
    /// # Errors
    /// When the value is invalid.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, ParamError> {
        let Some(spec) = FALCON_PARAMS.iter().find(|spec| spec.name == name) else { return Ok(false) };
        let value = spec.parse(text)?;
        match name {
            "ordering" => {
                self.ordering =
                    [FalconOrdering::Ordered, FalconOrdering::Weak, FalconOrdering::Unordered][value as usize];
                if !self.errors_given {
                    let is_unordered = self.ordering == FalconOrdering::Unordered;
                    self.errors = if is_unordered { FalconErrors::CompleteInError } else { Self::DEFAULT.errors };
                }
            }
            "errors" => {
                self.errors = [FalconErrors::Verbs, FalconErrors::CompleteInError][value as usize];
                self.errors_given = true;
            }
            "flows" => self.flows = value as u8,
            "out_of_window" => self.drops_beyond_window = value != 0,
            "after_out_of_window" => self.pauses_beyond_window = value != 0,
            "request_window" => self.request_window = 64 << value,
            "data_window" => self.data_window = 64 << value,
            "tx_window" => self.tx_window = (value as u32).next_power_of_two(),
            "outstanding" => self.outstanding = (value as u32).next_power_of_two(),
            "isolation" => {
                self.isolation =
                    [FalconIsolation::None, FalconIsolation::Static, FalconIsolation::Dynamic][value as usize];
            }
            "isolation_packets" => self.isolation_packets = value as u32,
            "resources" => (self.resources_percent, self.resources_given) = (value as u32, true),
            "coalesce_count" => self.coalesce_count = value as u32,
            "coalesce_timeout" => self.coalesce_timeout = Duration::from_ps(value),
            "fae_interface" => self.fae_interface = Duration::from_ps(value),
            "fae_work" => self.fae_work = Duration::from_ps(value),
            "fae_queue" => self.fae_queue = value as u32,
            "fae_throttle" => self.fae_throttle = value as u32,
            "fae_form" => {
                self.fae_form =
                    [AdaptiveForm::Table, AdaptiveForm::Stateless, AdaptiveForm::Prefetching][value as usize];
            }
            "fae_place" => self.fae_place = [AdaptivePlace::Datapath, AdaptivePlace::Thread][value as usize],
            _ => unreachable!("`{name}` is declared in FALCON_PARAMS and not set here"),
        }
        Ok(true)
    }
}

const WIDTHS: &[&str] = &["64", "128", "256", "512"];

/// Options of Falcon connections, in the order of [`FalconShape::values`].
pub const FALCON_PARAMS: &[ParamSpec] = &[
    ParamSpec::choice(
        "ordering",
        &["ordered", "weak", "unordered"],
        0,
        "order in which requests take effect and complete",
    ),
    ParamSpec::choice(
        "errors",
        &["verbs", "complete-in-error"],
        0,
        "after an error all requests fail, or one alone (always, if unordered)",
    ),
    ParamSpec::count("flows", 1, 1, FLOWS_MAX as u64, "paths of a connection (Falcon 4.3)"),
    ParamSpec::choice(
        "out_of_window",
        &["keep", "drop"],
        0,
        "received packets beyond the window are kept (Falcon 4.1) or dropped (Rev 0.9)",
    ),
    ParamSpec::choice(
        "after_out_of_window",
        &["go-on", "pause"],
        0,
        "after a drop beyond the window, new requests are sent, or wait until the oldest is acknowledged",
    ),
    ParamSpec::choice("request_window", WIDTHS, 0, "bits of the receiver's request window (Rev 0.9: 64)"),
    ParamSpec::choice("data_window", WIDTHS, 1, "bits of the receiver's data window (Rev 0.9: 128)"),
    ParamSpec::count("tx_window", 1_024, 1, 1_024, "packets in flight in each window, rounded up to a power of two"),
    ParamSpec::count("outstanding", 256, 4, 4_096, "transactions in flight, rounded up to a power of two"),
    ParamSpec::choice(
        "isolation",
        &["none", "static", "dynamic"],
        2,
        "isolation of connections from each other (Falcon 4.6)",
    ),
    ParamSpec::count("isolation_packets", 64, 1, 1 << 16, "with isolation=static: packets that a connection may hold"),
    ParamSpec::count(
        "resources",
        100,
        1,
        10_000,
        "resources of the NIC, in percent of those of a NIC of 200 Gbit/s; one value per NIC",
    ),
    ParamSpec::count("coalesce_count", 10, 1, 1_024, "packets of a flow that share an acknowledgement"),
    ParamSpec::duration(
        "coalesce_timeout",
        Duration::from_us(8),
        "time for which an acknowledgement waits for further packets",
    ),
    ParamSpec::duration("fae_interface", Duration::ZERO, "latency to the adaptive engine and back (hardware: 234ns)"),
    ParamSpec::duration("fae_work", Duration::ZERO, "time of the adaptive engine for one event (hardware: 66ns)"),
    ParamSpec::count("fae_queue", 4_096, 1, 65_536, "events that can wait for an adaptive engine that takes time"),
    ParamSpec::count(
        "fae_throttle",
        100,
        0,
        100,
        "fill level of this queue, in percent, from which fewer events enter; 100: no reduction before it is full",
    ),
    ParamSpec::choice(
        "fae_form",
        &["table", "stateless", "prefetching"],
        0,
        "location of the adaptive engine's state (Falcon 5.3)",
    ),
    ParamSpec::choice(
        "fae_place",
        &["datapath", "thread"],
        0,
        "location of the adaptive engine; thread: on sockets only",
    ),
];
