//! Falcon: the content of its packets, for the transport and for the upper layers that it carries.
//!
//! Sources, named as their licence (OWFa 1.0) requires of derived works:
//!
//! - "OCP Falcon Transport Protocol, Rev 0.9" (Open Compute Project, 14 February 2024), section 7: packets;
//! - "OCP RDMA over Falcon Transport, Rev 0.9" (14 February 2024), section 8: [`rdma`];
//! - "OCP NVMe over Falcon Transport, Rev 0.9" (29 February 2024), section 8: [`nvme`];
//! - "PSP Architecture Specification" (Google, 2022) for the encapsulation of a packet: [`psp`]; RFC 4303 and RFC 4106
//!   for the alternative encapsulation: [`esp`];
//! - the SIGCOMM'25 paper for flows (section 4.3) and for timestamps in the initialization vector (section 5.1).
//!
//! A [`Packet`] holds only what is transmitted, so that a simulation that never encodes packets has no more information
//! than one that does. Its flow is not part of it: the flow is in the IPv6 flow label ([`FlowLabel`]), which the
//! receiver gets separately from the packet. [`codec`] encodes and decodes packets, [`header`] has the layouts, [`psp`]
//! the encapsulation.
//!
//! Interpretations chosen where the specification is silent or contradicts itself; the files concerned give details:
//!
//! - *Congestion control information* (7.7.1, 7.8): the tables give the engine 22 bits in BACKs and 24 in NACKs, the
//!   figures 21 and 23. Chosen: the tables; in a BACK, the other two of 24 bits are the window notification.
//! - *Window notification* (7.7.1): bit 0 is for requests, bit 1 for data, but the figures number bits from the
//!   highest. Chosen: bit 0 is the lowest bit of the word.
//! - *Bitmaps* (9.2.1, 6.5): bit n represents packet base + n; one example counts in the opposite direction. Chosen:
//!   the definition.
//! - *Resync* (7.2, 9.2.5): its PSN belongs to the data window, or to "the corresponding" one. Chosen: the window of
//!   the packet that it replaces, [`Body::window`].
//! - *NACK* (7.8, 9.2.2.4): also sent for packets beyond the window, but there is no code for them. Chosen: such
//!   NACKs do not exist; code 5 is rejected as reserved.
//! - *RSN of Push Data* (7.5): that of "the corresponding Pull Request". Chosen: that of its own transaction.
//! - *Pull Data shorter than requested* (8.4.3.2, 11): it is discarded, or it is normal. Chosen: it decodes without
//!   error, because this is not a matter of the format.
//! - *RDMA's atomics* (8.1.3, 8.3.6): the table of opcodes swaps their headers. Chosen: the definitions, in which
//!   requests have AtomicETH.
//! - *RBTH* (8.2): the table has a bit that requests acknowledgement, the figure has none. Chosen: none, because it
//!   would have no position; [`Packet::ack_request`] serves the purpose.
//! - *RMSN of Reads* (8.3.2): one "for every Read or Atomic request packet", but also called the number of a message.
//!   Chosen: one for each packet.
//! - *NVMe Reads* (paper's table 2; 7.1): one pull (paper), or two pushes (specification). Chosen: two pushes, types
//!   4 and 5.
//! - *Timestamps in the vector* (7.7.1, 10.1): their position is not specified. Chosen: the low half, see [`psp`].

pub mod codec;
pub mod esp;
pub mod header;
pub mod nvme;
pub mod psp;
pub mod rdma;

mod acknowledgement;
mod code;
mod error;
mod length;
mod packet;
mod timestamp;
mod window;

pub use crate::rnr::RnrTimer;
pub use acknowledgement::{Acknowledgement, Bitmaps, Nack, OutOfWindow, reflected, reflected_metadata};
pub use code::{CompletionCode, NackCode, PacketType, ResyncCode};
pub use codec::Decoded;
pub use error::{EncodeError, WireError};
pub use length::{Encapsulation, Form, HEADERS_MAX};
pub use packet::{Body, Cid, FlowLabel, Packet, Rsn, Ulp, UlpProtocol, WindowBases};
pub use timestamp::Timestamp;
pub use window::Window;
