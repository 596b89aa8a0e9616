//! Prints notices of a NIC for the users of the program.

use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};

use rnic_host::{Notice, print_message};

/// Prints a notice of a NIC to standard error. Each type is printed once in a process, regardless of the number of
/// devices that it opens, because frequent path changes would otherwise cause a flood of messages.
#[cold]
pub(crate) fn print(notice: &Notice) {
    static PRINTED: Mutex<PrintedNotices> = Mutex::new(PrintedNotices(Vec::new()));
    if PRINTED.lock().unwrap_or_else(PoisonError::into_inner).is_first_of_kind(notice) {
        print_message(notice);
    }
}

/// Types of notices that have been printed.
#[derive(Debug)]
struct PrintedNotices(Vec<Discriminant<Notice>>);

impl PrintedNotices {
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
    fn each_kind_of_notice_is_printed_once() {
        let mut printed = PrintedNotices(Vec::new());
        let small_mtu = |peer: &str| Notice::PathMtuTooSmall(peer.parse().expect("an address"));
        assert!(printed.is_first_of_kind(&small_mtu("10.0.0.1:4791")));
        assert!(!printed.is_first_of_kind(&small_mtu("10.0.0.2:4791")));
        assert!(printed.is_first_of_kind(&Notice::CaptureEnded("No space left on device".to_owned())));
        assert!(!printed.is_first_of_kind(&Notice::CaptureEnded("File too large".to_owned())));
    }
}
