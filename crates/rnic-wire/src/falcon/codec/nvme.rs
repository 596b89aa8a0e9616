//! NVMe headers: the table of packet types (OCP NVMe over Falcon Transport, Rev 0.9, section 8.1.3).

use super::Decoded;
use super::frame::{Frame, Tail};
use super::writer::{Writer, check_range};
use crate::falcon::header::nbth::{self, NbthView};
use crate::falcon::header::nvme_command::{self, CommandView};
use crate::falcon::header::nvme_status;
use crate::falcon::nvme::{Base, Command, Directive, Header, Operation};
use crate::falcon::{EncodeError, PacketType, Ulp, WireError};

/// Reads headers and payload.
pub(super) fn read(frame: &Frame<'_>, bytes: &[u8]) -> Result<Decoded, WireError> {
    let (base, rest) = NbthView::split(bytes)?;
    if base.version() != nbth::VERSION {
        return Err(WireError::UlpVersion);
    }
    let (operation, rest) = match base.packet_type() {
        WRITE_REQUEST => {
            let (view, rest) = CommandView::split(rest)?;
            (Operation::WriteRequest { command: view.command(), directive: view.directive() }, rest)
        }
        WRITE_DATA_REQUEST => (Operation::WriteDataRequest, rest),
        WRITE_DATA => (Operation::WriteData, rest),
        WRITE_COMPLETION => {
            let (status, rest) = nvme_status::split_status(rest)?;
            (Operation::WriteCompletion { status }, rest)
        }
        READ_REQUEST => {
            let (view, rest) = CommandView::split(rest)?;
            (Operation::ReadRequest { command: view.command() }, rest)
        }
        READ_RESPONSE => {
            let (status, rest) = nvme_status::split_status(rest)?;
            (Operation::ReadResponse { status }, rest)
        }
        _ => return Err(WireError::Opcode),
    };
    let ulp = Ulp::Nvme(Header { base: base.to_repr(), operation });
    let rest_len = frame.bytes_from(rest);
    let tail = Tail { rest_len, payload_len: rest_len };
    match (operation, frame.start.packet_type) {
        (Operation::WriteDataRequest, _) | (Operation::ReadRequest { .. }, PacketType::PullRequest) => {
            frame.pull_request(ulp, tail)
        }
        (Operation::WriteData, _) | (Operation::ReadResponse { .. }, PacketType::PullData) => {
            frame.pull_data(ulp, tail)
        }
        _ => frame.push_data(ulp, tail),
    }
}

/// Writes the headers.
pub(super) fn write(writer: &mut Writer<'_>, header: &Header) -> Result<(), EncodeError> {
    let base = &header.base;
    check_base(base)?;
    let mut emit_base = |packet_type: u8| nbth::emit(base, packet_type, writer.next());
    match &header.operation {
        Operation::WriteRequest { command, directive } => {
            emit_base(WRITE_REQUEST);
            write_command(writer, command, directive)
        }
        Operation::WriteDataRequest => {
            emit_base(WRITE_DATA_REQUEST);
            Ok(())
        }
        Operation::WriteData => {
            emit_base(WRITE_DATA);
            Ok(())
        }
        Operation::WriteCompletion { status } => {
            emit_base(WRITE_COMPLETION);
            write_status(writer, *status)
        }
        Operation::ReadRequest { command } => {
            emit_base(READ_REQUEST);
            write_command(writer, command, &Directive::default())
        }
        Operation::ReadResponse { status } => {
            emit_base(READ_RESPONSE);
            write_status(writer, *status)
        }
    }
}

fn check_base(base: &Base) -> Result<(), EncodeError> {
    check_range("the initiator function", base.initiator_function, nbth::TAG_MAX)?;
    check_range("the target tag", base.target_tag, nbth::TAG_MAX)?;
    check_range("the initiator tag", base.initiator_tag, nbth::TAG_MAX)?;
    check_range("the command identifier", base.command, nbth::TAG_MAX)
}

fn write_command(writer: &mut Writer<'_>, command: &Command, directive: &Directive) -> Result<(), EncodeError> {
    check_range("the protection information", command.protection.into(), nvme_command::NIBBLE_MAX.into())?;
    check_range("the directive type", directive.kind.into(), nvme_command::NIBBLE_MAX.into())?;
    nvme_command::emit(command, directive, writer.next());
    Ok(())
}

fn write_status(writer: &mut Writer<'_>, status: u16) -> Result<(), EncodeError> {
    check_range("the status field", status.into(), nvme_status::STATUS_MAX.into())?;
    nvme_status::emit(status, writer.next());
    Ok(())
}

const WRITE_REQUEST: u8 = 0;
const WRITE_DATA_REQUEST: u8 = 1;
const WRITE_DATA: u8 = 2;
const WRITE_COMPLETION: u8 = 3;
const READ_REQUEST: u8 = 4;
const READ_RESPONSE: u8 = 5;
