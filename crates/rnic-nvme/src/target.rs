//! The target, on one connection: accepts requests, fetches data, submits requests to the device, and sends responses.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, sections 6 and 7; choices in the crate's head.
//!
//! ```text
//!   Read    request -> device -> Read Response
//!   Write   request -> Write Data Request -> data here -> device -> Write Completion
//! ```
//!
//! Units wait in two queues: for the transaction layer (`outbox`), and to be passed to the device by the driver of this
//! end ([`Target::take_io`]). Neither is ever longer than the maximum number of units, so neither rejects a unit.
//!
//! A Read mapped to a Pull ends when its response is submitted to the transaction layer, which retransmits it
//! independently.
//!
//! An answered unit is kept until its response's transaction has ended. A response that has reached its maximum number
//! of transmissions ends with a Resync, which gives the initiator a number but no unit: the response is then submitted
//! again, in a transaction of its own. The number of responses in flight is limited to the agreed number of units; the
//! others wait. A response submitted again precedes all waiting ones, so that none of those takes its slot: the number
//! of units no longer open never exceeds the agreed number, and whenever a unit may be opened there is a slot for it.

use core::mem;
use std::collections::VecDeque;

use rnic_base::Time;
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction as tl;
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Answer, AnswerError, Kind, PullReply, PushReply, Request, Transactions, UpperLayer};
use rnic_wire::falcon::nvme::{self, Base, Header, Operation};
use rnic_wire::falcon::{CompletionCode, Rsn, Ulp};

use crate::device::Io;
use crate::peer::{PeerError, PeerErrors, status};
use crate::tags::{PLACES_MAX, Tags};
use crate::{Attached, Direction, Extent, Media, Moved, count_once, unit};

/// Parameters of a target on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetConfig {
    /// Owner number of the target at the device, when targets share one ([`Io::owner`]).
    pub owner: u32,
    /// Number of the namespace.
    pub namespace: u16,
    /// Number of blocks of the namespace, starting at the device's first.
    pub blocks: u64,
    /// Base-2 logarithm of the block size in bytes.
    pub block_log2: u32,
    /// Maximum number of units in flight: agreed with the initiator.
    pub units: u32,
}

/// Counters of units, and of their waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TargetStats {
    /// Units accepted.
    pub units: u64,
    /// Units that the device served.
    pub served: u64,
    /// Units that reached the front of their queue and waited because the transaction layer had no resources.
    pub waited_for_room: u64,
    /// Responses that the initiator refused, or that never arrived: some of these are counted in `answered_anew` too.
    pub undelivered: u64,
    /// Responses submitted again, because the previous one reached its maximum number of transmissions.
    pub answered_anew: u64,
    /// Responses that reached the front of their queue and waited because the agreed number was in flight.
    pub waited_for_answers: u64,
    /// Units whose data the initiator no longer has, because it has given them up.
    pub given_up: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the outbox: its data is to be requested.
    Asks,
    /// Its data is in flight.
    Fetches,
    /// Its data has arrived: it is on the medium, or the unit is to be answered with this status.
    Fetched(u16),
    /// Waits to be passed to the device, or is being served by it.
    Device,
    /// In the outbox: to be answered with this status, for the first time or again.
    Answers(u16),
    /// Its response with this status is in flight.
    Answered(u16),
}

/// Waits already counted, each for the item at the front of its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    room: bool,
    answers: bool,
}

#[derive(Debug)]
struct Unit {
    direction: Direction,
    base: Base,
    extent: Extent,
    state: State,
    /// RSN of a Read mapped to a Pull.
    pull: Option<Rsn>,
    /// True until the first response: the unit counts towards the agreed number.
    is_open: bool,
}

/// A target's end of one connection.
#[derive(Debug)]
pub struct Target {
    config: TargetConfig,
    /// Open units, and up to as many answered ones: with a response in flight, or to be answered again.
    units: Tags<Unit>,
    /// Tags of the initiator whose units are open, sorted.
    in_use: Vec<u32>,
    /// Number of responses in flight.
    answered: u32,
    outbox: VecDeque<u32>,
    /// Units to be passed to the device.
    ios: VecDeque<u32>,
    /// Invalid Pulls, to be answered without data.
    strays: VecDeque<(Rsn, Answer)>,
    counted: Counted,
    stats: TargetStats,
    peer_errors: PeerErrors,
}

/// Bit in a transaction's tag that marks a Pull; the lower bits are the tag of its unit.
const OF_PULL: u64 = 1 << 63;

