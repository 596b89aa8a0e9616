//! The initiator: accepts commands, divides them into units, and returns completions.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, sections 6 and 7; choices are listed in the crate documentation.
//!
//! A command is divided into at most two parts, each for one connection, and each part into units. Units of a
//! connection are sent in the order of their commands, up to the permitted number in flight. A unit ends with its
//! first response, and the command completes when its last unit ends. A failed command reports the failure of its
//! first failing unit, by number; data that other units have moved is not restored. A command that was in flight when
//! its connection was lost fails as lost, whatever the outcome of its individual units.

use core::mem;
use std::collections::VecDeque;

use rnic_base::{Duration, Time};
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction as tl;
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Kind, PullReply, PushReply, Request, RespondError, Transactions, UpperLayer};
use rnic_wire::falcon::nvme::{self, Base, Header, Operation};
use rnic_wire::falcon::{CompletionCode, ResyncCode, Rsn, Ulp};

use crate::layout::{Layout, Part, TranslateError};
use crate::peer::{PeerError, PeerErrors, status};
use crate::tags::{ENTRIES_MAX, Tags};
use crate::{Attached, Direction, Fault, HostMemory, Span, UNITS_MAX, count_once, unit};

/// Mapping of Reads to transactions, on which the specification and the paper differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Reads {
    /// A Push for the request and a Push for the response (OCP NVMe over Falcon Transport, section 7.1).
    #[default]
    Push,
    /// A Pull (Falcon, SIGCOMM'25, table 2).
    Pull,
}

/// Parameters of an initiator, and its limits on the commands and units (4 KiB parts of a command's data) in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitiatorConfig {
    /// Function number of the initiator, 24 bits: carried in every packet.
    pub function: u32,
    /// Namespace ID that the initiator uses.
    pub namespace: u16,
    /// Maximum number of commands accepted whose completions have not been polled yet.
    pub commands: u32,
    /// Maximum number of units (4 KiB parts of a command's data) in flight on each connection, as agreed with its
    /// target.
    pub units: u32,
    /// Maximum duration of a command, from [`Initiator::submit`] on.
    pub timeout: Duration,
    /// Transactions used for a Read.
    pub reads: Reads,
}

/// A read or write command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Direction of the transfer.
    pub direction: Direction,
    /// First logical block of the command.
    pub first_block: u64,
    /// Number of logical blocks of the command.
    pub blocks: u32,
    /// Identifier that is returned with the completion and identifies the command's memory in [`HostMemory`].
    pub cookie: u64,
}

/// Reason for which a command is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The maximum number of commands is in flight: the caller submits again after [`Initiator::poll`].
    #[error("the maximum number of NVMe commands is in flight; poll completions before submitting more")]
    Full,
    /// The block addresses are invalid.
    #[error(transparent)]
    Address(#[from] TranslateError),
    /// The command is longer than the maximum; the value is its length in units (4 KiB parts of its data).
    #[error("an NVMe command of {0} units exceeds the maximum of {UNITS_MAX} units")]
    TooLong(u32),
    /// A connection that the command needs is lost.
    #[error("connection {0} was lost")]
    Lost(u32),
}

/// Reason for the failure of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Status reported by the target: see [`status`].
    #[error("the target reported status {code:#06x} ({name})", code = .0, name = status::name(*.0))]
    Status(u16),
    /// The target refused a request (CIE), for this reason.
    #[error("the target refused a request: {0}")]
    Refused(PeerError),
    /// The transaction of a request ended in error.
    #[error("a request completed with error {0:?}")]
    Transaction(CompletionCode),
    /// The target's response is invalid.
    #[error("the target's response is invalid: {0}")]
    Peer(PeerError),
    /// The connection was lost while the command was in flight.
    #[error("the connection was lost")]
    Lost,
    /// The command took longer than [`InitiatorConfig::timeout`].
    #[error("the command timed out")]
    TimedOut,
    /// The command's memory at the initiator cannot be read or written.
    #[error("the memory of the command cannot be read or written")]
    Memory,
}

impl Failure {
    /// Returns the numerical code of the failure, which [`Self::from_word`] decodes: the variant in the upper half, the
    /// reason in the lower.
    pub const fn word(self) -> u32 {
        match self {
            Self::Status(status) => status as u32,
            Self::Refused(error) => 1 << 16 | error.code() as u32,
            Self::Transaction(code) => 2 << 16 | code.code() as u32,
            Self::Peer(error) => 3 << 16 | error.code() as u32,
            Self::Lost => 4 << 16,
            Self::TimedOut => 5 << 16,
            Self::Memory => 6 << 16,
        }
    }

