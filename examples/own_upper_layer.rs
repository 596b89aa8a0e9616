//! An upper layer of one's own over Falcon: remote procedure calls with their own error codes, on unordered
//! transactions, over a link that loses one packet in three.
//!
//! `cargo run -p rnic-examples --bin own-upper-layer`. A call is a Push, and so is its result. A call that the server
//! refuses completes in error with the server's code, and the others go on. Payload is the program's: Falcon moves
//! transactions and never touches bytes. The link and its clock are simulated.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

use rnic_base::{BitRate, Duration, Psn32, RandomStreams, Time};
use rnic_fae::{ErasedPolicy, Filter, ProcessorConfig, StateLocation};
use rnic_falcon::adaptive::{AdaptiveEngine, Location, Placement};
use rnic_falcon::connection::{Connection, ConnectionConfig};
use rnic_falcon::delivery::{Arrival, DeliveryConfig};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::{ResourceConfig, Resources};
use rnic_falcon::transaction::{
    Completion, Kind, Ordering, PullReply, PushReply, Request, Submission, TransactionConfig, UpperLayer,
};
use rnic_policy::{Configured, Params};
use rnic_transports::{control, paths, recovery};
use rnic_wire::falcon::{CompletionCode, FlowLabel, Packet, Ulp, UlpProtocol, WindowBases};

/// Error codes of this protocol; Falcon carries them in the NACK that completes a call in error.
const NO_SUCH_METHOD: u8 = 1;
const BAD_ARGUMENT: u8 = 2;

/// State of the upper layer at one end.
#[derive(Default)]
struct Rpc {
    /// Payload of Pushes that have arrived, by their number.
    received: BTreeMap<u32, Vec<u8>>,
    /// Results that the server has to send.
    results: VecDeque<Vec<u8>>,
    /// Lines to print.
    log: Vec<String>,
    is_server: bool,
}

impl UpperLayer for Rpc {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        let payload = self.received.remove(&request.rsn.value()).unwrap_or_default();
        let text = String::from_utf8_lossy(&payload).into_owned();
        if !self.is_server {
            self.log.push(format!("result: {text}"));
            return PushReply::Done;
        }
        let (method, argument) = text.split_once(' ').unwrap_or((&text, ""));
        let Ok(argument) = argument.parse::<u64>() else { return PushReply::CompleteInError(BAD_ARGUMENT) };
        let result = match method {
            "square" => argument * argument,
            "bits" => u64::from(argument.count_ones()),
            _ => return PushReply::CompleteInError(NO_SUCH_METHOD),
        };
        self.results.push_back(format!("{text} = {result}").into_bytes());
        PushReply::Done
    }

    fn pull(&mut self, _: Time, _: &Request) -> PullReply {
        // This protocol has no Pulls; a peer that sends one waits.
        PullReply::Busy
    }

    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, completion: &Completion) {
        if completion.code != CompletionCode::Ack {
            let reason = match completion.ulp_code {
                NO_SUCH_METHOD => "no such method",
                BAD_ARGUMENT => "bad argument",
                _ => "lost",
            };
            self.log.push(format!("call {} failed: {reason}", completion.tag));
        }
    }
}

/// One end of the connection.
struct End {
    connection: Connection,
    resources: Resources,
    adaptive: AdaptiveEngine,
    rpc: Rpc,
    /// Payload of Pushes that were submitted, by their number.
    sent: BTreeMap<u32, Vec<u8>>,
    tag: u64,
}

