//! Tests of a target without its peer: in whatever order requests and responses complete, the table has an entry for
//! each unit that may be opened.

use rnic_base::{BitRate, Duration, RandomStreams, Serial};
use rnic_falcon::resources::ResourceConfig;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_wire::falcon::UlpProtocol;
use rnic_wire::falcon::nvme::Directive;

use super::*;
use crate::device::Service;
use crate::{DeviceConfig, Drive, Fault};

/// A medium that discards all data.
struct DiscardingMedia;

impl Media for DiscardingMedia {
    fn read(&mut self, _: UnitTransaction, _: Extent) {}

    fn write(&mut self, _: Extent) -> Result<(), Fault> {
        Ok(())
    }
}

/// A target with its device; the test acts as the initiator and the network.
struct TargetHarness {
    target: Target,
    device: Drive,
    now: Time,
}

impl TargetHarness {
    fn new(units: u32) -> Self {
        let target = TargetConfig { owner: 0, namespace: 1, blocks: 1 << 20, block_log2: 9, units };
        let service = Service { latency: Duration::from_us(1), bandwidth: BitRate::gbps(32) };
        let device = DeviceConfig { read: service, write: service, queue_depth: 64, block_log2: 9 };
        Self { target: Target::new(target), device: Drive::new(device), now: Time::from_us(1) }
    }

    /// Lets the target submit messages to a transaction layer that accepts at most this many transactions.
    fn advance(&mut self, transactions_max: u32) {
        let config = TransactionConfig {
            ordering: Ordering::Unordered,
            protocol: UlpProtocol::Nvme,
            mtu: 4_352,
            outstanding: transactions_max,
            timeout: Duration::from_secs(1),
            isolation: Isolation::None,
        };
        let mut transactions = Transactions::new(config, Serial::new(1));
        let mut resources = Resources::new(ResourceConfig::GBPS_200);
        let Self { target, device, now } = self;
        while let Some(io) = target.take_io() {
            device.submit(*now, io);
        }
        target.advance(&mut transactions, &mut resources, &mut DiscardingMedia).expect("the connection is alive");
        self.check_bounds();
    }

    /// Completes all requests at the device.
    fn serve(&mut self) {
        self.now += Duration::from_us(50);
        while let Some(io) = self.device.done(self.now) {
            self.target.served(&io);
        }
    }

    /// Delivers a request for one unit, with the initiator's tag `tag`.
    fn push(&mut self, tag: u32, direction: Direction) -> Result<(), PeerError> {
        let command = nvme::Command { target_nsid: 1, blocks: 7, ..nvme::Command::default() };
        let base = Base { initiator_tag: tag, ..Base::default() };
        let operation = match direction {
            Direction::Read => Operation::ReadRequest { command },
            Direction::Write => Operation::WriteRequest { command, directive: Directive::default() },
        };
        let ulp = Ulp::Nvme(Header { base, operation });
        let rsn = Serial::new(0);
        let request = Request { rsn, length: ulp.request_len(0) as u16, payload_len: 0, ulp };
        let result = self.target.on_request(&request, Kind::Push);
        self.check_bounds();
        result
    }

    /// Returns the tag of the `nth` unit whose state satisfies `wanted`, to complete a transaction of that unit.
    fn find(&self, nth: u64, wanted: impl Fn(State) -> bool) -> Option<u32> {
        let mut last = None;
        for _ in 0..=nth {
            last = Some(self.target.units.find(last, |unit| wanted(unit.state))?);
        }
        last
    }

    /// Completes the transaction of the `nth` response in flight with `code`.
    fn deliver(&mut self, nth: u64, code: CompletionCode) {
        if let Some(tag) = self.find(nth, |state| matches!(state, State::ResponseInFlight(_))) {
            self.target.on_response_completed(tag, code);
        }
        self.check_bounds();
    }

    /// Completes the `nth` Pull in flight, with its data or without.
    fn fetch(&mut self, nth: u64, has_data: bool) {
        let Some(tag) = self.find(nth, |state| state == State::FetchInFlight) else { return };
        let ulp = Ulp::Nvme(Header { base: self.target.unit(tag).base, operation: Operation::WriteData });
        if has_data {
            self.target.on_fetched_data(tag, &PulledData { payload_len: 4_096, ulp }, &mut DiscardingMedia);
        }
        self.target.on_fetch_completed(tag);
    }

    /// Checks that at most the agreed number of units is open, and that at most as many other units are in the table.
    fn check_bounds(&self) {
        let (units_max, open) = (self.target.config.units as usize, self.target.in_use.len());
        assert!(open <= units_max && self.target.units.len() - open <= units_max, "{:?}", self.target);
    }
}

/// A response that is to be submitted again is not in flight. If a first response took its slot, that response would
/// close its unit, and the initiator might send a request for a new unit, for which there would be no table entry.
#[test]
fn a_repeated_response_precedes_first_responses() {
    for units_max in 1..=4 {
        let mut harness = TargetHarness::new(units_max);
        for tag in 0..2 * units_max {
            if tag == units_max {
                harness.advance(64);
                harness.serve();
                harness.advance(64);
            }
            assert_eq!(harness.push(tag, Direction::Read), Ok(()));
        }
        harness.advance(64);
        harness.serve();
        harness.advance(64);
        assert!(harness.target.stats().waited_for_response_slots > 0);
        harness.deliver(0, CompletionCode::LocalTimeout);
        harness.advance(64);
        assert_eq!(harness.push(2 * units_max, Direction::Read), Err(PeerError::TooManyUnits), "no response has ended");
        harness.deliver(0, CompletionCode::Ack);
        harness.advance(64);
        assert_eq!(harness.push(2 * units_max, Direction::Read), Ok(()));
    }
}

#[test]
fn the_table_has_an_entry_for_every_unit_in_any_order_of_completion() {
    let (mut accepted, mut refused, mut repeated) = (0, 0, 0);
    for seed in 0..200 {
        let mut random = RandomStreams::new(seed).stream("target");
        let units_max = 1 + seed as u32 % 4;
        let mut harness = TargetHarness::new(units_max);
        let timeouts = random.below(1_000);
        for _ in 0..2_000 {
            let nth = random.below(u64::from(units_max));
            match random.below(6) {
                0 | 1 => {
                    let direction = if random.below(2) == 0 { Direction::Read } else { Direction::Write };
                    let result = harness.push(random.below(3 * u64::from(units_max)) as u32, direction);
                    accepted += u64::from(result.is_ok());
                    refused += u64::from(result == Err(PeerError::TooManyUnits));
                }
                2 => harness.advance(1 << random.below(3)),
                3 => harness.serve(),
                4 => harness.fetch(nth, random.below(4) > 0),
                _ if random.below(1_000) < timeouts => harness.deliver(nth, CompletionCode::LocalTimeout),
                _ => harness.deliver(nth, CompletionCode::Ack),
            }
        }
        repeated += harness.target.stats().resubmitted_responses;
        // Once responses are delivered, no state remains.
        for _ in 0..8 * units_max {
            harness.advance(64);
            harness.serve();
            (0..units_max).for_each(|_| harness.fetch(0, true));
            (0..units_max).for_each(|_| harness.deliver(0, CompletionCode::Ack));
        }
        assert!(harness.target.is_idle(), "{:?}", harness.target);
    }
    assert!(accepted > 10_000 && refused > 1_000 && repeated > 1_000, "{accepted} {refused} {repeated}");
}
