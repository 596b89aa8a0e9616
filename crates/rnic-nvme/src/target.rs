//! The target, on one connection: accepts requests, fetches data, submits requests to the device, and sends responses.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, sections 6 and 7; choices are listed in the crate documentation.
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
//! A unit is kept until the transaction of its response has ended. A response that has reached its maximum number of
//! transmissions ends with a Resync, which carries a sequence number but does not identify the unit: the response is
//! then submitted again, in a new transaction. The number of responses in flight is limited to the agreed number of
//! units; the others wait. A response submitted again precedes all waiting ones, so that none of those takes its
//! slot: the number of units that are no longer open never exceeds the agreed number, and whenever a unit may be
//! opened there is a table entry for it.

use core::mem;
use std::collections::VecDeque;

use rnic_base::Time;
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction as tl;
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{
    Kind, PullReply, PullResponse, PushReply, Request, RespondError, Transactions, UpperLayer,
};
use rnic_wire::falcon::nvme::{self, Base, Header, Operation};
use rnic_wire::falcon::{CompletionCode, Rsn, Ulp};

use crate::device::Io;
use crate::peer::{PeerError, PeerErrors, status};
use crate::tags::{ENTRIES_MAX, Tags};
use crate::{Attached, Direction, Extent, Media, UnitTransaction, count_once, unit};

/// Parameters of a target on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetConfig {
    /// Owner number of the target at the device, when targets share one ([`Io::owner`]).
    pub owner: u32,
    /// Namespace ID.
    pub namespace: u16,
    /// Number of blocks of the namespace, which starts at the first block of the device.
    pub blocks: u64,
    /// Base-2 logarithm of the block size in bytes.
    pub block_log2: u32,
    /// Maximum number of units (4 KiB parts of a command's data) in flight, as agreed with the initiator.
    pub units: u32,
}

/// Counters of units (4 KiB parts of a command's data), and of the times that they had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TargetStats {
    /// Units (4 KiB parts of a command's data) accepted.
    pub units: u64,
    /// Units that the device served.
    pub served: u64,
    /// Units that reached the front of their queue and waited because the transaction layer had no resources.
    pub waited_for_resources: u64,
    /// Responses that the initiator refused, or that never arrived: some of these are counted in
    /// `resubmitted_responses` too.
    pub undelivered: u64,
    /// Responses submitted again, because the previous one reached its maximum number of transmissions.
    pub resubmitted_responses: u64,
    /// Responses that reached the front of their queue and waited because the agreed number was in flight.
    pub waited_for_response_slots: u64,
    /// Units (parts of a command's data) that could not be completed because the initiator had abandoned them and no
    /// longer had the data.
    pub abandoned: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The unit is in the outbox: its data is to be requested.
    Requesting,
    /// The data of the unit is in flight.
    FetchInFlight,
    /// The data of the unit has arrived: it is on the medium, or the response is to carry this error status.
    Fetched(u16),
    /// The unit waits to be passed to the device, or the device is serving it.
    Device,
    /// The unit is in the outbox: a response with this status is to be sent, for the first time or again.
    Responding(u16),
    /// The response with this status is in flight.
    ResponseInFlight(u16),
}

/// Kinds of waits already counted for the item at the front of each queue, so that each wait is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    resources: bool,
    responses: bool,
}

#[derive(Debug)]
struct Unit {
    direction: Direction,
    base: Base,
    extent: Extent,
    state: State,
    /// RSN of the Pull, if the unit is a Read mapped to a Pull.
    pull: Option<Rsn>,
    /// True until the first response is submitted: until then, the unit counts towards the agreed number.
    is_open: bool,
}

/// A target's end of one connection.
#[derive(Debug)]
pub struct Target {
    config: TargetConfig,
    /// Open units, and up to the same number of other units, whose response is in flight or is to be submitted again.
    units: Tags<Unit>,
    /// The initiator's tags of the units whose first response has not been submitted yet, sorted.
    in_use: Vec<u32>,
    /// Number of responses in flight.
    responses_in_flight: u32,
    outbox: VecDeque<u32>,
    /// Units to be passed to the device.
    ios: VecDeque<u32>,
    /// Invalid Pulls, whose responses carry no data.
    invalid_pulls: VecDeque<(Rsn, PullResponse)>,
    counted: Counted,
    stats: TargetStats,
    peer_errors: PeerErrors,
}

/// Bit in a transaction's tag that marks a Pull; the lower bits are the tag of its unit.
const PULL_TAG_BIT: u64 = 1 << 63;

