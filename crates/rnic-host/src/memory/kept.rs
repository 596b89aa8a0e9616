//! Falcon payload that has arrived out of order: the buffers that are counted by Falcon's resources.

use std::collections::HashMap;

use super::Arrived;
use crate::number::ByNumber;

/// Payload, indexed by the engine's handles. Buffers are reused: in steady state no memory is allocated.
#[derive(Debug, Default)]
pub(crate) struct KeptPayloads {
    /// Never iterated. The number of entries is limited by the engine's resources.
    by_handle: HashMap<u64, Vec<u8>, ByNumber>,
    free: Vec<Vec<u8>>,
}

impl KeptPayloads {
    /// Stores a copy of `payload` under `handle`.
    pub(crate) fn keep(&mut self, handle: u64, payload: Arrived<'_>) {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.resize(payload.len(), 0);
        payload.copy_front(&mut buffer);
        self.by_handle.insert(handle, buffer);
    }

    /// Returns the payload stored as `handle`.
    ///
    /// # Panics
    /// When there is none: the engine uses only handles of payload that is stored.
    pub(crate) fn get(&self, handle: u64) -> &[u8] {
        self.by_handle.get(&handle).expect("payload is kept until it is released")
    }

    /// Removes the payload stored as `handle`.
    pub(crate) fn release(&mut self, handle: u64) {
        if let Some(buffer) = self.by_handle.remove(&handle)
            && self.free.len() < FREE_MAX
        {
            self.free.push(buffer);
        }
    }

    /// Returns the number of stored payloads.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_handle.len()
    }
}

/// Maximum number of buffers kept for reuse: the packets of several windows, a few megabytes.
const FREE_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_kept_until_it_is_released() {
        let mut kept = KeptPayloads::default();
        kept.keep(7, b"seven"[..].into());
        kept.keep(8, b""[..].into());
        assert_eq!((kept.get(7), kept.get(8), kept.len()), (&b"seven"[..], &b""[..], 2));
        kept.release(7);
        kept.release(7);
        kept.keep(9, b"ninety"[..].into());
        assert_eq!((kept.get(9), kept.len(), kept.free.len()), (&b"ninety"[..], 2, 0));
    }
}