    /// Returns the failure with the numerical code `word`.
    pub fn from_word(word: u32) -> Option<Self> {
        let reason = word as u8;
        match word >> 16 {
            0 => Some(Self::Status(word as u16)),
            1 => PeerError::from_code(reason).map(Self::Refused),
            2 => CompletionCode::from_code(reason).map(Self::Transaction),
            3 => PeerError::from_code(reason).map(Self::Peer),
            4 => Some(Self::Lost),
            5 => Some(Self::TimedOut),
            6 => Some(Self::Memory),
            _ => None,
        }
    }
}

/// Completion of an NVMe command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Cookie of the command.
    pub cookie: u64,
    /// Result of the command.
    pub result: Result<(), Failure>,
}

/// Counters of commands, of units (4 KiB parts of a command's data), and of the times that units had to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InitiatorStats {
    /// Commands accepted.
    pub commands: u64,
    /// Commands split over two targets, included in `commands`.
    pub split: u64,
    /// Units whose requests were submitted to the transaction layer.
    pub units: u64,
    /// Units that reached the front of their queue and waited because the agreed number was in flight.
    pub waited_for_units: u64,
    /// Units and data that reached the front of their queue and waited because the transaction layer had no resources.
    pub waited_for_resources: u64,
    /// Responses, Pulls and completions of requests that arrived for units (parts of a command's data) that had ended
    /// already.
    pub late: u64,
}

#[derive(Debug)]
struct ActiveCommand {
    direction: Direction,
    cookie: u64,
    first_block: u64,
    blocks: u32,
    parts: (Part, Option<Part>),
    units: u32,
    done: u32,
    deadline: Time,
    failure: Option<(u32, Failure)>,
}

/// State of the data transfer of a Write command, for one unit (4 KiB part of its data).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fetch {
    NotRequested,
    Requested,
    Sent,
}

#[derive(Debug)]
struct Unit {
    connection: u32,
    command: u32,
    number: u32,
    direction: Direction,
    base: Base,
    span: Span,
    fetch: Fetch,
    /// Serial number over all units (parts of a command's data): distinguishes a unit from all earlier ones with the
    /// same tag.
    serial: u64,
}

/// Units of one part of a command that have not been sent yet.
#[derive(Clone, Copy, Debug)]
struct Queued {
    command: u32,
    second: bool,
    next: u32,
}

/// Kinds of waits already counted for the item at the front of each queue, so that each wait is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    units: bool,
    resources: bool,
    data: bool,
}

#[derive(Debug)]
struct Connection {
    queued: VecDeque<Queued>,
    /// Pulls to respond to: each with the unit's tag, or `None` when the unit was abandoned or the Pull is invalid.
    pulls: VecDeque<(Rsn, u16, Option<u32>, Base)>,
    in_flight: u32,
    counted: Counted,
    lost: bool,
}

/// An initiator: one namespace, over one or more connections.
#[derive(Debug)]
pub struct Initiator {
    config: InitiatorConfig,
    layout: Layout,
    commands: Tags<ActiveCommand>,
    units: Tags<Unit>,
    connections: Box<[Connection]>,
    completed: VecDeque<u32>,
    next_serial: u64,
    /// Lower bound of the deadlines of all commands.
    next_deadline: Option<Time>,
    stats: InitiatorStats,
    peer_errors: PeerErrors,
}

/// Mask of a unit's table tag in a transaction's tag; the bits above are its serial number.
const TAG_MASK: u64 = (1 << crate::tags::TAG_BITS) - 1;

/// Splits the tag of a transaction into the table tag and the serial number of the unit (part of a command's data) that
/// it moves.
const fn split_transaction_tag(transaction: u64) -> (u32, u64) {
    ((transaction & TAG_MASK) as u32, transaction >> crate::tags::TAG_BITS)
}

