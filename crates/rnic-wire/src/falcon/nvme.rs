//! NVMe over Falcon: the upper layer's headers (OCP NVMe over Falcon Transport, Rev 0.9, section 8).
//!
//! A command of a host (iCMD) is split into commands of one 4 KiB unit (nCMD), each of one or two transactions.

/// Maximum number of data bytes in a packet: a unit (part of a command's data) of 4 KiB and its protection information.
pub const PAYLOAD_MAX: u32 = 4096 + 128;

/// NBTH: fields of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Base {
    /// The function that issued the command, 24 bits.
    pub initiator_function: u32,
    /// True when the data of a Write is invalid.
    pub data_invalid: bool,
    /// True when the command was split at the boundary of a stripe.
    pub split: bool,
    /// `true` for the second group of a split command, that of its second stripe.
    pub second_group: bool,
    /// Identifies the state at the target, 24 bits.
    pub target_tag: u32,
    /// Identifies, at the initiator, the state of this unit (part of a command's data), 24 bits.
    pub initiator_tag: u32,
    /// Identifies the command that this unit (part of its data) belongs to, 24 bits.
    pub command: u32,
    /// Number of units (parts of at most 4 KiB of the data) of the command, minus one.
    pub units_less_one: u8,
    /// Index of this unit (part of the command's data) in the command, from 0.
    pub unit: u8,
}

/// Command of a Read Request or Write Request to the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Command {
    /// Low 16 bits of the namespace identifier used by the initiator.
    pub initiator_nsid: u16,
    /// Low 16 bits of the namespace identifier used by the target.
    pub target_nsid: u16,
    /// First logical block at the target of the command, or of the stripe group, in the packets of all units (not the
    /// first block of the unit).
    pub slba: u64,
    /// Number of logical blocks as encoded in the command: NVMe counts from 0.
    pub blocks: u16,
    /// Protection information, 4 bits.
    pub protection: u8,
    /// Force unit access.
    pub force_unit_access: bool,
    /// Limited retry.
    pub limited_retry: bool,
    /// Dataset management field.
    pub dataset: u8,
    /// (Expected) initial logical block reference tag.
    pub reference_tag: u32,
    /// (Expected) logical block application tag mask.
    pub application_mask: u16,
    /// (Expected) logical block application tag.
    pub application_tag: u16,
    /// Submission queue at the target.
    pub target_queue: u8,
}

/// The directive of a Write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Directive {
    /// Directive type, 4 bits.
    pub kind: u8,
    /// Directive-specific value.
    pub specific: u16,
}

/// Packet type, with the fields that only this type carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Type 0, a push from the initiator: the target may fetch the data.
    WriteRequest {
        /// Blocks to write, and their location.
        command: Command,
        /// Directive that belongs to the command.
        directive: Directive,
    },
    /// Type 1, a pull request from the target, for a unit (part) of a command's write data.
    WriteDataRequest,
    /// Type 2, the initiator's response to the pull: the data.
    WriteData,
    /// Type 3, a push from the target: a unit (part of a command's data) has been written.
    WriteCompletion {
        /// Status field of the completion, 15 bits.
        status: u16,
    },
    /// Type 4, a push from the initiator.
    ReadRequest {
        /// Blocks to read.
        command: Command,
    },
    /// Type 5, a push from the target: a unit (part) of a command's read data.
    ReadResponse {
        /// Status field of the completion, 15 bits.
        status: u16,
    },
}

/// The headers of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Fields of every packet.
    pub base: Base,
    /// Fields of this packet type.
    pub operation: Operation,
}
