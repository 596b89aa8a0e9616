//! The target, on one connection: requests in, data fetched, the device asked, answers out.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, sections 6 and 7; choices in the crate's head.
//!
//! ```text
//!   Read    request -> waits for the device -> device -> Read Response
//!   Write   request -> Write Data Request -> data here -> waits for the device -> device -> Write Completion
//! ```
//!
//! Units wait in two queues: for the transaction layer (`outbox`) and for the device (`waiting`). Neither is ever
//! longer than there may be units, so neither refuses.

use std::collections::VecDeque;

use rnic_base::Time;
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction as tl;
use rnic_falcon::transaction::{AnswerError, Kind, PullReply, PushReply, Request, Transactions, UpperLayer};
use rnic_wire::falcon::nvme::{self, Base, Header, Operation};
use rnic_wire::falcon::{CompletionCode, Rsn, Ulp};

use crate::device::{Device, Io};
use crate::peer::{PeerError, PeerErrors, status};
use crate::tags::Tags;
use crate::{Attached, Direction, Extent, Media, unit};

/// What a target offers on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetConfig {
    /// Its name towards the device, when targets share one ([`Io::owner`]).
    pub owner: u32,
    /// The namespace.
    pub namespace: u16,
    /// Blocks of the namespace: from the device's first on.
    pub blocks: u64,
    /// A block has 2^this bytes.
    pub block_log2: u32,
    /// Units under way, at most: agreed with the initiator.
    pub units: u32,
}

/// What has been counted, and why it waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TargetStats {
    /// Units taken.
    pub units: u64,
    /// Units that the device served.
    pub served: u64,
    /// Times that a unit waited because the device's queue was full.
    pub waited_for_device: u64,
    /// Times that a unit waited because the transaction layer had no room.
    pub waited_for_room: u64,
    /// Answers that the initiator refused or that never got there.
    pub undelivered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the outbox: data is to be asked for.
    Asks,
    /// Its data is under way.
    Fetches,
    /// Waits for the device, or is there; the data of a Write came with that Pull.
    Device(Option<Rsn>),
    /// In the outbox: to be answered with that.
    Answers(u16),
}

#[derive(Debug)]
struct Unit {
    direction: Direction,
    base: Base,
    extent: Extent,
    state: State,
}

/// A target's end of one connection.
#[derive(Debug)]
pub struct Target {
    config: TargetConfig,
    units: Tags<Unit>,
    /// Tags of the initiator that are in use, in order.
    in_use: Vec<u32>,
    outbox: VecDeque<u32>,
    waiting: VecDeque<u32>,
    /// Pulls, which an initiator never sends, to be answered without data.
    strays: VecDeque<(Rsn, u16)>,
    stats: TargetStats,
    peer_errors: PeerErrors,
}

/// In a transaction's tag: it is a Pull, for the unit whose tag stands below.
const OF_PULL: u64 = 1 << 63;

impl Target {
    /// A target that has nothing to do.
    ///
    /// # Panics
    /// When there would be no unit, or more than a table of tags has places; or blocks of other sizes than 512 to 4096
    /// bytes.
    pub fn new(config: TargetConfig) -> Self {
        assert!((9..=12).contains(&config.block_log2), "blocks of 2^{} bytes", config.block_log2);
        let room = config.units as usize;
        Self {
            config,
            units: Tags::new(config.units),
            in_use: Vec::with_capacity(room),
            outbox: VecDeque::with_capacity(room),
            waiting: VecDeque::with_capacity(room),
            strays: VecDeque::with_capacity(room),
            stats: TargetStats::default(),
            peer_errors: PeerErrors::default(),
        }
    }

    /// What has been counted.
    pub const fn stats(&self) -> &TargetStats {
        &self.stats
    }

    /// What the initiator did wrong.
    pub const fn peer_errors(&self) -> &PeerErrors {
        &self.peer_errors
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.units.is_empty() && self.strays.is_empty()
    }

