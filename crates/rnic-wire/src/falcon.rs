//! Falcon: what its packets say, for the transport and for the upper layers that it carries.
//!
//! Sources, named as their licence (OWFa 1.0) asks of works that derive from them:
//!
//! - "OCP Falcon Transport Protocol, Rev 0.9" (Open Compute Project, 14 February 2024), section 7: packets;
//! - "OCP RDMA over Falcon Transport, Rev 0.9" (14 February 2024), section 8: [`rdma`];
//! - "OCP NVMe over Falcon Transport, Rev 0.9" (29 February 2024), section 8: [`nvme`];
//! - "PSP Architecture Specification" (Google, 2022) for what lies around a packet: [`psp`]; RFC 4303 and RFC 4106 for
//!   what may lie there instead: [`esp`];
//! - the SIGCOMM'25 paper for flows (section 4.3) and for timestamps in the initialization vector (section 5.1).
//!
//! A [`Packet`] holds what travels, no more, so that a simulation that never encodes one cannot know more than one that
//! does. Its flow is not in it: that is in the IPv6 flow label ([`FlowLabel`]), and reaches the receiver beside the
//! packet. [`codec`] has packets to bytes and back, [`header`] the layouts, [`psp`] what lies around a packet.
//!
//! Where the specification disagrees with itself or is silent, this is the side taken; the files concerned say more:
//!
//! - *Congestion control information* (7.7.1, 7.8): 22 bits for the engine in the table of BACKs, 24 in that of
//!   NACKs, 21 and 23 in the figures. The tables: in a BACK the other two of 24 are the window notification.
//! - *Window notification* (7.7.1): bit 0 is for requests, bit 1 for data; figures number bits from the other end.
//!   Bit 0 is the last of the word.
//! - *Bitmaps* (9.2.1, 6.5): bit n is base + n; one example counts the other way. The definition.
//! - *Resync* (7.2, 9.2.5): its PSN is of the data window, or of "the corresponding" one. The window of the packet
//!   that it stands for, [`Body::window`].
//! - *NACK* (7.8, 9.2.2.4): also for packets beyond the window, but no code for them. There is none here: code 5 is
//!   refused as reserved.
//! - *RSN of Push Data* (7.5): that of "the corresponding Pull Request". Its own transaction's.
//! - *Pull Data shorter than asked for* (8.4.3.2, 11): discarded, or normal. Not the format's business: it decodes.
//! - *RDMA's atomics* (8.1.3, 8.3.6): headers swapped in the table of opcodes. The definitions: requests have
//!   AtomicETH.
//! - *RBTH* (8.2): a bit that asks for acknowledgement in the table, none in the figure. None: it would have no place;
//!   [`Packet::ack_request`] does it.
//! - *RMSN of Reads* (8.3.2): one "for every Read or Atomic request packet", and called a message's. A packet's.
//! - *NVMe Reads* (paper's table 2; 7.1): a pull, or two pushes. The specification's two pushes: types 4 and 5.
//! - *Timestamps in the vector* (7.7.1, 10.1): no place given. The low half, see [`psp`].

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
pub use acknowledgement::{Acknowledgement, Bitmaps, Nack, OutOfWindow, reflected, reflection};
pub use code::{CompletionCode, NackCode, PacketType, ResyncCode};
pub use codec::Decoded;
pub use error::{EncodeError, WireError};
pub use length::{Encapsulation, Form, HEADERS_MAX};
pub use packet::{Body, Cid, FlowLabel, Packet, Rsn, Ulp, UlpProtocol, WindowBases};
pub use timestamp::Timestamp;
pub use window::Window;
