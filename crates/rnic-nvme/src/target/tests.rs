//! The target alone: whatever its initiator does and whenever answers end, the table of units has room.

use rnic_base::{BitRate, Duration, RandomStreams, Serial};
use rnic_falcon::resources::ResourceConfig;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_wire::falcon::UlpProtocol;
use rnic_wire::falcon::nvme::Directive;

use super::*;
use crate::device::Service;
use crate::{DeviceConfig, Drive, Fault};

/// Its bytes are nobody's.
struct Nowhere;

impl Media for Nowhere {
    fn read(&mut self, _: Moved, _: Extent) {}

    fn write(&mut self, _: Extent) -> Result<(), Fault> {
        Ok(())
    }
}

/// A target, its device, and the hand of its initiator and network.
struct Alone {
    target: Target,
    device: Drive,
    now: Time,
}

impl Alone {
    fn new(units: u32) -> Self {
        let target = TargetConfig { owner: 0, namespace: 1, blocks: 1 << 20, block_log2: 9, units };
        let service = Service { latency: Duration::from_us(1), bandwidth: BitRate::gbps(32) };
        let device = DeviceConfig { read: service, write: service, queue_depth: 64, block_log2: 9 };
        Self { target: Target::new(target), device: Drive::new(device), now: Time::from_us(1) }
    }

    /// The target says what it has to say, over a transaction layer that takes so many transactions.
    fn advance(&mut self, room: u32) {
        let config = TransactionConfig {
            ordering: Ordering::Unordered,
            protocol: UlpProtocol::Nvme,
            mtu: 4_352,
            outstanding: room,
            timeout: Duration::from_secs(1),
            isolation: Isolation::None,
        };
        let mut transactions = Transactions::new(config, Serial::new(1));
        let mut resources = Resources::new(ResourceConfig::GBPS_200);
        let Self { target, device, now } = self;
        while let Some(io) = target.take_io() {
            device.submit(*now, io);
        }
        target.advance(&mut transactions, &mut resources, &mut Nowhere).expect("alive");
        self.holds();
    }

    /// The device serves all that it has.
    fn serve(&mut self) {
        self.now += Duration::from_us(50);
        while let Some(io) = self.device.done(self.now) {
            self.target.served(&io);
        }
    }

    /// A request for one unit, under the initiator's tag `tag`.
    fn push(&mut self, tag: u32, direction: Direction) -> Result<(), PeerError> {
        let command = nvme::Command { target_nsid: 1, blocks: 7, ..nvme::Command::default() };
        let base = Base { initiator_tag: tag, ..Base::default() };
        let operation = match direction {
            Direction::Read => Operation::ReadRequest { command },
            Direction::Write => Operation::WriteRequest { command, directive: Directive::default() },
        };
        let ulp = Ulp::Nvme(Header { base, operation });
        let rsn = Serial::new(0);
        let result =
            self.target.request(&Request { rsn, length: ulp.request_len(0) as u16, payload_len: 0, ulp }, Kind::Push);
        self.holds();
        result
    }

    /// What the end of a transaction would tell: of the `nth` unit whose state is `wanted`.
    fn find(&self, nth: u64, wanted: impl Fn(State) -> bool) -> Option<u32> {
        let mut last = None;
        for _ in 0..=nth {
            last = Some(self.target.units.find(last, |unit| wanted(unit.state))?);
        }
        last
    }

    /// The `nth` answer on its way ends so.
    fn deliver(&mut self, nth: u64, code: CompletionCode) {
        if let Some(tag) = self.find(nth, |state| matches!(state, State::Answered(_))) {
            self.target.delivered(tag, code);
        }
        self.holds();
    }

    /// The `nth` Pull on its way brings its data, or none.
    fn fetch(&mut self, nth: u64, brings: bool) {
        let Some(tag) = self.find(nth, |state| state == State::Fetches) else { return };
        let ulp = Ulp::Nvme(Header { base: self.target.unit(tag).base, operation: Operation::WriteData });
        if brings {
            self.target.fetched(tag, &PulledData { payload_len: 4_096, ulp }, &mut Nowhere);
        }
        self.target.fetch_ended(tag);
    }

    /// Units that are open are as many as were agreed at most, and so are the others.
    fn holds(&self) {
        let (agreed, open) = (self.target.config.units as usize, self.target.in_use.len());
        assert!(open <= agreed && self.target.units.len() - open <= agreed, "{:?}", self.target);
    }
}

/// An answer that is to be given anew is not on its way: if another one took its place, that would close its unit, and
/// the initiator might follow it with a new one.
#[test]
fn an_answer_given_anew_keeps_its_place_before_first_answers() {
    for agreed in 1..=4 {
        let mut alone = Alone::new(agreed);
        for tag in 0..2 * agreed {
            if tag == agreed {
                alone.advance(64);
                alone.serve();
                alone.advance(64);
            }
            assert_eq!(alone.push(tag, Direction::Read), Ok(()));
        }
        alone.advance(64);
        alone.serve();
        alone.advance(64);
        assert!(alone.target.stats().waited_for_answers > 0);
        alone.deliver(0, CompletionCode::LocalTimeout);
        alone.advance(64);
        assert_eq!(alone.push(2 * agreed, Direction::Read), Err(PeerError::TooManyUnits), "none was answered since");
        alone.deliver(0, CompletionCode::Ack);
        alone.advance(64);
        assert_eq!(alone.push(2 * agreed, Direction::Read), Ok(()));
    }
}

#[test]
fn the_table_has_room_whatever_ends_when() {
    let (mut taken, mut refused, mut anew) = (0, 0, 0);
    for seed in 0..200 {
        let mut random = RandomStreams::new(seed).stream("target");
        let agreed = 1 + seed as u32 % 4;
        let mut alone = Alone::new(agreed);
        let timeouts = random.below(1_000);
        for _ in 0..2_000 {
            let nth = random.below(u64::from(agreed));
            match random.below(6) {
                0 | 1 => {
                    let direction = if random.below(2) == 0 { Direction::Read } else { Direction::Write };
                    let result = alone.push(random.below(3 * u64::from(agreed)) as u32, direction);
                    taken += u64::from(result.is_ok());
                    refused += u64::from(result == Err(PeerError::TooManyUnits));
                }
                2 => alone.advance(1 << random.below(3)),
                3 => alone.serve(),
                4 => alone.fetch(nth, random.below(4) > 0),
                _ if random.below(1_000) < timeouts => alone.deliver(nth, CompletionCode::LocalTimeout),
                _ => alone.deliver(nth, CompletionCode::Ack),
            }
        }
        anew += alone.target.stats().answered_anew;
        // Nothing is left behind once answers get there.
        for _ in 0..8 * agreed {
            alone.advance(64);
            alone.serve();
            (0..agreed).for_each(|_| alone.fetch(0, true));
            (0..agreed).for_each(|_| alone.deliver(0, CompletionCode::Ack));
        }
        assert!(alone.target.is_idle(), "{:?}", alone.target);
    }
    assert!(taken > 10_000 && refused > 1_000 && anew > 1_000, "{taken} {refused} {anew}");
}
