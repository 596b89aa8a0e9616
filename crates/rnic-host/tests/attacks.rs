//! Attacks carried out for real: by another user of this machine, by hosts anywhere that can send packets, and by a
//! peer that gives false information about itself. Each module covers one kind; `docs/security.md` says what each of
//! them shows.
//!
//! Tests that need another user or forged packets need root; otherwise they are skipped and print the reason.

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