impl Target {
    /// Creates an idle target.
    ///
    /// # Panics
    /// When the maximum number of units is zero or exceeds half of the entries of a tag table, or when the block size
    /// is not within 512 to 4096 bytes.
    pub fn new(config: TargetConfig) -> Self {
        assert!((9..=12).contains(&config.block_log2), "invalid block size: 2^{} bytes", config.block_log2);
        assert!(config.units <= ENTRIES_MAX / 2, "{} units exceed half of the tag table", config.units);
        let units_max = config.units as usize;
        Self {
            config,
            units: Tags::new(config.units * 2),
            in_use: Vec::with_capacity(units_max),
            responses_in_flight: 0,
            outbox: VecDeque::with_capacity(units_max * 2),
            ios: VecDeque::with_capacity(units_max),
            invalid_pulls: VecDeque::with_capacity(units_max),
            counted: Counted::default(),
            stats: TargetStats::default(),
            peer_errors: PeerErrors::default(),
        }
    }

    /// Returns the counters of the target.
    pub const fn stats(&self) -> &TargetStats {
        &self.stats
    }

    /// Returns the counters of errors made by the initiator.
    pub const fn peer_errors(&self) -> &PeerErrors {
        &self.peer_errors
    }

    /// Returns whether nothing is in flight, including responses.
    pub fn is_idle(&self) -> bool {
        self.units.is_empty() && self.invalid_pulls.is_empty()
    }

