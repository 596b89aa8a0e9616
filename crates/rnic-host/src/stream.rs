//! Streams of bytes over reliable connections (Tonic, "Enabling Programmable Transport Protocols in High-Speed NICs",
//! section 5 and appendix D): the driver of `rnic-stream`, which decides which bytes become which segments, and when.
//!
//! A stream is one queue pair of the transport that its two ends have agreed on. Every segment is a Send with immediate
//! data, which state the kind of the message and how many messages the sending end itself can receive
//! ([`message`]). [`Streams`] makes, serves and closes the streams of one NIC; the program drives the NIC.
//!
//! ```text
//!   write -> ring in registered memory -> Sender (rnic-stream) -> Sends, every few of them signaled
//!   read  <- receive slots, each posted again when it has been read, which the next message to the peer announces
//! ```
//!
//! A NIC has a limited number of flow ids ([`StreamConfig::flows`]), as Tonic's template has. A stream for which none
//! is left uses the profile [`SOFTWARE_TRANSPORT`], and [`crate::NicStats`] counts it.
//!
//! **Errors.** Everything that a peer sends is checked. After the first violation the stream ends with one error
//! ([`Broken`]), and the connection is closed, so that the peer notices.

mod error;
mod limits;
mod message;
mod offer;
mod receiver;
mod settings;
mod single;
mod streams;

pub use error::{Broken, StreamError};
pub use offer::Offer;
pub use settings::{SOFTWARE_TRANSPORT, StreamConfig};
pub use streams::{StreamEvent, StreamId, Streams};