impl Initiator {
    /// Creates an idle initiator.
    ///
    /// # Panics
    /// When the maximum number of commands or units is zero, or exceeds the entries of a tag table.
    pub fn new(config: InitiatorConfig, layout: Layout) -> Self {
        let connections = layout.connections();
        let units_max = u64::from(config.units) * u64::from(connections);
        assert!(units_max <= u64::from(ENTRIES_MAX), "{units_max} units exceed the tag table");
        let connection = |_| Connection {
            queued: VecDeque::with_capacity(config.commands as usize * 2),
            pulls: VecDeque::with_capacity(config.units as usize),
            in_flight: 0,
            counted: Counted::default(),
            lost: false,
        };
        Self {
            config,
            commands: Tags::new(config.commands),
            units: Tags::new(units_max as u32),
            connections: (0..connections).map(connection).collect(),
            completed: VecDeque::with_capacity(config.commands as usize),
            layout,
            next_serial: 0,
            next_deadline: None,
            stats: InitiatorStats::default(),
            peer_errors: PeerErrors::default(),
        }
    }

    /// Returns the layout of the blocks.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the counters of the initiator.
    pub const fn stats(&self) -> &InitiatorStats {
        &self.stats
    }

    /// Returns the counters of errors made by targets.
    pub const fn peer_errors(&self) -> &PeerErrors {
        &self.peer_errors
    }