impl Target {
    /// Creates an idle target.
    ///
    /// # Panics
    /// When there would be no unit, or more than half of the entries of a tag table; or blocks of other sizes than 512
    /// to 4096 bytes.
    pub fn new(config: TargetConfig) -> Self {
        assert!((9..=12).contains(&config.block_log2), "blocks of 2^{} bytes", config.block_log2);
        assert!(config.units <= PLACES_MAX / 2, "{} units, and as many answers", config.units);
        let room = config.units as usize;
        Self {
            config,
            units: Tags::new(config.units * 2),
            in_use: Vec::with_capacity(room),
            answered: 0,
            outbox: VecDeque::with_capacity(room * 2),
            ios: VecDeque::with_capacity(room),
            strays: VecDeque::with_capacity(room),
            counted: Counted::default(),
            stats: TargetStats::default(),
            peer_errors: PeerErrors::default(),
        }
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &TargetStats {
        &self.stats
    }

    /// Returns the counts of the initiator's errors.
    pub const fn peer_errors(&self) -> &PeerErrors {
        &self.peer_errors
    }

    /// Returns whether nothing is in flight, including responses.
    pub fn is_idle(&self) -> bool {
        self.units.is_empty() && self.strays.is_empty()
    }

    /// Submits to the transaction layer as much as it accepts.
    ///
    /// # Errors
    /// When the transaction layer's settings do not fit ([`tl::SubmitError::TooLong`]), or the connection is dead:
    /// nothing is in flight then, as after [`Self::lost`].
    pub fn advance(
        &mut self,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        if transactions.is_dead() {
            self.lost();
            return Err(tl::SubmitError::Dead);
        }
        while let Some((rsn, answer)) = self.strays.front() {
            if transactions.answer(resources, *rsn, answer) == Err(AnswerError::Paused) {
                break;
            }
            self.strays.pop_front();
        }
        while let Some(&tag) = self.outbox.front() {
            let unit = self.unit(tag);
            let answers = matches!(unit.state, State::Answers(_)) && unit.pull.is_none();
            if answers && self.answered == self.config.units {
                count_once(&mut self.counted.answers, &mut self.stats.waited_for_answers);
                break;
            }
            match self.send(tag, transactions, resources, media) {
                Ok(()) => {
                    self.outbox.pop_front();
                    (self.counted.room, self.counted.answers) = (false, false);
                }
                Err(tl::SubmitError::Paused) => {
                    count_once(&mut self.counted.room, &mut self.stats.waited_for_room);
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Returns the next request for the device, if there is one.
    pub fn take_io(&mut self) -> Option<Io> {
        let tag = self.ios.pop_front()?;
        let unit = self.unit(tag);
        Some(Io { owner: self.config.owner, tag, direction: unit.direction, extent: unit.extent })
    }

    /// Returns whether anything is to be submitted to the transaction layer.
    pub fn has_to_send(&self) -> bool {
        !self.outbox.is_empty() || !self.strays.is_empty()
    }

    /// Returns whether a local transaction waits for resources of the transaction layer, and whether a response to a
    /// Pull does.
    pub fn waits(&self) -> (bool, bool) {
        let front = self.outbox.front().filter(|_| self.counted.room);
        let answers = front.is_some_and(|tag| self.unit(*tag).pull.is_some());
        (front.is_some() && !answers, answers || !self.strays.is_empty())
    }

    /// Returns the blocks whose data the Push with the tag `transaction` moves to the initiator; `None` when it has
    /// ended.
    pub fn extent_of(&self, transaction: u64) -> Option<Extent> {
        let unit = self.units.get(u32::try_from(transaction).ok()?)?;
        matches!(unit.state, State::Answered(status::SUCCESS)).then_some(unit.extent)
    }

    /// Handles the completion by the device of `io`, which belongs to this target. [`Self::advance`] is to be called
    /// afterwards.
    pub fn served(&mut self, io: &Io) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(io.tag).filter(|unit| unit.state == State::Device) else { return };
        unit.state = State::Answers(status::SUCCESS);
        self.stats.served += 1;
        self.outbox.push_back(io.tag);
    }

    /// Handles the loss of the connection: removes all state in flight. Requests still at the device are then ignored.
    pub fn lost(&mut self) {
        let mut last = None;
        while let Some(tag) = self.units.find(last, |_| true) {
            last = Some(tag);
            self.units.remove(tag);
        }
        self.answered = 0;
        self.in_use.clear();
        self.outbox.clear();
        self.ios.clear();
        self.strays.clear();
        self.counted = Counted::default();
    }

    /// Returns a unit that waits in a queue.
    fn unit(&self, tag: u32) -> &Unit {
        self.units.get(tag).expect("what waits is there")
    }

    /// Submits the next message of the unit; after its first response, the initiator may use the tag again.
    fn send(
        &mut self,
        tag: u32,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        let unit = self.units.get_mut(tag).expect("what is in the outbox is there");
        if let (State::Answers(status), Some(rsn)) = (unit.state, unit.pull) {
            return self.answer_pull(tag, rsn, status, transactions, resources, media);
        }
        let bytes = unit.extent.blocks << self.config.block_log2;
        let (operation, moved, next) = match (unit.state, unit.direction) {
            (State::Answers(status), Direction::Read) => {
                let moved = if status == status::SUCCESS { bytes } else { 0 };
                (Operation::ReadResponse { status }, moved, State::Answered(status))
            }
            (State::Answers(status), Direction::Write) => {
                (Operation::WriteCompletion { status }, 0, State::Answered(status))
            }
            _ => (Operation::WriteDataRequest, bytes, State::Fetches),
        };
        let pulls = next == State::Fetches;
        let (kind, label) = if pulls { (Kind::Pull, OF_PULL) } else { (Kind::Push, 0) };
        let submission = unit::submission(kind, unit.base, operation, moved, label | u64::from(tag));
        let rsn = transactions.submit(resources, &submission)?;
        unit.state = next;
        if pulls {
            return Ok(());
        }
        if moved > 0 {
            media.read(Moved::Push(rsn), unit.extent);
        }
        self.answered += 1;
        if mem::take(&mut unit.is_open) {
            let theirs = unit.base.initiator_tag;
            self.close(theirs);
        }
        Ok(())
    }

    /// Responds with `status` to a Read mapped to a Pull, which ends the unit.
    fn answer_pull(
        &mut self,
        tag: u32,
        rsn: Rsn,
        status: u16,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        let unit = self.unit(tag);
        let bytes = unit.extent.blocks << self.config.block_log2;
        let moved = if status == status::SUCCESS { bytes } else { 0 };
        let answer = unit::read_answer(unit.base, status, moved);
        match transactions.answer(resources, rsn, &answer) {
            Err(AnswerError::Paused) => return Err(tl::SubmitError::Paused),
            // The initiator has given it up. Its length was checked on arrival.
            Err(AnswerError::Unknown | AnswerError::TooLong { .. }) => self.stats.given_up += 1,
            Ok(()) if moved > 0 => media.read(Moved::Answer(rsn), unit.extent),
            Ok(()) => {}
        }
        let unit = self.units.remove(tag).expect("it was looked up");
        self.close(unit.base.initiator_tag);
        Ok(())
    }

    /// Frees the tag `theirs`, which the initiator may use again.
    fn close(&mut self, theirs: u32) {
        let place = self.in_use.binary_search(&theirs).expect("it was in use until now");
        self.in_use.remove(place);
    }

    /// Processes a request and accepts its unit. A Read may be a Pull.
    fn request(&mut self, request: &Request, kind: Kind) -> Result<(), PeerError> {
        let Ulp::Nvme(Header { base, operation }) = request.ulp else { return Err(PeerError::NotNvme) };
        let (direction, command) = match operation {
            Operation::WriteRequest { .. } if kind == Kind::Pull => return Err(PeerError::Unexpected),
            Operation::ReadRequest { command } => (Direction::Read, command),
            Operation::WriteRequest { command, .. } => (Direction::Write, command),
            _ => return Err(PeerError::Unexpected),
        };
        if request.payload_len != 0 {
            return Err(PeerError::WrongLength);
        }
        let (first, blocks) = self.blocks_of(&base, &command).ok_or(PeerError::BadUnits)?;
        let bytes = blocks << self.config.block_log2;
        if kind == Kind::Pull && u32::from(request.length) != unit::read_answer(base, 0, bytes).length {
            return Err(PeerError::WrongLength);
        }
        let place = match self.in_use.binary_search(&base.initiator_tag) {
            Ok(_) => return Err(PeerError::TagInUse),
            Err(place) => place,
        };
        if self.in_use.len() == self.config.units as usize {
            return Err(PeerError::TooManyUnits);
        }
        let last = command.slba.checked_add(u64::from(command.blocks));
        let error = if command.target_nsid != self.config.namespace {
            Some(status::INVALID_NAMESPACE)
        } else {
            last.is_none_or(|last| last >= self.config.blocks).then_some(status::OUT_OF_RANGE)
        };
        // When this sum overflows, the range check above has failed, and the extent is never used.
        let extent = Extent { first_block: command.slba.wrapping_add(u64::from(first)), blocks };
        let state = match (error, direction) {
            (Some(status), _) => State::Answers(status),
            (None, Direction::Write) => State::Asks,
            (None, Direction::Read) => State::Device,
        };
        let pull = (kind == Kind::Pull).then_some(request.rsn);
        let tag = self.units.insert(Unit { direction, base, extent, state, pull, is_open: true });
        let tag = tag.expect("fewer are open than were agreed, and no more than that were answered");
        self.units.get_mut(tag).expect("just put there").base.target_tag = tag;
        self.in_use.insert(place, base.initiator_tag);
        let queue = if state == State::Device { &mut self.ios } else { &mut self.outbox };
        queue.push_back(tag);
        self.stats.units += 1;
        Ok(())
    }

    /// Returns the first block of the unit within its part, and its number of blocks; `None` when the numbers are
    /// inconsistent.
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

    /// Handles the completion of a response's transaction.
    fn delivered(&mut self, tag: u32, code: CompletionCode) {
        self.stats.undelivered += u64::from(code != CompletionCode::Ack);
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag) else { return };
        let State::Answered(status) = unit.state else { return };
        self.answered -= 1;
        // The initiator has accepted the Resync that replaces the response, so it is reachable again. After a timeout
        // it is unknown whether it has received the response: it recognizes a repeated one by its tag. When the medium
        // could not be read as the response was to be sent, it has not received it.
        let anew = match code {
            CompletionCode::LocalTimeout => status,
            CompletionCode::LocalXlr => status::UNRECOVERED_READ,
            _ => {
                self.units.remove(tag);
                return;
            }
        };
        // At the front, because a first response in its slot would close one unit more than there is space for.
        unit.state = State::Answers(anew);
        self.outbox.push_front(tag);
        (self.counted.room, self.counted.answers) = (false, false);
        self.stats.answered_anew += 1;
    }

    /// Processes `data`, received for the Pull of a unit's data.
    fn fetched(&mut self, tag: u32, data: &PulledData, media: &mut impl Media) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag).filter(|unit| unit.state == State::Fetches) else { return };
        let bytes = unit.extent.blocks << self.config.block_log2;
        let status = match check(data, &unit.base, bytes) {
            Ok(()) => media.write(unit.extent).map_or(status::WRITE_FAULT, |()| status::SUCCESS),
            Err(FetchError::MarkedInvalid) => {
                self.stats.given_up += 1;
                status::DATA_TRANSFER_ERROR
            }
            Err(FetchError::PeerError(error)) => {
                self.peer_errors.count(error);
                status::DATA_TRANSFER_ERROR
            }
        };
        unit.state = State::Fetched(status);
    }

    /// Handles the completion of the Pull of a unit's data.
    fn fetch_ended(&mut self, tag: u32) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag) else { return };
        let queue = match unit.state {
            State::Fetched(status::SUCCESS) => {
                unit.state = State::Device;
                &mut self.ios
            }
            State::Fetched(status) => {
                unit.state = State::Answers(status);
                &mut self.outbox
            }
            // The Pull ended without data.
            State::Fetches => {
                unit.state = State::Answers(status::DATA_TRANSFER_ERROR);
                &mut self.outbox
            }
            _ => return,
        };
        queue.push_back(tag);
    }
}

