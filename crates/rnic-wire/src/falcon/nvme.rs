//! NVMe over Falcon: the upper layer's headers (OCP NVMe over Falcon Transport, Rev 0.9, section 8).
//!
//! A command of a host (iCMD) is cut into commands of one 4 KiB unit (nCMD), each a transaction or two.

/// Most bytes of data that a packet carries: a unit of 4 KiB and its protection information.
pub const PAYLOAD_MAX: u32 = 4096 + 128;

/// What every packet has: NBTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Base {
    /// The function that issued the command, 24 bits.
    pub initiator_function: u32,
    /// The data of a Write is bad.
    pub data_invalid: bool,
    /// The command was split at the edge of a stripe.
    pub split: bool,
    /// Of a split command: the second stripe.
    pub second_group: bool,
    /// Names the state at the target, 24 bits.
    pub target_tag: u32,
    /// Names the state of this unit at the initiator, 24 bits.
    pub initiator_tag: u32,
    /// The command that this unit belongs to, 24 bits.
    pub command: u32,
    /// Units of the command, less one.
    pub units_less_one: u8,
    /// Which of them this is, from 0.
    pub unit: u8,
}

/// What a Read Request or Write Request asks the target for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Command {
    /// Low 16 bits of the namespace, by the initiator's number.
    pub initiator_nsid: u16,
    /// Low 16 bits of the namespace, by the target's number.
    pub target_nsid: u16,
    /// First logical block, at the target; in each unit's packet that of the command, or of the stripe group.
    pub slba: u64,
    /// Number of logical blocks, as the command has it: NVMe counts from 0.
    pub blocks: u16,
    /// Protection information, 4 bits.
    pub protection: u8,
    /// Force unit access.
    pub force_unit_access: bool,
    /// Limited retry.
    pub limited_retry: bool,
    /// Dataset management.
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
    /// Its type, 4 bits.
    pub kind: u8,
    /// What belongs to the type.
    pub specific: u16,
}

/// The kinds of packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// 0, pushed by the initiator: data may be fetched.
    WriteRequest {
        /// What to write where.
        command: Command,
        /// The directive that comes with the command.
        directive: Directive,
    },
    /// 1, a pull request of the target: asks for a unit's data.
    WriteDataRequest,
    /// 2, the pull's data: from the initiator.
    WriteData,
    /// 3, pushed by the target: a unit is written.
    WriteCompletion {
        /// The completion's status field, 15 bits.
        status: u16,
    },
    /// 4, pushed by the initiator.
    ReadRequest {
        /// What to read.
        command: Command,
    },
    /// 5, pushed by the target: a unit's data.
    ReadResponse {
        /// The completion's status field, 15 bits.
        status: u16,
    },
}

/// The headers of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// What every packet has.
    pub base: Base,
    /// The rest.
    pub operation: Operation,
}
