//! The parts of a run, all generated from its seed: in the style of swarm testing, so that some features are off and
//! others extreme.

mod network;
mod options;
mod traffic;

use rnic_base::{RandomStream, RandomStreams};
use rnic_engine::NvmeReads;
use rnic_policy::Profile;

pub use network::{Down, Faults, Network};
pub use options::Transport;
pub use traffic::{Mix, Op, PlannedFailure, Receives};

/// Type of network of a scenario: times and sizes depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The simulated network.
    Fabric,
    /// Engines alone, with links between them.
    Engines,
    /// Real sockets on loopback.
    Sockets,
    /// Memory that NICs of one machine share, and sockets until the memory is attached.
    Memory,
}

impl Place {
    /// Returns whether the network uses real time.
    pub const fn is_real(self) -> bool {
        matches!(self, Self::Sockets | Self::Memory)
    }
}

/// A connection: a queue pair at each of two hosts.
#[derive(Clone, Debug)]
pub struct Link {
    /// The two hosts.
    pub hosts: [usize; 2],
    /// First packet sequence number in each direction.
    pub psns: [u32; 2],
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Entries of each send queue.
    pub sends: u32,
    /// Entries of each receive queue, when there is no shared one.
    pub receives: u32,
    /// Maximum Reads and atomics in flight, as requester and as responder.
    pub reads: u32,
    /// Timer code of an RNR NAK.
    pub rnr_code: u8,
    /// Directions that carry requests.
    pub active: [bool; 2],
    /// Intended permanent failure, if any: its direction, the index of the request, and the type of failure.
    pub planned: Option<(usize, u64, PlannedFailure)>,
}

/// A generated run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed from which everything is generated.
    pub seed: u64,
    /// Type of network.
    pub place: Place,
    /// The transport.
    pub transport: Transport,
    /// Another transport, for every second connection.
    pub second_transport: Option<Transport>,
    /// The network without faults.
    pub network: Network,
    /// Faults on the outgoing link of each host.
    pub faults: Vec<Faults>,
    /// Connections.
    pub links: Vec<Link>,
    /// NVMe traffic beside the connections.
    pub drive: Option<DriveUse>,
    /// Maximum packets in flight to each peer.
    pub peer_limit: Option<u64>,
    /// Entries of a receive queue that all queue pairs of a host share; `None` for separate receive queues.
    pub shared_receives: Option<u32>,
    /// True for one completion queue per host, false for two per queue pair.
    pub shared_cq: bool,
    /// True when send queues are occasionally drained and resumed, and the limits of packets to a peer and of rates
    /// change.
    pub drains_and_limits: bool,
    /// True when connections that have failed are established again.
    pub reconnects: bool,
    /// Percentage of buffers that are registered separately, by a key that is deregistered when they are no longer
    /// needed.
    pub separate_key_percent: u64,
    /// Distribution of the posted requests.
    pub mix: Mix,
    /// Packets after which no new requests are posted.
    pub packets: u64,
}

/// Maximum packets of a run whose senders have a target delay shorter than the network's own delay.
const LOW_RATE_PACKETS_MAX: u64 = 500;

impl Scenario {
    /// Generates the scenario of `seed` for the transport called `transport`.
    pub fn draw(place: Place, transport: &str, seed: u64, packets: u64) -> Self {
        let streams = RandomStreams::new(seed);
        let random = &mut streams.stream("scenario");
        let mut second_random = streams.stream("scenario/guest");
        let second_name = pick(&mut second_random, &["irn", "roce-gbn", "irn", "roce-gbn", "roce-sr", "tcp"]);
        let second_transport =
            one_in(&mut second_random, 5).then(|| Transport::draw(place, second_name, &mut second_random));
        let transport = Transport::draw(place, transport, &mut streams.stream("scenario/transport"))
            .with_scheduler(&mut streams.stream("scenario/scheduler"));
        let network = Network::draw(place, &mut streams.stream("scenario/wiring"));
        let mut faults_random = streams.stream("scenario/trouble");
        let is_faultless = one_in(&mut faults_random, 12);
        let is_uniform = one_in(&mut faults_random, 2);
        let mut faults: Vec<Faults> = (0..network.hosts)
            .map(|_| if is_faultless { Faults::default() } else { Faults::draw(place, &mut faults_random) })
            .collect();
        if is_uniform {
            let first = faults[0];
            faults.fill(first);
        }
        let slowest = faults.iter().map(Faults::latest).max().unwrap_or_default();
        let transport = if place.is_real() { transport.aiming_beyond(slowest + slowest) } else { transport };
        // Such senders reach their minimum window in any case and stay there: a few packets are enough to test it, and
        // each of them takes a hundred round trips. Occasional delays are not counted.
        let fixed_delay = faults.iter().map(|faults| faults.delay).max().unwrap_or_default();
        let has_low_rate = transport.aims_below((fixed_delay + network.least_delay(place)) * 2);
        let packets = if has_low_rate { packets.min(LOW_RATE_PACKETS_MAX) } else { packets };
        let mix = Mix::draw(place, &mut streams.stream("scenario/mix"));
        let links = (0..pick(random, &[1, 1, 2, 3, 4, 8]))
            .map(|index| Link::draw(&network, &mut streams.stream(&format!("scenario/link-{index}"))))
            .collect();
        let drive = DriveUse::draw(&transport, &network, &mut streams.stream("scenario/drive"));
        Self {
            seed,
            place,
            transport,
            second_transport,
            network,
            drive,
            faults,
            links,
            peer_limit: one_in(random, 3).then(|| pick(random, &[1, 2, 5, 16, 64])),
            shared_receives: one_in(random, 3).then(|| pick(random, &[2, 8, 64])),
            shared_cq: one_in(random, 2),
            drains_and_limits: one_in(random, 4),
            reconnects: one_in(random, 2),
            separate_key_percent: pick(&mut streams.stream("scenario/passing"), &[0, 30, 100, 100]),
            mix,
            packets: packets.min(pick(random, &[300, 2_000, 10_000, 40_000])),
        }
    }

