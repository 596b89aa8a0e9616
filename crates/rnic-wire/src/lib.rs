//! Wire formats: packet headers as checked views and as plain representations.
//!
//! ```text
//! CRATE    rnic-wire (amber: change a header together with its golden vector and property test)
//! Purpose  encoding and decoding of the headers of every supported protocol; checksums; captures
//! May use  rnic-base
//! Must not depend on queue pairs, sockets or a clock; panic on any input
//! Add here a header, an opcode, a protocol's codec (one file each)
//! Not here reactions to a packet (rnic-engine)
//! Tested by golden byte vectors, round-trip properties, a fuzz of every parser (tests/parsers), tshark on captures
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]

pub mod cm;
pub mod codec;
pub mod credit;
pub mod error;
pub mod falcon;
pub mod gsi;
pub mod header;
pub mod hello;
pub mod icrc;
pub mod net;
pub mod opcode;
pub mod packet;
pub mod pcap;
pub mod rnr;
pub mod scr;

mod bytes;
mod length;
mod vendor;

pub use codec::{Decoded, HEADERS_MAX};
pub use error::{EncodeError, WireError};
pub use icrc::{Icrc, IcrcPrefix};
pub use length::{DATA_HEADERS_MAX, ICRC_LEN};
pub use net::{AddressError, Addresses, IpFields, IpVersion};
pub use opcode::Opcode;
pub use packet::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, LossCause, LossReportFields, NakCode, PackedPsn, Packet,
    PacketFlags, PlacementOp, Position, Qpn, Reth, SendPlacement, SendTail, Sink, Syndrome, WqeSn,
};
pub use rnr::RnrTimer;