impl End {
    fn new(is_server: bool) -> Result<Self, Box<dyn Error>> {
        let error = "a registered policy";
        let swift = control::find("swift").ok_or(error)?;
        let (rack, path) = (recovery::find("rack-tlp").ok_or(error)?, paths::find("ecmp").ok_or(error)?);
        let config =
            ProcessorConfig { form: StateLocation::Table, connections: 1, line_rate: BitRate::gbps(100), mtu: 4_096 };
        let program = ErasedPolicy(Configured { policy: swift, params: Params::defaults(swift.params) });
        let placement = Placement { location: Location::Inline, queue: 64, filter: Filter::open(64) };
        let mut adaptive = AdaptiveEngine::new(program, &config, &placement)?;
        let first_rsn = [Psn32::new(1), Psn32::new(1)];
        let mut delivery = DeliveryConfig::new(
            Configured { policy: rack, params: Params::defaults(rack.params) },
            Configured { policy: path, params: Params::defaults(path.params) },
        );
        (delivery.ordered, delivery.first_sent) = (false, WindowBases::both(first_rsn[0]));
        delivery.first_received = WindowBases::both(first_rsn[1]);
        let transactions = TransactionConfig {
            ordering: Ordering::Unordered,
            protocol: UlpProtocol::Rdma,
            mtu: 4_096,
            outstanding: 64,
            timeout: Duration::from_secs(5),
            isolation: Isolation::Dynamic,
        };
        let config = ConnectionConfig { transactions, delivery, first_rsn };
        let connection = Connection::new(&config, &mut adaptive, 0)?;
        let resources = Resources::new(ResourceConfig::GBPS_200);
        let rpc = Rpc { is_server, ..Rpc::default() };
        Ok(Self { connection, resources, adaptive, rpc, sent: BTreeMap::new(), tag: 0 })
    }

    /// Submits a Push with this payload.
    fn push(&mut self, payload: &[u8]) -> Result<(), Box<dyn Error>> {
        let len = payload.len();
        let (kind, length, payload_len) = (Kind::Push, len as u16, len as u32);
        let submission = Submission { kind, length, payload_len, ulp: None, tag: self.tag, continues: false };
        let rsn = self.connection.submit(&mut self.resources, &submission)?;
        self.sent.insert(rsn.value(), payload.to_vec());
        self.tag += 1;
        Ok(())
    }

    /// Returns the next packet, with the payload that belongs to it.
    fn transmit(&mut self, now: Time) -> Option<(Packet, FlowLabel, Vec<u8>)> {
        let departure = self.connection.transmit(now, &mut self.resources, &mut self.rpc)?;
        let rsn = departure.packet.body.rsn().filter(|_| departure.packet.payload_len > 0);
        let payload = rsn.and_then(|rsn| self.sent.get(&rsn.value())).cloned().unwrap_or_default();
        Some((departure.packet, departure.label, payload))
    }

    fn receive(&mut self, now: Time, packet: &Packet, label: FlowLabel, payload: Vec<u8>) {
        if let Some(rsn) = packet.body.rsn().filter(|_| !payload.is_empty()) {
            self.rpc.received.insert(rsn.value(), payload);
        }
        let arrival = Arrival { packet, label, marked: false, hops: 1, csig: None };
        self.connection.receive(now, &arrival, &mut self.resources, &mut self.rpc);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut ends = [End::new(false)?, End::new(true)?];
    let calls = ["square 12", "bits 255", "cube 3", "square many", "square 1000000"];
    calls.iter().try_for_each(|call| ends[0].push(call.as_bytes()))?;
    let mut network = RandomStreams::new(1).stream("network");
    let (mut now, mut lost) = (Time::from_us(1), 0);
    let mut wire: VecDeque<(Time, usize, Packet, FlowLabel, Vec<u8>)> = VecDeque::new();
    while ends[0].rpc.log.len() < calls.len() && now < Time::from_us(10_000_000) {
        for from in [0, 1] {
            while let Some(result) = ends[from].rpc.results.pop_front() {
                ends[from].push(&result)?;
            }
            while let Some((packet, label, payload)) = ends[from].transmit(now) {
                if network.below(3) == 0 {
                    lost += 1;
                } else {
                    wire.push_back((now + Duration::from_us(5), 1 - from, packet, label, payload));
                }
            }
        }
        now += Duration::from_us(1);
        while let Some((_, to, packet, label, payload)) = wire.pop_front_if(|(at, ..)| *at <= now) {
            ends[to].receive(now, &packet, label, payload);
        }
        for End { connection, resources, adaptive, rpc, .. } in &mut ends {
            if connection.timeout().is_some_and(|due| due <= now) {
                connection.expire(now, resources, rpc);
            }
            connection.report_to_fae(now, resources, adaptive);
        }
    }
    ends[0].rpc.log.iter().for_each(|line| println!("{line}"));
    println!("{} packets lost on the way", lost);
    if ends[0].rpc.log.len() == calls.len() { Ok(()) } else { Err("some calls have not ended".into()) }
}