    /// Returns the scenario with `option` of the transport set to `value`, and without queue pairs of another
    /// transport.
    ///
    /// # Panics
    /// When the transport has no such option, or the value is invalid.
    #[must_use]
    pub fn alone_with(self, option: &'static str, value: &str) -> Self {
        let transport = self.transport.with(option, value).expect("the option and its value are valid");
        Self { transport, second_transport: None, ..self }
    }

    /// Returns the profile of the transport of connection `link`.
    pub fn profile(&self, link: usize) -> Profile {
        let second_transport = self.second_transport.as_ref().filter(|_| link % 2 == 1);
        second_transport.unwrap_or(&self.transport).profile.clone()
    }
}

/// Parameters of a host that uses a drive of another host by NVMe.
#[derive(Clone, Copy, Debug)]
pub struct DriveUse {
    /// The initiator's host, and the target's host.
    pub hosts: [usize; 2],
    /// Maximum commands in flight.
    pub depth: u32,
    /// Transfer of Reads: as a Push in each direction, or as a Pull.
    pub reads: NvmeReads,
    /// Latency of a Read in the device, in us.
    pub latency_us: u64,
    /// Number of units that the device serves at the same time.
    pub queue: u32,
}

impl DriveUse {
    /// Payload bytes of a packet, equal to those of a unit.
    pub const MTU: u32 = 4_096;

    /// Generates NVMe traffic for one run in three, where Falcon is the transport and a unit fits a packet.
    fn draw(transport: &Transport, network: &Network, random: &mut RandomStream) -> Option<Self> {
        let carries = transport.profile.protocol.falcon().is_some() && network.mtu_at_most(Self::MTU) == Self::MTU;
        if !one_in(random, 3) || !carries {
            return None;
        }
        let user = random.below(network.hosts as u64) as usize;
        Some(Self {
            hosts: [user, (user + 1) % network.hosts],
            depth: pick(random, &[1, 2, 8, 32]),
            reads: pick(random, &[NvmeReads::Push, NvmeReads::Pull]),
            latency_us: pick(random, &[0, 5, 80, 1_000]),
            queue: pick(random, &[1, 4, 128]),
        })
    }
}

impl Link {
    fn draw(network: &Network, random: &mut RandomStream) -> Self {
        let a = random.below(network.hosts as u64) as usize;
        let b = (a + 1 + random.below(network.hosts as u64 - 1) as usize) % network.hosts;
        let psn = |random: &mut RandomStream| match random.below(4) {
            0 => random.below(1 << 24) as u32,
            1 => 0,
            _ => (1 << 24) - 1 - random.below(300) as u32,
        };
        let planned = one_in(random, 8)
            .then(|| (random.below(2) as usize, random.between(1, 60), pick(random, PlannedFailure::ALL)));
        let both = one_in(random, 2);
        let mut active = [true, both];
        if let Some((direction, ..)) = planned {
            active[direction] = true;
        }
        Self {
            hosts: [a, b],
            psns: [psn(random), psn(random)],
            mtu: network.mtu_at_most(pick(random, &[256, 256, 512, 1_024, 1_408, 2_048, 4_096])),
            sends: pick(random, &[1, 2, 7, 32, 128]),
            receives: pick(random, &[1, 2, 8, 32]),
            reads: pick(random, &[1, 1, 2, 4, 16]),
            rnr_code: pick(random, &[1, 1, 2, 5, 8]),
            active,
            planned,
        }
    }
}

/// Returns one of `choices`, with equal probability.
pub(crate) fn pick<T: Copy>(random: &mut RandomStream, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// Returns true with probability 1/`count`.
pub(crate) fn one_in(random: &mut RandomStream, count: u64) -> bool {
    random.below(count) == 0
}
