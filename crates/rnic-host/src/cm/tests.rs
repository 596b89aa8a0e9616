//! The protocol against itself, and against messages that nobody should send.
