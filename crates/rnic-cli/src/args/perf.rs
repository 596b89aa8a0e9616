//! `rnic perf`.

use std::path::PathBuf;

use clap::Args;
use rnic_base::{BitRate, Duration, Probability};

use super::values::{
    Op, Peers, Setting, Wire, message_bytes, mtu_bytes, positive_rate, positive_time, probability_below_one,
};

/// Arguments of `rnic perf`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PerfArgs {
    /// Host on which `rnic perf --listen` runs, as HOST or HOST:PORT; without it, both ends run on this machine
    #[arg(value_name = "HOST")]
    pub host: Option<String>,

    /// Serve measurements at ADDR:PORT until interrupted (port 0: any free port)
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = DEFAULT_LISTEN)]
    #[arg(conflicts_with_all = ["host", "wire", "transport", "op", "size", "qps", "depth", "loss", "reorder", "delay"])]
    #[arg(conflicts_with_all = ["rate", "duration", "count", "seed", "settings", "verify", "json", "trim", "mark"])]
    #[arg(conflicts_with = "stream")]
    pub listen: Option<String>,

    /// Transport; see `rnic list` [default: irn; roce-gbn with `--peers roce`; falcon with NVMe; tonic-new-reno with
    /// `--stream`]
    #[arg(long, value_name = "NAME", default_value = "irn", hide_default_value = true)]
    #[arg(default_value_if("stream", "true", "tonic-new-reno"))]
    #[arg(default_value_if("peers", "roce", "roce-gbn"))]
    #[arg(default_value_if("op", "nvme-read", "falcon"), default_value_if("op", "nvme-write", "falcon"))]
    pub transport: String,

    /// Kind of peer; must be the same at both ends. With roce, the packets are those of RoCEv2 adapters: the
    /// transport is roce-gbn, and each end needs port 4791 of its machine for itself
    #[arg(long, value_enum, default_value = "rnic")]
    pub peers: Peers,

    /// With udp and transport falcon, encrypt and authenticate packets with keys derived from the secret in FILE (32
    /// random bytes, or 64 hexadecimal digits), using PSP, or IPsec's ESP with the prefix `esp:`; the prefixes
    /// `psp256:` and `esp256:` select 256-bit keys; both ends need the same value
    #[arg(long, value_name = "[esp:]FILE")]
    pub key: Option<PathBuf>,

    /// Operation to repeat
    #[arg(long, value_enum, default_value = "write")]
    pub op: Op,

    /// On udp, measure a stream of bytes, as sockets carry, instead of an operation: its throughput, or its latency
    /// with `--depth 1`; operations are writes of `--size` bytes
    #[arg(long, conflicts_with_all = ["op", "qps", "key"])]
    pub stream: bool,

    /// Bytes per operation; atomics are always 8 bytes [default: 64KiB]
    #[arg(long, value_name = "BYTES", value_parser = message_bytes)]
    pub size: Option<u32>,

    /// Number of queue pairs, all between the same two NICs
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=QUEUE_PAIRS_MAX))]
    pub qps: u32,

    /// Operations in flight on each queue pair
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    pub depth: u32,

    /// Probability that a packet is lost, independently of others, in both directions
    #[arg(long, value_name = "P", default_value = "0", value_parser = probability_below_one)]
    pub loss: Probability,

    /// Probability that a packet is overtaken by later ones
    #[arg(long, value_name = "P", default_value = "0")]
    pub reorder: Probability,

    /// On udp, probability that a packet of IRN's format arrives without its payload, as from a switch that trims
    #[arg(long, value_name = "P", default_value = "0", value_parser = probability_below_one)]
    pub trim: Probability,

    /// On udp, probability that a packet with data arrives with a congestion mark (ECN)
    #[arg(long, value_name = "P", default_value = "0")]
    pub mark: Probability,

    /// Delay added to every packet; with `--wire sim`, the delay of the link [default: 0 on udp, 12us on sim]
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Duration>,

    /// Rate of the link, including framing [default: no limit on udp, 100Gbps on sim]
    #[arg(long, value_name = "RATE", value_parser = positive_rate)]
    pub rate: Option<BitRate>,

    /// Payload bytes of a full packet; on udp this is an upper bound, because the path may support less
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = mtu_bytes)]
    pub mtu: u32,

    /// Duration of the measurement, in simulated time on sim [default: 2s on udp, 20ms on sim]
    #[arg(long, value_name = "TIME", conflicts_with = "count", value_parser = positive_time)]
    pub duration: Option<Duration>,

    /// Number of operations to measure on each queue pair, instead of a duration
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,

    /// Carrier of the packets
    #[arg(long, value_enum, default_value = "udp")]
    pub wire: Wire,

    /// Seed of all random decisions; on sim, the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Set an option of the transport, such as rto_high=1ms or control=dcqcn; see `rnic list`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<Setting>,

    /// On udp, compare all data during the measurement, instead of in one round after it; the result then includes
    /// the time for comparing
    #[arg(long)]
    pub verify: bool,

    /// On udp, sleep while no packet arrives instead of polling, as programs do that wait for completion events: higher
    /// latency, and the processors are free for others; without HOST, at both ends
    #[arg(long)]
    pub events: bool,

    /// Capture the packets that this end sends and receives in FILE, for tshark or Wireshark
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Exit when standard input is closed; with `--listen`, print the address to connect to on standard output
    #[arg(long, hide = true)]
    pub attached: bool,

    /// Name of the group of processes that share a link, instead of all of this user
    #[arg(long, hide = true, value_name = "NAME")]
    pub link_group: Option<String>,
}

/// All local addresses, and the UDP port of RoCEv2.
const DEFAULT_LISTEN: &str = "0.0.0.0:4791";
/// Far more queue pairs than two NICs on one machine can use.
const QUEUE_PAIRS_MAX: i64 = 1024;
/// Half of the largest queue, so that both ends can have receives posted for all operations in flight.
const DEPTH_MAX: i64 = 8192;

const EXAMPLES: &str = "\
Examples:
  rnic perf                                     both ends here, two processes over UDP
  rnic perf --loss 1% --transport roce-gbn      the same through a lossy network
  rnic perf --transport falcon --set flows=4    Falcon on four paths, Swift for congestion control
  rnic perf --op send --size 8 --depth 1        latency of small messages
  rnic perf --stream --loss 1%                  a stream of bytes, as sockets carry, over a program of Tonic
  rnic perf --op nvme-read --loss 1%            blocks of the other end's namespace, by NVMe over Falcon
  rnic perf --wire sim --loss 1% --json         the same operations on a simulated 100 Gbit/s link
  rnic perf --listen 10.0.0.1:4791              on one machine, and on another:
  rnic perf 10.0.0.1 --op read --qps 4
  rnic perf --listen --peers roce               the same with packets as adapters have them, and on another:
  rnic perf 10.0.0.1 --peers roce --op send

Timeouts and caps that are not set fit the wire: on udp processes, on sim the link (see `rnic list` for the paper's). \
Figures on udp are those of software on this machine, not of RDMA hardware. Results on sim say that they are \
simulated.";