    /// Returns whether nothing is in flight and no completion waits to be polled.
    pub fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.connections.iter().all(|connection| connection.pulls.is_empty())
    }

    /// Returns the number of tags in use for units (4 KiB parts of a command's data), which a target may refer to.
    pub fn units_in_flight(&self) -> usize {
        self.units.len()
    }

    /// Accepts a command. The caller then calls [`Self::advance`] for the connections of its parts.
    ///
    /// # Errors
    /// [`SubmitError`]; the state is unchanged in that case.
    pub fn submit(&mut self, now: Time, command: &Command) -> Result<(), SubmitError> {
        let (first_part, second_part) = self.layout.translate(command.first_block, command.blocks)?;
        let block = self.layout.geometry().block;
        let units_of = |part: Part| unit::units_of(part.blocks, block);
        let units = units_of(first_part) + second_part.map_or(0, units_of);
        if units > UNITS_MAX {
            return Err(SubmitError::TooLong(units));
        }
        let mut needed = [Some(first_part), second_part].into_iter().flatten().map(|part| part.connection);
        if let Some(lost) = needed.find(|connection| self.connections[*connection as usize].lost) {
            return Err(SubmitError::Lost(lost));
        }
        let Command { direction, first_block, blocks, cookie } = *command;
        let parts = (first_part, second_part);
        let deadline = now + self.config.timeout;
        let active =
            ActiveCommand { direction, cookie, first_block, blocks, parts, units, done: 0, deadline, failure: None };
        let tag = self.commands.insert(active).ok_or(SubmitError::Full)?;
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        for (part, second) in [(Some(first_part), false), (second_part, true)] {
            let Some(part) = part else { continue };
            self.connections[part.connection as usize].queued.push_back(Queued { command: tag, second, next: 0 });
        }
        self.stats.commands += 1;
        self.stats.split += u64::from(second_part.is_some());
        Ok(())
    }

    /// Returns the completion of a finished command, if there is one.
    pub fn poll(&mut self) -> Option<Completion> {
        let tag = self.completed.pop_front()?;
        let command = self.remove_command(tag);
        Some(Completion { cookie: command.cookie, result: command.failure.map_or(Ok(()), |(_, failure)| Err(failure)) })
    }

    /// Submits to the transaction layer of `connection` as much as it accepts: data first, because targets wait for it.
    ///
    /// # Errors
    /// When the transaction layer's settings do not fit ([`tl::SubmitError::TooLong`]), or the connection is dead: in
    /// that case its units have failed, as after [`Self::lost`].
    pub fn advance(
        &mut self,
        connection: usize,
        transactions: &mut Transactions,
        resources: &mut Resources,
        memory: &mut impl HostMemory,
    ) -> Result<(), tl::SubmitError> {
        if transactions.is_terminated() {
            self.lost(connection);
            return Err(tl::SubmitError::Terminated);
        }
        self.respond_to_pulls(connection, transactions, resources, memory);
        while let Some(&queued) = self.connections[connection].queued.front() {
            if self.connections[connection].in_flight == self.config.units {
                count_once(&mut self.connections[connection].counted.units, &mut self.stats.waited_for_units);
                break;
            }
            match self.submit_unit(connection, queued, transactions, resources) {
                Ok(()) => {
                    let counted = &mut self.connections[connection].counted;
                    (counted.units, counted.resources) = (false, false);
                }
                Err(tl::SubmitError::Paused) => {
                    count_once(
                        &mut self.connections[connection].counted.resources,
                        &mut self.stats.waited_for_resources,
                    );
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Returns whether a request or data is to be submitted to the transaction layer of `connection`.
    pub fn has_to_send(&self, connection: usize) -> bool {
        let Connection { queued, pulls, in_flight, .. } = &self.connections[connection];
        !pulls.is_empty() || !queued.is_empty() && *in_flight < self.config.units
    }

    /// Returns whether the request at the front of `connection` waits for resources of the transaction layer.
    pub fn request_waits(&self, connection: usize) -> bool {
        let Connection { queued, counted, .. } = &self.connections[connection];
        counted.resources && !queued.is_empty()
    }

    /// Returns whether the data at the front of `connection` waits for resources of the transaction layer.
    pub fn data_waits(&self, connection: usize) -> bool {
        let Connection { pulls, counted, .. } = &self.connections[connection];
        counted.data && !pulls.is_empty()
    }

    /// Returns the earliest time at which [`Self::expire`] must be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.next_deadline.filter(|_| !self.commands.is_empty())
    }

    /// Fails the commands whose deadline has passed. Messages about them that arrive later are counted as late; until
    /// then, the target may still count a unit as in flight. Nothing is aborted, because there are no admin commands.
    pub fn expire(&mut self, now: Time) {
        if self.next_deadline.is_none_or(|next| next > now) {
            return;
        }
        let mut last = None;
        while let Some(tag) = self.units.find(last, |unit| self.command(unit.command).deadline <= now) {
            last = Some(tag);
            self.finish(tag, Err(Failure::TimedOut));
        }
        for connection in 0..self.connections.len() {
            let mut queued = mem::take(&mut self.connections[connection].queued);
            queued.retain(|queued| {
                let has_expired = self.command(queued.command).deadline <= now;
                if has_expired {
                    self.fail_queued(*queued, Failure::TimedOut);
                }
                !has_expired
            });
            self.connections[connection].queued = queued;
            // A different unit may be at the front now, whose waits have not been counted.
            let counted = &mut self.connections[connection].counted;
            (counted.units, counted.resources) = (false, false);
        }
        let (mut last, mut next) = (None, None::<Time>);
        while let Some(tag) = self.commands.find(last, |command| command.done < command.units) {
            last = Some(tag);
            let deadline = self.command(tag).deadline;
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        }
        self.next_deadline = next;
    }

    /// Handles the loss of `connection`: its commands in flight fail, and commands that need it are rejected.
    pub fn lost(&mut self, connection: usize) {
        self.connections[connection].lost = true;
        self.connections[connection].pulls.clear();
        self.connections[connection].counted = Counted::default();
        let mut last = None;
        while let Some(tag) = self.units.find(last, |unit| unit.connection as usize == connection) {
            last = Some(tag);
            self.finish(tag, Err(Failure::Lost));
        }
        while let Some(queued) = self.connections[connection].queued.pop_front() {
            self.fail_queued(queued, Failure::Lost);
        }
    }

    /// Fails the units of the part of a command in `queued`, which were not sent.
    fn fail_queued(&mut self, queued: Queued, failure: Failure) {
        let command = self.command(queued.command);
        let (_, first, units) = self.part(command, queued.second);
        for number in queued.next..units {
            self.unit_ended(queued.command, first + number, Err(failure));
        }
    }

    /// Returns a command that still has units in flight or queued, or that waits for [`Self::poll`].
    fn command(&self, tag: u32) -> &ActiveCommand {
        self.commands.get(tag).expect("the command stays until it is polled")
    }

    fn remove_command(&mut self, tag: u32) -> ActiveCommand {
        self.commands.remove(tag).expect("the command stays until it is polled")
    }

    /// Returns a part of a command, the number of its first unit, and its number of units.
    fn part(&self, command: &ActiveCommand, second: bool) -> (Part, u32, u32) {
        let block = self.layout.geometry().block;
        let first = unit::units_of(command.parts.0.blocks, block);
        match command.parts.1 {
            Some(part) if second => (part, first, command.units - first),
            _ => (command.parts.0, 0, first),
        }
    }

    /// Submits the request for the unit (4 KiB part of a command's data) at the front of the connection's queue.
    fn submit_unit(
        &mut self,
        connection: usize,
        queued: Queued,
        transactions: &mut Transactions,
        resources: &mut Resources,
    ) -> Result<(), tl::SubmitError> {
        let command = self.command(queued.command);
        let (part, first, units) = self.part(command, queued.second);
        let block = self.layout.geometry().block;
        let first_block = queued.next * unit::blocks_of_unit(block);
        let blocks = (part.blocks - first_block).min(unit::blocks_of_unit(block));
        let before = if queued.second { command.parts.0.blocks } else { 0 };
        let span = Span { cookie: command.cookie, offset: (before + first_block) << block, length: blocks << block };
        debug_assert!(before + first_block < command.blocks, "from {}", command.first_block);
        let base = Base {
            initiator_function: self.config.function,
            split: command.parts.1.is_some(),
            second_group: queued.second,
            command: queued.command,
            units_less_one: (command.units - 1) as u8,
            unit: (first + queued.next) as u8,
            ..Base::default()
        };
        let wire = nvme::Command {
            initiator_nsid: self.config.namespace,
            target_nsid: part.namespace,
            slba: part.first_block,
            blocks: (part.blocks - 1) as u16,
            ..nvme::Command::default()
        };
        let operation = match command.direction {
            Direction::Read => Operation::ReadRequest { command: wire },
            Direction::Write => Operation::WriteRequest { command: wire, directive: nvme::Directive::default() },
        };
        let kind = match (command.direction, self.config.reads) {
            (Direction::Read, Reads::Pull) => Kind::Pull,
            _ => Kind::Push,
        };
        let (number, direction, serial) = (first + queued.next, command.direction, self.next_serial);
        let (fetch, command) = (Fetch::NotRequested, queued.command);
        let entry = Unit { connection: connection as u32, command, number, direction, base, span, fetch, serial };
        let tag = self.units.insert(entry).expect("the table has an entry for every unit of every connection");
        let base = Base { initiator_tag: tag, ..base };
        self.units.get_mut(tag).expect("the unit was just inserted").base = base;
        let moved = if kind == Kind::Pull { span.length } else { 0 };
        let submission = unit::submission(kind, base, operation, moved, serial << 24 | u64::from(tag));
        if let Err(error) = transactions.submit(resources, &submission) {
            self.units.remove(tag);
            return Err(error);
        }
        self.next_serial += 1;
        self.stats.units += 1;
        let queue = &mut self.connections[connection];
        queue.in_flight += 1;
        if queued.next + 1 == units {
            queue.queued.pop_front();
        } else if let Some(front) = queue.queued.front_mut() {
            front.next += 1;
        }
        Ok(())
    }

    /// Responds to Pulls, in the order of their arrival.
    fn respond_to_pulls(
        &mut self,
        connection: usize,
        transactions: &mut Transactions,
        resources: &mut Resources,
        memory: &mut impl HostMemory,
    ) {
        while let Some(&(rsn, asked, tag, base)) = self.connections[connection].pulls.front() {
            // The unit may have ended since the Pull arrived.
            let span = tag.and_then(|tag| self.units.get(tag)).map(|unit| unit.span);
            let readable = span.filter(|span| memory.gather(connection, rsn, *span).is_ok());
            let response = match readable {
                Some(span) => unit::data(base, span.length),
                None => unit::invalid_data_response(base, asked),
            };
            match transactions.respond(resources, rsn, &response) {
                Ok(()) => match (tag, readable) {
                    (Some(tag), Some(_)) => self.units.get_mut(tag).expect("the unit has a span").fetch = Fetch::Sent,
                    (Some(tag), None) if span.is_some() => self.finish(tag, Err(Failure::Memory)),
                    _ => {}
                },
                Err(RespondError::Paused) => {
                    count_once(&mut self.connections[connection].counted.data, &mut self.stats.waited_for_resources);
                    return;
                }
                // An accepted Pull is kept until the response to it is submitted, whatever the target sends about it
                // in the meantime (a Resync does not remove it), and its length was checked on arrival. If either
                // assumption is wrong, the command times out.
                Err(error @ (RespondError::Unknown | RespondError::TooLong { .. })) => {
                    debug_assert!(false, "the response to an accepted Pull was refused: {error}");
                }
            }
            self.connections[connection].pulls.pop_front();
            self.connections[connection].counted.data = false;
        }
    }

    /// Returns the unit that `base` refers to, if it belongs to `connection` and all identifiers match.
    fn unit_named_by(&self, connection: usize, base: &Base) -> Result<&Unit, PeerError> {
        let unit = self.units.get(base.initiator_tag).filter(|unit| unit.connection as usize == connection);
        let unit = unit.ok_or(PeerError::UnknownTag)?;
        let received = (base.initiator_function, base.command, base.units_less_one, base.unit);
        let sent = &unit.base;
        if received == (sent.initiator_function, sent.command, sent.units_less_one, sent.unit) {
            Ok(unit)
        } else {
            Err(PeerError::Mismatch)
        }
    }

    /// Processes a response of the target, which ends one unit (4 KiB part of a command's data).
    fn on_response(
        &mut self,
        connection: usize,
        request: &Request,
        memory: &mut impl HostMemory,
    ) -> Result<(), PeerError> {
        let Ulp::Nvme(Header { base, operation }) = request.ulp else { return Err(PeerError::NotNvme) };
        let (direction, status) = match operation {
            Operation::ReadResponse { status } => (Direction::Read, status),
            Operation::WriteCompletion { status } => (Direction::Write, status),
            _ => return Err(PeerError::Unexpected),
        };
        if self.units.is_old(base.initiator_tag) {
            // Either the unit's request timed out here although it had arrived, or the target did not receive the
            // acknowledgement of its first response and sends the response again.
            self.stats.late += 1;
            return Ok(());
        }
        let unit = self.unit_named_by(connection, &base)?;
        if unit.direction != direction {
            return Err(PeerError::Unexpected);
        }
        let is_done = status == status::SUCCESS;
        let expected_len = if is_done && direction == Direction::Read { unit.span.length } else { 0 };
        let error = if request.payload_len != expected_len {
            Some(PeerError::WrongLength)
        } else {
            let unfetched = direction == Direction::Write && unit.fetch != Fetch::Sent;
            (is_done && unfetched).then_some(PeerError::Early)
        };
        if let Some(error) = error {
            // The target considers this unit finished: no valid response will follow.
            self.finish(base.initiator_tag, Err(Failure::Peer(error)));
            return Err(error);
        }
        let placed = if expected_len > 0 { memory.place(connection, unit.span) } else { Ok(()) };
        let result = if is_done { placed.map_err(|Fault| Failure::Memory) } else { Err(Failure::Status(status)) };
        self.finish(base.initiator_tag, result);
        Ok(())
    }

    /// Processes the data that a Pull has returned for a part (unit) of an NVMe Read command, and completes that part.
    fn pulled(&mut self, connection: usize, transaction: u64, data: &PulledData, memory: &mut impl HostMemory) {
        let (tag, serial) = split_transaction_tag(transaction);
        let Some(unit) = self.units.get(tag).filter(|unit| unit.serial == serial) else {
            self.stats.late += 1;
            return;
        };
        let (span, asked) = (unit.span, unit.base);
        let result = match data.ulp {
            Ulp::Nvme(Header { base, operation: Operation::ReadResponse { status } }) => {
                let is_done = status == status::SUCCESS;
                let expected_len = if is_done { span.length } else { 0 };
                if base.data_invalid {
                    // An NVMe target never marks the data of a Read invalid, so the peer is not an NVMe target.
                    Err(Failure::Refused(PeerError::NoNvme))
                } else if base != (Base { target_tag: base.target_tag, ..asked }) {
                    Err(Failure::Peer(PeerError::Mismatch))
                } else if data.payload_len != expected_len {
                    Err(Failure::Peer(PeerError::WrongLength))
                } else if is_done {
                    memory.place(connection, span).map_err(|Fault| Failure::Memory)
                } else {
                    Err(Failure::Status(status))
                }
            }
            Ulp::Nvme(_) => Err(Failure::Peer(PeerError::Unexpected)),
            _ => Err(Failure::Peer(PeerError::NotNvme)),
        };
        if let Err(Failure::Peer(error)) = result {
            self.peer_errors.count(error);
        }
        self.finish(tag, result);
    }

    /// Checks a Pull of the target; returns the tag of the unit whose data is to be sent, or `None` if that unit was
    /// abandoned.
    fn on_data_request(&mut self, connection: usize, request: &Request) -> Result<Option<u32>, PeerError> {
        let Ulp::Nvme(Header { base, operation }) = request.ulp else { return Err(PeerError::NotNvme) };
        if operation != Operation::WriteDataRequest {
            return Err(PeerError::Unexpected);
        }
        if self.units.is_old(base.initiator_tag) {
            self.stats.late += 1;
            return Ok(None);
        }
        let unit = self.unit_named_by(connection, &base)?;
        if unit.direction != Direction::Write {
            return Err(PeerError::Unexpected);
        }
        if u32::from(request.length) != unit::data(base, unit.span.length).length {
            return Err(PeerError::WrongLength);
        }
        if unit.fetch != Fetch::NotRequested {
            return Err(PeerError::Repeated);
        }
        self.units.get_mut(base.initiator_tag).expect("the unit was found above").fetch = Fetch::Requested;
        Ok(Some(base.initiator_tag))
    }

    /// Handles the completion of a request's transaction.
    fn on_request_completed(&mut self, completion: &tl::Completion) {
        let (tag, serial) = split_transaction_tag(completion.tag);
        let open_unit = self.units.get(tag).filter(|unit| unit.serial == serial);
        let was_fetched = open_unit.is_some_and(|unit| unit.fetch != Fetch::NotRequested);
        let is_open = open_unit.is_some();
        let failure = match completion.code {
            CompletionCode::Ack => return,
            // The request was not acknowledged, but the target has pulled the data: it has received the request, and
            // will respond.
            CompletionCode::LocalTimeout if was_fetched => return,
            CompletionCode::TargetCompleteInError => match PeerError::from_code(completion.ulp_code) {
                Some(error) => Failure::Refused(error),
                None => Failure::Transaction(completion.code),
            },
            // The target could not read the data of a Read mapped to a Pull when the response was to be sent.
            CompletionCode::RemoteError if completion.ulp_code == ResyncCode::LocalXlr.code() => {
                Failure::Status(status::UNRECOVERED_READ)
            }
            CompletionCode::DeadConnection => Failure::Lost,
            code => Failure::Transaction(code),
        };
        if is_open {
            self.finish(tag, Err(failure));
        } else {
            self.stats.late += 1;
        }
    }

    /// Ends a unit (4 KiB part of a command's data) with `result`.
    fn finish(&mut self, tag: u32, result: Result<(), Failure>) {
        let unit = self.units.remove(tag).expect("the unit is in the table");
        self.connections[unit.connection as usize].in_flight -= 1;
        self.unit_ended(unit.command, unit.number, result);
    }

    /// Counts unit `number` of `command` as ended; the last one completes the command.
    fn unit_ended(&mut self, command: u32, number: u32, result: Result<(), Failure>) {
        let active = self.commands.get_mut(command).expect("a command with units in flight is in the table");
        if let Err(failure) = result {
            let is_lost = |failure| failure == Failure::Lost;
            let replaces_failure = active.failure.is_none_or(|(first, known)| {
                is_lost(failure) && !is_lost(known) || is_lost(failure) == is_lost(known) && number < first
            });
            if replaces_failure {
                active.failure = Some((number, failure));
            }
        }
        active.done += 1;
        if active.done == active.units {
            self.completed.push_back(command);
        }
    }
}

impl<M: HostMemory> UpperLayer for Attached<'_, Initiator, M> {
    fn push(&mut self, _: Time, request: &Request) -> PushReply {
        match self.end.on_response(self.connection, request, self.memory) {
            Ok(()) => PushReply::Done,
            Err(error) => {
                self.end.peer_errors.count(error);
                PushReply::CompleteInError(error.code())
            }
        }
    }

    /// Always accepts the Pull: data is sent once for each unit in flight, and the response to a further Pull has no
    /// data. The number of Pulls is bounded by the transaction layer, which keeps each until the response is
    /// submitted.
    fn pull(&mut self, _: Time, request: &Request) -> PullReply {
        let tag = self.end.on_data_request(self.connection, request).unwrap_or_else(|error| {
            self.end.peer_errors.count(error);
            None
        });
        let base = if let Ulp::Nvme(header) = request.ulp { header.base } else { Base::default() };
        self.end.connections[self.connection].pulls.push_back((request.rsn, request.length, tag, base));
        PullReply::Later
    }

    /// Never called, because units are submitted with their headers.
    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, _: Time, completion: &tl::Completion) {
        self.end.on_request_completed(completion);
    }

    fn pulled(&mut self, _: Time, tag: u64, data: &PulledData) {
        self.end.pulled(self.connection, tag, data, self.memory);
    }
}