    /// Submits to the transaction layer as much as it accepts.
    ///
    /// # Errors
    /// When the transaction layer's settings do not fit ([`tl::SubmitError::TooLong`]), or the connection is dead: in
    /// that case nothing is in flight, as after [`Self::lost`].
    pub fn advance(
        &mut self,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        if transactions.is_terminated() {
            self.lost();
            return Err(tl::SubmitError::Terminated);
        }
        while let Some((rsn, response)) = self.invalid_pulls.front() {
            if transactions.respond(resources, *rsn, response) == Err(RespondError::Paused) {
                break;
            }
            self.invalid_pulls.pop_front();
        }
        while let Some(&tag) = self.outbox.front() {
            let unit = self.unit(tag);
            let responses = matches!(unit.state, State::Responding(_)) && unit.pull.is_none();
            if responses && self.responses_in_flight == self.config.units {
                count_once(&mut self.counted.responses, &mut self.stats.waited_for_response_slots);
                break;
            }
            match self.send(tag, transactions, resources, media) {
                Ok(()) => {
                    self.outbox.pop_front();
                    (self.counted.resources, self.counted.responses) = (false, false);
                }
                Err(tl::SubmitError::Paused) => {
                    count_once(&mut self.counted.resources, &mut self.stats.waited_for_resources);
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
        !self.outbox.is_empty() || !self.invalid_pulls.is_empty()
    }

    /// Returns two values: whether a local transaction waits for resources of the transaction layer, and whether a
    /// response to a Pull does.
    pub fn waits(&self) -> (bool, bool) {
        let front = self.outbox.front().filter(|_| self.counted.resources);
        let responses = front.is_some_and(|tag| self.unit(*tag).pull.is_some());
        (front.is_some() && !responses, responses || !self.invalid_pulls.is_empty())
    }

    /// Returns the blocks whose data the Push with the tag `transaction` moves to the initiator; `None` when it has
    /// ended.
    pub fn extent_of(&self, transaction: u64) -> Option<Extent> {
        let unit = self.units.get(u32::try_from(transaction).ok()?)?;
        matches!(unit.state, State::ResponseInFlight(status::SUCCESS)).then_some(unit.extent)
    }

    /// Handles the device's completion of `io`, which belongs to this target. [`Self::advance`] must be called
    /// afterwards.
    pub fn served(&mut self, io: &Io) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(io.tag).filter(|unit| unit.state == State::Device) else { return };
        unit.state = State::Responding(status::SUCCESS);
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
        self.responses_in_flight = 0;
        self.in_use.clear();
        self.outbox.clear();
        self.ios.clear();
        self.invalid_pulls.clear();
        self.counted = Counted::default();
    }

    /// Returns a unit (part of a command's data) that waits in a queue.
    fn unit(&self, tag: u32) -> &Unit {
        self.units.get(tag).expect("a queued unit is in the table")
    }

    /// Submits the next message of a unit (part of a command's data); after its first response, the initiator may use
    /// the tag again.
    fn send(
        &mut self,
        tag: u32,
        transactions: &mut Transactions,
        resources: &mut Resources,
        media: &mut impl Media,
    ) -> Result<(), tl::SubmitError> {
        let unit = self.units.get_mut(tag).expect("a unit in the outbox is in the table");
        if let (State::Responding(status), Some(rsn)) = (unit.state, unit.pull) {
            return self.respond_to_pull(tag, rsn, status, transactions, resources, media);
        }
        let bytes = unit.extent.blocks << self.config.block_log2;
        let (operation, moved, next) = match (unit.state, unit.direction) {
            (State::Responding(status), Direction::Read) => {
                let moved = if status == status::SUCCESS { bytes } else { 0 };
                (Operation::ReadResponse { status }, moved, State::ResponseInFlight(status))
            }
            (State::Responding(status), Direction::Write) => {
                (Operation::WriteCompletion { status }, 0, State::ResponseInFlight(status))
            }
            _ => (Operation::WriteDataRequest, bytes, State::FetchInFlight),
        };
        let is_pull = next == State::FetchInFlight;
        let (kind, label) = if is_pull { (Kind::Pull, PULL_TAG_BIT) } else { (Kind::Push, 0) };
        let submission = unit::submission(kind, unit.base, operation, moved, label | u64::from(tag));
        let rsn = transactions.submit(resources, &submission)?;
        unit.state = next;
        if is_pull {
            return Ok(());
        }
        if moved > 0 {
            media.read(UnitTransaction::Push(rsn), unit.extent);
        }
        self.responses_in_flight += 1;
        if mem::take(&mut unit.is_open) {
            let initiator_tag = unit.base.initiator_tag;
            self.close(initiator_tag);
        }
        Ok(())
    }

    /// Responds with `status` to a Read that is mapped to a Pull, which ends the unit (part of a command's data) that
    /// it reads.
    fn respond_to_pull(
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
        let response = unit::read_response(unit.base, status, moved);
        match transactions.respond(resources, rsn, &response) {
            Err(RespondError::Paused) => return Err(tl::SubmitError::Paused),
            // The initiator has abandoned the Pull; its length was checked on arrival.
            Err(RespondError::Unknown | RespondError::TooLong { .. }) => self.stats.abandoned += 1,
            Ok(()) if moved > 0 => media.read(UnitTransaction::Response(rsn), unit.extent),
            Ok(()) => {}
        }
        let unit = self.units.remove(tag).expect("the unit is in the table");
        self.close(unit.base.initiator_tag);
        Ok(())
    }

    /// Frees the tag `initiator_tag`, which the initiator may use again.
    fn close(&mut self, initiator_tag: u32) {
        let index = self.in_use.binary_search(&initiator_tag).expect("the tag of an unfinished transfer is in use");
        self.in_use.remove(index);
    }

    /// Processes a request of the initiator, and accepts the unit (part of a command's data) that it describes. A Read
    /// may be a Pull.
    fn on_request(&mut self, request: &Request, kind: Kind) -> Result<(), PeerError> {
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
        let (first, blocks) = self.block_range_of_unit(&base, &command).ok_or(PeerError::BadUnits)?;
        let bytes = blocks << self.config.block_log2;
        if kind == Kind::Pull && u32::from(request.length) != unit::read_response(base, 0, bytes).length {
            return Err(PeerError::WrongLength);
        }
        let index = match self.in_use.binary_search(&base.initiator_tag) {
            Ok(_) => return Err(PeerError::TagInUse),
            Err(index) => index,
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
            (Some(status), _) => State::Responding(status),
            (None, Direction::Write) => State::Requesting,
            (None, Direction::Read) => State::Device,
        };
        let pull = (kind == Kind::Pull).then_some(request.rsn);
        let tag = self.units.insert(Unit { direction, base, extent, state, pull, is_open: true });
        let tag = tag.expect("the table has an entry for each open and each closing unit");
        self.units.get_mut(tag).expect("the unit was just inserted").base.target_tag = tag;
        self.in_use.insert(index, base.initiator_tag);
        let queue = if state == State::Device { &mut self.ios } else { &mut self.outbox };
        queue.push_back(tag);
        self.stats.units += 1;
        Ok(())
    }

    /// Returns the first block of the unit, relative to this target's part of the command, and its number of blocks;
    /// `None` when offset and length of the unit do not fit the command.
    fn block_range_of_unit(&self, base: &Base, command: &nvme::Command) -> Option<(u32, u32)> {
        let blocks = u32::from(command.blocks) + 1;
        let per_unit = unit::blocks_of_unit(self.config.block_log2);
        let (units, command_units) =
            (unit::units_of(blocks, self.config.block_log2), u32::from(base.units_less_one) + 1);
        let units_before = match (base.split, base.second_group) {
            (false, false) if units == command_units => 0,
            (true, false) if units < command_units => 0,
            (true, true) if units < command_units => command_units - units,
            _ => return None,
        };
        let number = u32::from(base.unit).checked_sub(units_before).filter(|number| *number < units)?;
        let first = number * per_unit;
        Some((first, (blocks - first).min(per_unit)))
    }

    /// Handles the completion of a response's transaction.
    fn on_response_completed(&mut self, tag: u32, code: CompletionCode) {
        self.stats.undelivered += u64::from(code != CompletionCode::Ack);
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag) else { return };
        let State::ResponseInFlight(status) = unit.state else { return };
        self.responses_in_flight -= 1;
        // The initiator has accepted the Resync that replaces the response, so it is reachable again. After a timeout
        // it is unknown whether it has received the response; it recognizes a repeated response by its tag. When the
        // medium could not be read at the time of sending, the initiator has not received the response.
        let status_to_repeat = match code {
            CompletionCode::LocalTimeout => status,
            CompletionCode::LocalXlr => status::UNRECOVERED_READ,
            _ => {
                self.units.remove(tag);
                return;
            }
        };
        // Queued at the front: if a first response took this slot, one unit more would be closed than the table has
        // space for.
        unit.state = State::Responding(status_to_repeat);
        self.outbox.push_front(tag);
        (self.counted.resources, self.counted.responses) = (false, false);
        self.stats.resubmitted_responses += 1;
    }

    /// Processes `data`, the response to the Pull Request for the part of a command's write data that `tag` identifies.
    fn on_fetched_data(&mut self, tag: u32, data: &PulledData, media: &mut impl Media) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag).filter(|unit| unit.state == State::FetchInFlight) else { return };
        let bytes = unit.extent.blocks << self.config.block_log2;
        let status = match check_fetched_data(data, &unit.base, bytes) {
            Ok(()) => media.write(unit.extent).map_or(status::WRITE_FAULT, |()| status::SUCCESS),
            Err(FetchError::MarkedInvalid) => {
                self.stats.abandoned += 1;
                status::DATA_TRANSFER_ERROR
            }
            Err(FetchError::PeerError(error)) => {
                self.peer_errors.count(error);
                status::DATA_TRANSFER_ERROR
            }
        };
        unit.state = State::Fetched(status);
    }

    /// Handles the completion of the Pull that requested a unit of a Write's data.
    fn on_fetch_completed(&mut self, tag: u32) {
        // The connection may have been lost in the meantime.
        let Some(unit) = self.units.get_mut(tag) else { return };
        let queue = match unit.state {
            State::Fetched(status::SUCCESS) => {
                unit.state = State::Device;
                &mut self.ios
            }
            State::Fetched(status) => {
                unit.state = State::Responding(status);
                &mut self.outbox
            }
            // The Pull ended without data.
            State::FetchInFlight => {
                unit.state = State::Responding(status::DATA_TRANSFER_ERROR);
                &mut self.outbox
            }
            _ => return,
        };
        queue.push_back(tag);
    }
}

