//! Computations that both ends must perform identically: units, and the contents of their packets.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, sections 6 and 8. The assignment of units to the parts of a split
//! command is the project's choice; see the crate documentation.

use rnic_falcon::transaction::{Kind, PullResponse, Request, Submission};
use rnic_wire::falcon::Ulp;
use rnic_wire::falcon::nvme::{Base, Header, Operation};

use crate::peer::status;

/// Maximum size of a unit, the part of a command's data that one transaction moves, in bytes.
pub const UNIT: u32 = 4096;

/// Maximum number of units (4 KiB parts) of a command: the field that contains their number minus one has 8 bits.
pub const UNITS_MAX: u32 = 256;

/// Returns the maximum number of blocks of a unit (4 KiB part of a command's data).
pub(crate) const fn blocks_of_unit(block_log2: u32) -> u32 {
    UNIT >> block_log2
}

/// Returns the number of units (4 KiB parts) into which `blocks` blocks of a command are divided.
pub(crate) const fn units_of(blocks: u32, block_log2: u32) -> u32 {
    blocks.div_ceil(blocks_of_unit(block_log2))
}

/// Returns a transaction with these headers; `moved` is the number of payload bytes that it moves, in either
/// direction.
pub(crate) const fn submission(kind: Kind, base: Base, operation: Operation, moved: u32, tag: u64) -> Submission {
    let ulp = Ulp::Nvme(Header { base, operation });
    // The length of a Pull includes the headers of its response, not its own.
    let (length, payload_len) = match kind {
        Kind::Push => (ulp.request_len(moved), moved),
        Kind::Pull => (response_to(base, operation).request_len(moved), 0),
    };
    Submission { kind, length: length as u16, payload_len, ulp: Some(ulp), tag, continues: false }
}

/// Returns the headers of the response to a Pull.
const fn response_to(base: Base, operation: Operation) -> Ulp {
    match operation {
        Operation::ReadRequest { .. } => read_data(base, status::SUCCESS),
        _ => write_data(base),
    }
}

const fn read_data(base: Base, status: u16) -> Ulp {
    Ulp::Nvme(Header { base, operation: Operation::ReadResponse { status } })
}

/// Returns the response to a Read mapped to a Pull; `payload_len` is 0 when the Read failed.
pub(crate) const fn read_response(base: Base, status: u16, payload_len: u32) -> PullResponse {
    let ulp = read_data(base, status);
    PullResponse { payload_len, length: ulp.request_len(payload_len), ulp }
}

const fn write_data(base: Base) -> Ulp {
    Ulp::Nvme(Header { base, operation: Operation::WriteData })
}

/// Returns the response that carries a unit (4 KiB part) of a Write's data.
pub(crate) const fn data(base: Base, payload_len: u32) -> PullResponse {
    let ulp = write_data(base);
    PullResponse { payload_len, length: ulp.request_len(payload_len), ulp }
}

/// Returns the response to an invalid Pull: headers only, which mark the data as invalid. They are sent whatever
/// length was requested, but the accounted length does not exceed the requested one.
pub(crate) fn invalid_data_response(base: Base, requested_len: u16) -> PullResponse {
    without_data(write_data(Base { data_invalid: true, ..base }), requested_len)
}

/// Returns the response to an invalid Read mapped to a Pull: a status that indicates it.
pub(crate) fn invalid_read_response(base: Base, requested_len: u16) -> PullResponse {
    without_data(read_data(base, status::INVALID_FIELD), requested_len)
}

fn without_data(ulp: Ulp, requested_len: u16) -> PullResponse {
    PullResponse { payload_len: 0, length: ulp.request_len(0).min(u32::from(requested_len)), ulp }
}

/// Returns the response of a queue pair without NVMe support to the Pull `request` of a peer that assumes NVMe; `None`
/// when the Pull is not NVMe's. A Push is completed in error with [`crate::PeerError::NoNvme`].
pub fn no_nvme_response(request: &Request) -> Option<PullResponse> {
    let Ulp::Nvme(Header { base, operation }) = request.ulp else { return None };
    let base = Base { data_invalid: true, ..base };
    Some(match operation {
        Operation::ReadRequest { .. } => invalid_read_response(base, request.length),
        _ => invalid_data_response(base, request.length),
    })
}
