//! Falcon: what its packets say, for the transport and for the upper layers that it carries.
//!
//! Sources, named as their licence (OWFa 1.0) asks of works that derive from them:
//!
//! - "OCP Falcon Transport Protocol, Rev 0.9" (Open Compute Project, 14 February 2024), section 7: packets;
//! - "OCP RDMA over Falcon Transport, Rev 0.9" (14 February 2024), section 8: [`rdma`];
//! - "OCP NVMe over Falcon Transport, Rev 0.9" (29 February 2024), section 8: [`nvme`];
//! - "PSP Architecture Specification" (Google, 2022) for what lies around a packet: [`psp`];
//! - the SIGCOMM'25 paper for flows (section 4.3) and for timestamps in the initialization vector (section 5.1).
//!
//! A [`Packet`] holds what travels, no more, so that a simulation that never encodes one cannot know more than one that
//! does. Its flow is not in it: that is in the IPv6 flow label ([`FlowLabel`]), and reaches the receiver beside the
//! packet.
//!
//! Where the specification disagrees with itself, this is the side taken (each again in the file that it concerns):
//!
//! | where | what it says | here |
//! |---|---|---|
//! | congestion control information (7.7.1, 7.8) | 22 bits for the engine in the table of BACKs, 24 in that of NACKs; 21 and 23 in the figures | the tables: in a BACK the other two are the window notification |
//! | receiver notification (7.7.1) | bit 0 requests, bit 1 data; figures number bits from the other end | bit 0 is the last of the word |
//! | bitmaps (9.2.1, 6.5) | bit n is base + n; one example counts the other way | the definition |
//! | Resync (7.2, 9.2.5) | a data window PSN; "the corresponding bitmap" | the window of the packet that it stands for, [`Body::window`] |
//! | NACK (7.8, 9.2.2.4) | also for packets beyond the window; no code for them | no such NACK: code 5 is refused as reserved |
//! | RSN of Push Data (7.5) | that of "the corresponding Pull Request" | its own transaction's |
//! | Pull Data shorter than asked (8.4.3.2, 11) | discarded; normal | not the format's business: it decodes |
//! | RDMA atomics (8.1.3, 8.3.6) | headers swapped in the table of opcodes | the definitions: requests carry AtomicETH |
//! | RBTH (8.2) | a bit that asks for acknowledgement in the table, none in the figure | none: it would have no place; [`Packet::ack_request`] does it |

pub mod nvme;
pub mod psp;
pub mod rdma;

mod acknowledgement;
mod code;
mod packet;
mod timestamp;

pub use acknowledgement::{Acknowledgement, Bitmaps, Nack, OutOfWindow};
pub use code::{CompletionCode, NackCode, ResyncCode, RnrTimeout};
pub use packet::{Body, Cid, FlowLabel, Packet, PacketType, Rsn, Ulp, UlpProtocol, Window, WindowBases};
pub use timestamp::Timestamp;