/// Reason for which a Pull did not return a unit's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FetchError {
    /// The initiator itself marks the data as invalid: it has given the unit up.
    MarkedInvalid,
    /// The response is not one that the peer may send.
    PeerError(PeerError),
}

/// Checks that `data` is that of the unit.
fn check(data: &PulledData, asked: &Base, bytes: u32) -> Result<(), FetchError> {
    let Ulp::Nvme(Header { base, operation }) = data.ulp else { return Err(FetchError::PeerError(PeerError::NotNvme)) };
    if operation != Operation::WriteData {
        return Err(FetchError::PeerError(PeerError::Unexpected));
    }
    if base == (Base { data_invalid: true, ..*asked }) {
        return Err(FetchError::MarkedInvalid);
    }
    if base != *asked {
        return Err(FetchError::PeerError(PeerError::Mismatch));
    }
    if data.payload_len == bytes { Ok(()) } else { Err(FetchError::PeerError(PeerError::WrongLength)) }
}

impl<M: Media> UpperLayer for Attached<'_, Target, M> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        match self.end.request(request, Kind::Push) {
            Ok(()) => PushReply::Done,
            Err(error) => {
                self.end.peer_errors.count(error);
                PushReply::CompleteInError(error.code())
            }
        }
    }

    /// Always accepts the Pull, for the reason given at [`crate::Initiator`]'s implementation.
    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        if let Err(error) = self.end.request(request, Kind::Pull) {
            self.end.peer_errors.count(error);
            let answer = match request.ulp {
                Ulp::Nvme(Header { base, operation: Operation::ReadRequest { .. } }) => {
                    unit::no_read(base, request.length)
                }
                _ => unit::no_data(Base::default(), request.length),
            };
            self.end.strays.push_back((request.rsn, answer));
        }
        PullReply::Later
    }

    /// Never called, because units are submitted with their headers.
    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, completion: &tl::Completion) {
        if completion.tag & OF_PULL == 0 {
            self.end.delivered(completion.tag as u32, completion.code);
        } else {
            self.end.fetch_ended((completion.tag & !OF_PULL) as u32);
        }
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        self.end.fetched((tag & !OF_PULL) as u32, data, self.memory);
    }
}

#[cfg(test)]
mod tests;
