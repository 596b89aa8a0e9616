//! Notices of a NIC to the users of the program.

use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};

use rnic_host::{Notice, complain};

/// Prints a notice of a NIC on standard error: each type once in a process, for all devices that it opens together,
/// because frequent path changes would otherwise fill the screen.
#[cold]
pub(crate) fn tell(notice: &Notice) {
    static TOLD: Mutex<Told> = Mutex::new(Told(Vec::new()));
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).is_first_of_kind(notice) {
        complain(notice);
    }
}

/// Types of notices that have been printed.
#[derive(Debug)]
struct Told(Vec<Discriminant<Notice>>);

impl Told {
    fn is_first_of_kind(&mut self, notice: &Notice) -> bool {
        let kind = discriminant(notice);
        let is_first = !self.0.contains(&kind);
        if is_first {
            self.0.push(kind);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_notice_is_said_once() {
        let mut told = Told(Vec::new());
        let narrow = |peer: &str| Notice::PathTooNarrow(peer.parse().expect("an address"));
        assert!(told.is_first_of_kind(&narrow("10.0.0.1:4791")));
        assert!(!told.is_first_of_kind(&narrow("10.0.0.2:4791")));
        assert!(told.is_first_of_kind(&Notice::CaptureEnded("No space left on device".to_owned())));
        assert!(!told.is_first_of_kind(&Notice::CaptureEnded("File too large".to_owned())));
    }
}
