//! The driver's side of a Tonic NIC: calls, their checks, and the commands that wait for their slot.
//!
//! The model and a circuit take commands from here, one a cycle.

use std::collections::VecDeque;

use crate::shape::{FlowId, LENGTH_MAX, SegmentId, forward};
use crate::wires::{Command, FlowSetup};

/// Maximum number of commands of the driver that wait for their slot.
pub const COMMANDS_MAX: usize = 64;

/// Maximum distance of the announced limit from the first unacknowledged segment: ids are compared in serial
/// arithmetic.
pub const ANNOUNCED_MAX: u32 = 1 << 22;

/// Error: a call of the driver was rejected, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The flow number is out of range.
    #[error("flow number {flow} is out of range: there are {flows} flows")]
    Outside {
        /// The flow number.
        flow: FlowId,
        /// Number of flows of this NIC.
        flows: u16,
    },
    /// The flow already exists.
    #[error("flow {0} exists already")]
    Exists(FlowId),
    /// The flow does not exist.
    #[error("flow {0} does not exist")]
    Absent(FlowId),
    /// A pipeline stage still holds something of the flow.
    #[error("flow {0} is being processed: call again some cycles later")]
    InProgress(FlowId),
    /// The queue of commands is full.
    #[error("the queue of {COMMANDS_MAX} commands is full: call again some cycles later")]
    Commands,
    /// The length of a segment is out of range.
    #[error("the segment length is {0} bytes, but must be 1 to {LENGTH_MAX}")]
    Length(u16),
    /// The limit does not advance, or advances too far.
    #[error(
        "cannot move the limit of flow {flow} from {from} to {to}: it must advance, and at most \
         {ANNOUNCED_MAX} segments may be outstanding"
    )]
    Limit {
        /// The flow.
        flow: FlowId,
        /// Current end of the announced segments.
        from: SegmentId,
        /// Requested end of the announced segments.
        to: SegmentId,
    },
    /// Segments of the flow are in flight.
    #[error("cannot change the segment length of flow {0} while segments are in flight")]
    Outstanding(FlowId),
}

/// The driver's last announcement for a flow; commands take some cycles to take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Announced {
    exists: bool,
    limit: SegmentId,
    last_bytes: u16,
}

/// The calls of a driver, and what it has announced for each flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Driver {
    commands: VecDeque<(FlowId, Command)>,
    announced: Vec<Announced>,
}

impl Driver {
    /// Creates the driver of a NIC with `flows` flows, none of which exists.
    pub fn new(flows: u16) -> Self {
        let commands = VecDeque::with_capacity(COMMANDS_MAX);
        Self { commands, announced: vec![Announced::default(); usize::from(flows)] }
    }

    /// Checks that the flow number is in range.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self, flow: FlowId) -> Result<(), Refused> {
        self.announced(flow).map(drop)
    }

    /// Adds a flow that has no segments yet; see [`Tonic::add_flow`](crate::Tonic::add_flow). No stage of the NIC holds
    /// anything of a removed flow with this number if `is_quiet`.
    ///
    /// # Errors
    /// As stated there.
    pub fn add_flow(&mut self, flow: FlowId, setup: FlowSetup, is_quiet: bool) -> Result<(), Refused> {
        if self.announced(flow)?.exists {
            return Err(Refused::Exists(flow));
        }
        check_length(setup.segment_bytes)?;
        if !is_quiet || self.has_command(flow) {
            return Err(Refused::InProgress(flow));
        }
        self.command(flow, Command::Add(setup))?;
        self.announced[usize::from(flow)] = Announced { exists: true, limit: setup.first, last_bytes: 0 };
        Ok(())
    }

    /// Removes a flow.
    ///
    /// # Errors
    /// When the flow does not exist, or the queue of commands is full.
    pub fn remove_flow(&mut self, flow: FlowId) -> Result<(), Refused> {
        self.existing(flow)?;
        self.command(flow, Command::Remove)?;
        self.announced[usize::from(flow)] = Announced::default();
        Ok(())
    }

    /// Announces segments up to `limit`; see [`Tonic::set_limit`](crate::Tonic::set_limit). `start` is the first
    /// unacknowledged segment that the NIC has; `None` while the command that adds the flow waits.
    ///
    /// # Errors
    /// As stated there.
    pub fn set_limit(
        &mut self,
        flow: FlowId,
        start: Option<SegmentId>,
        limit: SegmentId,
        last_bytes: u16,
    ) -> Result<(), Refused> {
        let announced = self.existing(flow)?;
        if last_bytes > LENGTH_MAX {
            return Err(Refused::Length(last_bytes));
        }
        let from = announced.limit;
        // A flow whose command to be added still waits has nothing outstanding.
        let start = start.unwrap_or(from);
        if from.is_before(limit) && forward(start, limit) <= ANNOUNCED_MAX {
            if announced.last_bytes != 0 && start != from {
                return Err(Refused::Outstanding(flow));
            }
            self.command(flow, Command::Limit { limit, last_bytes })?;
            self.announced[usize::from(flow)] = Announced { exists: true, limit, last_bytes };
            return Ok(());
        }
        Err(Refused::Limit { flow, from, to: limit })
    }

    /// Changes the length of a flow's segments. `start` is `None` while the flow is not in the NIC; otherwise the first
    /// unacknowledged segment, or `None` if addresses have not been passed on to the link.
    ///
    /// # Errors
    /// When announced segments are not acknowledged, or addresses have not been passed on to the link.
    pub fn set_segment_bytes(
        &mut self,
        flow: FlowId,
        start: Option<Option<SegmentId>>,
        segment_bytes: u16,
    ) -> Result<(), Refused> {
        let announced = self.existing(flow)?;
        check_length(segment_bytes)?;
        let Some(start) = start.filter(|_| !self.has_command(flow)) else { return Err(Refused::InProgress(flow)) };
        if start != Some(announced.limit) {
            return Err(Refused::Outstanding(flow));
        }
        self.command(flow, Command::SegmentBytes(segment_bytes))
    }

    /// Returns the next command.
    pub fn next(&self) -> Option<(FlowId, Command)> {
        self.commands.front().copied()
    }

    /// Removes the next command, which takes the slot of this cycle.
    pub fn take(&mut self) -> Option<(FlowId, Command)> {
        self.commands.pop_front()
    }

    /// Returns whether no command waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    fn has_command(&self, flow: FlowId) -> bool {
        self.commands.iter().any(|(other, _)| *other == flow)
    }

    fn announced(&self, flow: FlowId) -> Result<Announced, Refused> {
        let flows = self.announced.len() as u16;
        self.announced.get(usize::from(flow)).copied().ok_or(Refused::Outside { flow, flows })
    }

    fn existing(&self, flow: FlowId) -> Result<Announced, Refused> {
        let announced = self.announced(flow)?;
        if announced.exists { Ok(announced) } else { Err(Refused::Absent(flow)) }
    }

    fn command(&mut self, flow: FlowId, command: Command) -> Result<(), Refused> {
        if self.commands.len() == COMMANDS_MAX {
            return Err(Refused::Commands);
        }
        self.commands.push_back((flow, command));
        Ok(())
    }
}

fn check_length(bytes: u16) -> Result<(), Refused> {
    if bytes == 0 || bytes > LENGTH_MAX { Err(Refused::Length(bytes)) } else { Ok(()) }
}
