//! A peer that sends arbitrary packets: nothing panics, values that the peer cannot know are rejected, and late
//! acknowledgements have no effect beyond what they acknowledge.
//!
//! A failing run names its seed; `FALCON_SEED=<seed> cargo test -p rnic-falcon --test hostile` runs it alone.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod two_ends;

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams, Time};
use rnic_falcon::delivery::{Arrival, Delivery, ExtendedRule, OutOfWindowRule, Reception};
use rnic_falcon::interface::Window;
use rnic_policy::Cwnd;
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, Cid, FlowLabel, Nack, NackCode, OutOfWindow, Packet, PacketType, ResyncCode,
    RnrTimer, Timestamp, Ulp, UlpProtocol, WindowBases,
};
use two_ends::config_of;
use two_ends::link::Inline;
use two_ends::upper::{Acknowledging, Counting};

/// Returns a number of random magnitude, less than `max_log2` bits long.
fn any_magnitude(random: &mut RandomStream, max_log2: u64) -> u64 {
    let bits = random.below(max_log2);
    random.below(1 << bits)
}

/// Returns a pause: mostly microseconds, sometimes up to half an hour.
fn any_wait(random: &mut RandomStream) -> Duration {
    if random.below(40) == 0 {
        return Duration::from_us(any_magnitude(random, 31));
    }
    Duration::from_ns(random.below(5_000))
}

/// Returns a timestamp: mostly `now`, sometimes earlier or later, sometimes an arbitrary value.
fn any_timestamp(random: &mut RandomStream, now: Time) -> Timestamp {
    let now = Timestamp::at(now).value();
    Timestamp::new(match random.below(8) {
        0 => random.bits() as u32,
        1 => now.wrapping_add(any_magnitude(random, 32) as u32),
        2 => now.wrapping_sub(any_magnitude(random, 32) as u32),
        _ => now,
    })
}

/// Returns a sequence number: mostly close to `near`, sometimes arbitrary.
fn number(random: &mut RandomStream, near: u32) -> Psn32 {
    match random.below(8) {
        0 => Psn32::new(random.bits() as u32),
        1 => Psn32::new(near.wrapping_add(random.below(2_000) as u32).wrapping_sub(1_000)),
        _ => Psn32::new(near.wrapping_add(random.below(140) as u32).wrapping_sub(4)),
    }
}

fn any_acknowledgement(random: &mut RandomStream, t1: Timestamp) -> Acknowledgement {
    Acknowledgement {
        t1,
        t2: Timestamp::new(random.bits() as u32),
        hops: 1,
        rx_level: 0,
        ecn: 0,
        metadata: random.below(1 << 22) as u32,
        out_of_window: OutOfWindow { data: random.below(16) == 0, request: random.below(16) == 0 },
    }
}

fn any_nack(random: &mut RandomStream, t1: Timestamp, psn: Psn32) -> Nack {
    let codes = [
        NackCode::Resource,
        NackCode::NotReady { timeout: RnrTimer::from_code(random.below(32) as u8) },
        NackCode::Xlr,
        NackCode::CompleteInError { ulp: 3 },
        NackCode::NonRecoverable { ulp: 4 },
        NackCode::InvalidCid,
    ];
    let code = codes[random.below(codes.len() as u64) as usize];
    let window = if random.below(2) == 0 { Window::Request } else { Window::Data };
    Nack { t1, t2: t1, hops: 1, rx_level: 0, ecn: 0, metadata: random.below(1 << 24) as u32, psn, window, code }
}

fn any_body(random: &mut RandomStream, ours: u32, theirs: u32, t1: Timestamp) -> Body {
    let (psn, rsn) = (number(random, theirs), number(random, theirs));
    match random.below(8) {
        0 => Body::PullRequest { psn, rsn, length: 100, ulp: Ulp::None },
        1 => Body::PullData { psn, rsn: number(random, ours), ulp: Ulp::None },
        2 => Body::PushData { psn, rsn, length: 100, ulp: Ulp::None },
        3 => {
            let of = PacketType::ALL[random.below(PacketType::ALL.len() as u64) as usize];
            Body::Resync { psn, rsn, code: ResyncCode::LocalXlr, of, vendor: 0 }
        }
        4 => Body::Ack(any_acknowledgement(random, t1)),
        5 | 6 => {
            let sparse = random.bits() & random.bits();
            let wide = u128::from(sparse) << random.below(100);
            let bitmaps = Bitmaps { data_acked: wide & 0xff01, data_received: wide, request_received: sparse };
            Body::ExtendedAck(any_acknowledgement(random, t1), bitmaps)
        }
        _ => {
            let psn = number(random, ours);
            Body::Nack(any_nack(random, t1, psn))
        }
    }
}

