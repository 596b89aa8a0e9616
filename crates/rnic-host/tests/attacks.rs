//! Attacks, run for real: by another user of this machine, by whoever can send packets from anywhere, by a peer that
//! lies about itself. Each module is one kind; `docs/security.md` says what each of them shows.
//!
//! What needs another user or forged packets needs root, and is skipped elsewhere, with a printed reason.

mod common;

#[path = "attacks/another_user.rs"]
mod another_user;
#[path = "attacks/fields.rs"]
mod fields;
#[path = "attacks/forged_errors.rs"]
mod forged_errors;
#[path = "attacks/guesses.rs"]
mod guesses;
#[path = "attacks/namespaces.rs"]
mod namespaces;
#[path = "attacks/predictions.rs"]
mod predictions;
#[path = "attacks/rings.rs"]
mod rings;
#[path = "attacks/third_host.rs"]
mod third_host;