/// Reason for which a Pull did not return the requested part of a Write's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FetchError {
    /// The initiator itself marks the data as invalid: it has abandoned the unit.
    MarkedInvalid,
    /// The peer may not send such a response.
    PeerError(PeerError),
}

/// Checks that `data` is the part of a Write's data that was requested.
fn check_fetched_data(data: &PulledData, requested: &Base, bytes: u32) -> Result<(), FetchError> {
    let Ulp::Nvme(Header { base, operation }) = data.ulp else { return Err(FetchError::PeerError(PeerError::NotNvme)) };
    if operation != Operation::WriteData {
        return Err(FetchError::PeerError(PeerError::Unexpected));
    }
    if base == (Base { data_invalid: true, ..*requested }) {
        return Err(FetchError::MarkedInvalid);
    }
    if base != *requested {
        return Err(FetchError::PeerError(PeerError::Mismatch));
    }
    if data.payload_len == bytes { Ok(()) } else { Err(FetchError::PeerError(PeerError::WrongLength)) }
}

impl<M: Media> UpperLayer for Attached<'_, Target, M> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        match self.end.on_request(request, Kind::Push) {
            Ok(()) => PushReply::Done,
            Err(error) => {
                self.end.peer_errors.count(error);
                PushReply::CompleteInError(error.code())
            }
        }
    }

    /// Always accepts the Pull, for the same reason as [`crate::Initiator`].
    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        if let Err(error) = self.end.on_request(request, Kind::Pull) {
            self.end.peer_errors.count(error);
            let response = match request.ulp {
                Ulp::Nvme(Header { base, operation: Operation::ReadRequest { .. } }) => {
                    unit::invalid_read_response(base, request.length)
                }
                _ => unit::invalid_data_response(Base::default(), request.length),
            };
            self.end.invalid_pulls.push_back((request.rsn, response));
        }
        PullReply::Later
    }

    /// Never called, because units are submitted with their headers.
    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, completion: &tl::Completion) {
        if completion.tag & PULL_TAG_BIT == 0 {
            self.end.on_response_completed(completion.tag as u32, completion.code);
        } else {
            self.end.on_fetch_completed((completion.tag & !PULL_TAG_BIT) as u32);
        }
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        self.end.on_fetched_data((tag & !PULL_TAG_BIT) as u32, data, self.memory);
    }
}

#[cfg(test)]
mod tests;
