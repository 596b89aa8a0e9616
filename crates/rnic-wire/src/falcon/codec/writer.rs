//! Writer that appends headers, and the checks of their fields.

use crate::falcon::header::acknowledgement::{self, Measured};
use crate::falcon::header::{base, refusal};
use crate::falcon::{Acknowledgement, Body, EncodeError, HEADERS_MAX, Nack, Packet, PacketType, UlpProtocol};

/// Returns an error when the value exceeds the width of its field.
#[inline]
pub(super) fn check_range(field: &'static str, value: u32, max: u32) -> Result<(), EncodeError> {
    if value > max { Err(EncodeError::Range { field, value, max }) } else { Ok(()) }
}

/// Appends headers at the front of a buffer that is large enough for any packet.
pub(super) struct Writer<'a> {
    pub(super) packet_type: PacketType,
    pub(super) out: &'a mut [u8; HEADERS_MAX],
    pub(super) len: usize,
}

impl Writer<'_> {
    /// Returns space for the next header of `N` bytes.
    #[inline]
    pub(super) fn next<const N: usize>(&mut self) -> &mut [u8; N] {
        let start = self.len;
        self.len += N;
        self.out[start..].first_chunk_mut().expect("HEADERS_MAX holds every packet's headers")
    }

    /// Returns the error for a field that is not allowed.
    #[cold]
    pub(super) fn unexpected(&self, field: &'static str) -> EncodeError {
        EncodeError::Unexpected { packet_type: self.packet_type, field }
    }

    /// Returns the error for a missing field.
    #[cold]
    pub(super) fn missing(&self, field: &'static str) -> EncodeError {
        EncodeError::Missing { packet_type: self.packet_type, field }
    }

    /// Writes the words that every packet begins with. In an acknowledgement, the positions of function, upper layer
    /// and request are empty.
    #[inline]
    pub(super) fn start(&mut self, packet: &Packet) -> Result<(), EncodeError> {
        if matches!(packet.body, Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_)) {
            if packet.function != 0 {
                return Err(self.unexpected("a function"));
            }
            if packet.protocol != UlpProtocol::None {
                return Err(self.unexpected("an upper layer"));
            }
            if packet.ack_request {
                return Err(self.unexpected("a request for acknowledgement"));
            }
        } else {
            check_range("the function number", packet.function, base::FUNCTION_MAX)?;
            if packet.protocol == UlpProtocol::None {
                return Err(self.missing("an upper layer"));
            }
        }
        base::emit_start(packet, self.packet_type, self.next());
        Ok(())
    }

    #[inline]
    fn measured(&mut self, measured: Measured, last: u32) -> Result<(), EncodeError> {
        check_range("the hop count", measured.hops.into(), acknowledgement::HOPS_MAX.into())?;
        check_range("the buffer level", measured.rx_level.into(), acknowledgement::LEVEL_MAX.into())?;
        check_range("the ECN mark count", measured.ecn.into(), acknowledgement::ECN_MAX.into())?;
        acknowledgement::emit(measured, last, self.next());
        Ok(())
    }

    #[inline]
    pub(super) fn acknowledgement(&mut self, ack: &Acknowledgement) -> Result<(), EncodeError> {
        check_range("the adaptive engine's metadata", ack.metadata, acknowledgement::METADATA_MAX)?;
        let Acknowledgement { t1, t2, hops, rx_level, ecn, .. } = *ack;
        self.measured(Measured { t1, t2, hops, rx_level, ecn }, acknowledgement::last_word(ack))
    }

    pub(super) fn nack(&mut self, nack: &Nack) -> Result<(), EncodeError> {
        check_range("the adaptive engine's metadata", nack.metadata, acknowledgement::NACK_METADATA_MAX)?;
        let Nack { t1, t2, hops, rx_level, ecn, metadata, psn, window, code } = *nack;
        self.measured(Measured { t1, t2, hops, rx_level, ecn }, metadata)?;
        refusal::emit(psn, window, code, self.next());
        Ok(())
    }
}
