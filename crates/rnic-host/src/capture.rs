//! Capture of the packets that a NIC sends and receives, as they are on the wire, after impairment; each packet is
//! captured separately.
//!
//! A socket does not report most IP fields, so those have default values, and the addresses of a datagram are those
//! of the socket call; with real RoCEv2 peers over IPv4, the identification is the one for which the ICRC was
//! computed. The IPv6 flow label is 0 unless it was set explicitly, although the kernel may have chosen one; Falcon's
//! flow label is in PSP's initialisation vector.

use std::fmt;
use std::io::Write;

use rnic_base::Time;
use rnic_wire::pcap::{Capture, CaptureError};
use rnic_wire::{Addresses, IpFields};

use crate::error::NicError;
use crate::notice::{Notice, Notices};
use crate::stats::NicStats;

/// Destination of a capture.
pub(crate) struct CaptureTo(Capture<Box<dyn Write + Send>>);

impl fmt::Debug for CaptureTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CaptureTo")
    }
}

impl CaptureTo {
    pub(crate) fn new(output: Box<dyn Write + Send>) -> Result<Self, NicError> {
        let error = |error: CaptureError| NicError::System {
            doing: "starting the capture",
            error: std::io::Error::other(error),
        };
        Capture::new(output).map(Self).map_err(error)
    }

    pub(crate) fn into_output(self) -> Box<dyn Write + Send> {
        self.0.into_inner()
    }
}

/// Adds a datagram to the capture, if there is one. If writing fails, the capture ends, and the NIC continues.
#[inline]
pub(crate) fn record(
    capture: &mut Option<CaptureTo>,
    stats: &mut NicStats,
    notices: &mut Notices,
    now: Time,
    addresses: &Addresses,
    fields: IpFields,
    bytes: &[u8],
) {
    let Some(CaptureTo(writer)) = capture else { return };
    match writer.write_with(now, addresses, fields, bytes) {
        Ok(()) => stats.captured += 1,
        Err(error) => {
            *capture = None;
            notices.push(Notice::CaptureEnded(error.to_string()));
        }
    }
}
