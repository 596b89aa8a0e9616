//! Tonic's mechanisms as an observer of the template sees them.

mod credit;
mod hostile;
mod lazy;
mod network;
mod programs;
mod template;
mod transports;