    /// Hands the device and the transaction layer what they can take.
    ///
    /// # Errors
    /// When the transaction layer's settings do not fit ([`tl::SubmitError::TooLong`]), or the connection is dead:
    /// nothing is under way then, as after [`Self::lost`].
    pub fn advance(
        &mut self,
        now: Time,
        device: &mut Device,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        if transactions.is_dead() {
            self.lost(media);
            return Err(tl::SubmitError::Dead);
        }
        while let Some(&tag) = self.waiting.front() {
            if device.submit(now, self.io(tag)).is_err() {
                self.stats.waited_for_device += 1;
                break;
            }
            self.waiting.pop_front();
        }
        while let Some(&(rsn, asked)) = self.strays.front() {
            if transactions.answer(resources, rsn, &unit::no_data(Base::default(), asked)) == Err(AnswerError::Paused) {
                break;
            }
            self.strays.pop_front();
        }
        while let Some(&tag) = self.outbox.front() {
            match self.send(tag, transactions, resources, media) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(tl::SubmitError::Paused) => {
                    self.stats.waited_for_room += 1;
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// The device has served `io`, which is ours. [`Self::advance`] is due.
    pub fn served(&mut self, io: &Io, media: &mut impl Media) {
        // The connection may have been lost meanwhile.
        let Some(unit) = self.units.get_mut(io.tag) else { return };
        let State::Device(data) = unit.state else { return };
        if let Some(rsn) = data {
            media.write(rsn, unit.extent);
        }
        unit.state = State::Answers(status::SUCCESS);
        self.stats.served += 1;
        self.outbox.push_back(io.tag);
    }

    /// The connection is lost: forgets all that is under way. What the device still does is nobody's.
    pub fn lost(&mut self, media: &mut impl Media) {
        while let Some(tag) = self.units.find(|_| true) {
            if let Some(Unit { state: State::Device(Some(rsn)), .. }) = self.units.remove(tag) {
                media.forget(rsn);
            }
        }
        self.in_use.clear();
        self.outbox.clear();
        self.waiting.clear();
        self.strays.clear();
    }

    /// What the unit asks of the device.
    fn io(&self, tag: u32) -> Io {
        let unit = self.units.get(tag).expect("what waits is there");
        Io { owner: self.config.owner, tag, direction: unit.direction, extent: unit.extent }
    }

    /// Sends what the unit has to say; an answer ends it.
    fn send(
        &mut self,
        tag: u32,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        let unit = self.units.get_mut(tag).expect("what is in the outbox is there");
        let bytes = unit.extent.blocks << self.config.block_log2;
        let (kind, operation, moved, label) = match (unit.state, unit.direction) {
            (State::Answers(status), Direction::Read) => {
                let moved = if status == status::SUCCESS { bytes } else { 0 };
                (Kind::Push, Operation::ReadResponse { status }, moved, 0)
            }
            (State::Answers(status), Direction::Write) => (Kind::Push, Operation::WriteCompletion { status }, 0, 0),
            _ => (Kind::Pull, Operation::WriteDataRequest, bytes, OF_PULL | u64::from(tag)),
        };
        let submission = unit::submission(kind, unit.base, operation, moved, label);
        let rsn = transactions.submit(resources, &submission)?;
        if kind == Kind::Pull {
            unit.state = State::Fetches;
            return Ok(());
        }
        if moved > 0 {
            media.read(rsn, unit.extent);
        }
        let theirs = unit.base.initiator_tag;
        self.units.remove(tag);
        let place = self.in_use.binary_search(&theirs).expect("it was in use until now");
        self.in_use.remove(place);
        Ok(())
    }

    /// A request: takes the unit.
    fn request(&mut self, request: &Request) -> Result<(), PeerError> {
        let Ulp::Nvme(Header { base, operation }) = request.ulp else { return Err(PeerError::NotNvme) };
        let (direction, command) = match operation {
            Operation::ReadRequest { command } => (Direction::Read, command),
            Operation::WriteRequest { command, .. } => (Direction::Write, command),
            _ => return Err(PeerError::Unexpected),
        };
        if request.payload_len != 0 {
            return Err(PeerError::WrongLength);
        }
        let (first, blocks) = self.blocks_of(&base, &command).ok_or(PeerError::BadUnits)?;
        let place = match self.in_use.binary_search(&base.initiator_tag) {
            Ok(_) => return Err(PeerError::TagInUse),
            Err(place) => place,
        };
        if self.units.is_full() {
            return Err(PeerError::TooManyUnits);
        }
        let last = command.slba.checked_add(u64::from(command.blocks));
        let error = if command.target_nsid != self.config.namespace {
            Some(status::INVALID_NAMESPACE)
        } else {
            last.is_none_or(|last| last >= self.config.blocks).then_some(status::OUT_OF_RANGE)
        };
        // When the sum overflows, so does the answer: it is never used.
        let extent = Extent { first_block: command.slba.wrapping_add(u64::from(first)), blocks };
        let state = match (error, direction) {
            (Some(status), _) => State::Answers(status),
            (None, Direction::Write) => State::Asks,
            (None, Direction::Read) => State::Device(None),
        };
        let tag = self.units.insert(Unit { direction, base, extent, state }).expect("it is not full");
        self.units.get_mut(tag).expect("just put there").base.target_tag = tag;
        self.in_use.insert(place, base.initiator_tag);
        let queue = if matches!(state, State::Device(_)) { &mut self.waiting } else { &mut self.outbox };
        queue.push_back(tag);
        self.stats.units += 1;
        Ok(())
    }

    /// Which of the part's blocks the unit has: the first, and how many; none when numbers contradict each other.
    fn blocks_of(&self, base: &Base, command: &nvme::Command) -> Option<(u32, u32)> {
        let blocks = u32::from(command.blocks) + 1;
        let per_unit = unit::blocks_of_unit(self.config.block_log2);
        let (units, all) = (unit::units_of(blocks, self.config.block_log2), u32::from(base.units_less_one) + 1);
        let before = match (base.split, base.second_group) {
            (false, false) if units == all => 0,
            (true, false) if units < all => 0,
            (true, true) if units < all => all - units,
            _ => return None,
        };
        let number = u32::from(base.unit).checked_sub(before).filter(|number| *number < units)?;
        let first = number * per_unit;
        Some((first, (blocks - first).min(per_unit)))
    }

    /// The Pull of a unit's data has ended.
    fn fetched(&mut self, tag: u32, completion: &tl::Completion, media: &mut impl Media) {
        // The connection may have been lost meanwhile.
        let Some(unit) = self.units.get_mut(tag).filter(|unit| unit.state == State::Fetches) else {
            return;
        };
        let bytes = unit.extent.blocks << self.config.block_log2;
        let result = match completion.data {
            Some(data) if completion.code == CompletionCode::Ack => check(&data, &unit.base, bytes).map_err(Some),
            _ => Err(None),
        };
        if let Err(error) = result {
            if let Some(error) = error {
                self.peer_errors.count(error);
                media.forget(completion.rsn);
            }
            unit.state = State::Answers(status::DATA_TRANSFER_ERROR);
            self.outbox.push_back(tag);
        } else {
            unit.state = State::Device(Some(completion.rsn));
            self.waiting.push_back(tag);
        }
    }
}

/// Whether that is the data of that unit.
fn check(data: &tl::ulp::PulledData, asked: &Base, bytes: u32) -> Result<(), PeerError> {
    let Ulp::Nvme(Header { base, operation }) = data.ulp else { return Err(PeerError::NotNvme) };
    if operation != Operation::WriteData {
        return Err(PeerError::Unexpected);
    }
    if base.data_invalid {
        return Err(PeerError::Invalid);
    }
    if base != *asked {
        return Err(PeerError::Mismatch);
    }
    if data.payload_len == bytes { Ok(()) } else { Err(PeerError::WrongLength) }
}

impl<M: Media> UpperLayer for Attached<'_, Target, M> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        match self.end.request(request) {
            Ok(()) => PushReply::Done,
            Err(error) => {
                self.end.peer_errors.count(error);
                PushReply::CompleteInError(error.code())
            }
        }
    }

    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        if self.end.strays.len() >= self.end.config.units as usize {
            return PullReply::Busy;
        }
        self.end.peer_errors.count(PeerError::Unexpected);
        self.end.strays.push_back((request.rsn, request.length));
        PullReply::Later
    }

    fn complete(&mut self, _: Time, completion: &tl::Completion) {
        if completion.tag & OF_PULL == 0 {
            self.end.stats.undelivered += u64::from(completion.code != CompletionCode::Ack);
        } else {
            self.end.fetched((completion.tag & !OF_PULL) as u32, completion, self.memory);
        }
    }
}