/// Passes reports to `swift`, if there is one, and applies its responses.
fn report_to_fae(now: Time, delivery: &mut Delivery, mut swift: Option<&mut Inline>) {
    while let Some(report) = delivery.signal() {
        if let Some(actions) = swift.as_mut().and_then(|swift| swift.respond(now, report)) {
            delivery.apply_response(report.flow, &actions);
        }
    }
}

fn run(seed: u64) {
    let streams = RandomStreams::new(seed);
    let mut random = streams.stream("hostile");
    let first = random.bits() as u32;
    let flows = [1, 3, 8][random.below(3) as usize];
    let paths = if flows == 1 { "ecmp" } else { ["spray", "scatter"][random.below(2) as usize] };
    let mut config = config_of(["rack-tlp", "ooo-distance"][random.below(2) as usize], paths);
    (config.flows, config.accept_stale) = (flows, random.below(2) == 0);
    config.first_sent = WindowBases::both(Psn32::new(first));
    config.first_received = WindowBases::both(Psn32::new(first.wrapping_add(7)));
    config.out_of_window = [OutOfWindowRule::Keep, OutOfWindowRule::Drop][random.below(2) as usize];
    config.pause_after_out_of_window = random.below(2) == 0;
    config.extended = [ExtendedRule::WhenReceived, ExtendedRule::WhenGap][random.below(2) as usize];
    (config.request_window, config.data_window) = (64 << random.below(4), 64 << random.below(4));
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(random.between(1, 400)), random.between(1, 400) as u32);
    config.attempts_max = u16::MAX;
    let (mut delivery, mut upper) = (Delivery::new(config), Counting::new());
    upper.acknowledging = Acknowledging::After(Duration::from_us(2));
    // Half of the runs are controlled by Swift, which trusts the peer's reports.
    let mut swift = (random.below(2) == 0).then(|| Inline::new("swift", &[]).0);
    let mut now = Time::from_us(1_000);
    for _ in 0..4_000 {
        now += any_wait(&mut random);
        if random.below(3) == 0 {
            upper.push();
            upper.pull();
        }
        while delivery.transmit(now, &mut upper).is_some() {}
        if delivery.deadline().is_some_and(|at| at <= now) {
            delivery.expire(now, &mut upper);
        }
        let spans = [delivery.span(Window::Request), delivery.span(Window::Data)];
        let acked = upper.acked_count();
        let ours = first.wrapping_add(acked as u32 / 2);
        let theirs = delivery.bases();
        let t1 = any_timestamp(&mut random, now);
        let packet = Packet {
            cid: Cid::default(),
            function: 0,
            protocol: UlpProtocol::Rdma,
            ack_request: random.below(2) == 0,
            bases: WindowBases { data: number(&mut random, ours), request: number(&mut random, ours) },
            timestamp: t1,
            payload_len: 0,
            body: any_body(&mut random, ours, theirs.data.value(), t1),
        };
        let label = FlowLabel::new(random.bits() as u32);
        let arrival = Arrival { packet: &packet, label, marked: random.below(2) == 0, hops: 9, csig: None };
        let errors = delivery.counters().peer_errors;
        let reception = delivery.receive(now, &arrival, &mut upper);
        report_to_fae(now, &mut delivery, swift.as_mut());
        // Only packets that were sent can be acknowledged.
        let left = [delivery.span(Window::Request), delivery.span(Window::Data)];
        assert!(left.iter().zip(spans).all(|(left, before)| *left <= before), "seed {seed}");
        assert!(upper.acked.iter().all(|count| *count <= 1), "seed {seed}: a packet was acknowledged twice");
        let is_answer = packet.body.psn().is_none();
        if is_answer && delivery.counters().peer_errors > errors {
            assert_eq!(reception, Reception::Dropped, "seed {seed}: {packet:?}");
        }
    }
    // Small windows, including those that Swift has reduced, release few packets to a peer that acknowledges at
    // random.
    let has_met = delivery.counters().first_transmissions < 100 || delivery.flows().all(|flow| flow.counters.sent > 0);
    assert!(has_met, "seed {seed}: a flow sent no packet");
    assert!(upper.acked_count() > 0 && !upper.kept.is_empty(), "seed {seed}: no valid packet came from the peer");
}

#[test]
fn a_hostile_peer_breaks_nothing() {
    if let Ok(seed) = std::env::var("FALCON_SEED") {
        return run(seed.parse().expect("a seed is a number"));
    }
    let runs = std::env::var("FALCON_RUNS").map_or(100, |runs| runs.parse().expect("a count is a number"));
    (0..runs).for_each(run);
}
