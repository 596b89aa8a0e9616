//! Initialization vectors: send time and path of a packet, and a serial number that distinguishes it from packets of
//! the same time.
//!
//! Sources: OCP Falcon Transport Protocol, Rev 0.9, sections 9.2.2.2 and 10.1: the vector has the timestamp, in units
//! of 131.072 ns, and the receiver rejects old ones; NIST SP 800-38D, section 8.2.1: a deterministically constructed
//! vector of AES-GCM must never repeat under one key.
//!
//! ```text
//!  salt:       epoch, 15 | label, 7 | serial, 10     defined here: the specification defines 32 bits of
//!  timestamp:  32                                    timestamp, and leaves the other half of the vector open
//! ```
//!
//! Epoch and timestamp together are a time of 47 bits, which wraps after 213 days, no earlier than [`Time`]. With 32
//! bits alone it would wrap after nine minutes, and a connection that was silent for five minutes could not
//! distinguish an old packet from a new one. The low bits of the flow label, which include the flow index, are part
//! of the vector because IPv4 has no flow label, and source ports may be rewritten in transit; they are authenticated
//! with the rest. When more packets are sent in one unit of time than there are serial numbers, those of the next
//! unit are used.

use rnic_base::Time;
use rnic_wire::falcon::psp::Iv;
use rnic_wire::falcon::{FlowLabel, Timestamp};

/// Number of bits of the flow label in a vector.
pub const LABEL_BITS: u32 = 7;

/// Content of an initialization vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vector {
    /// Send time of the packet in units of [`Timestamp::UNIT`] since the start of the sender's clock; 47 bits.
    pub units: u64,
    /// Low [`LABEL_BITS`] of the packet's flow label.
    pub label: u8,
    /// Serial number of the packet among those of the same unit of time, 10 bits.
    pub serial: u16,
}

impl Vector {
    /// Decodes the fields of the initialization vector `iv`.
    #[inline]
    pub const fn read(iv: Iv) -> Self {
        Self {
            units: (iv.salt as u64 >> EPOCH_SHIFT) << 32 | iv.timestamp.value() as u64,
            label: (iv.salt >> SERIAL_BITS) as u8 & LABEL_MAX,
            serial: (iv.salt & SERIAL_MAX) as u16,
        }
    }

    /// Returns the vector as transmitted.
    #[inline]
    pub const fn write(self) -> Iv {
        let epoch = (self.units >> 32) as u32;
        let salt = epoch << EPOCH_SHIFT | (self.label as u32) << SERIAL_BITS | self.serial as u32;
        Iv { salt, timestamp: Timestamp::new(self.units as u32) }
    }
}

/// Generates the vectors of all keys of a sender in sequence. No two are equal while the clock has run for less than
/// 213 days.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Vectors {
    /// Time of the last packet, in units of [`Timestamp::UNIT`].
    units: u64,
    serial: u16,
}

impl Vectors {
    /// Returns the initialization vector (IV) of a packet with flow label `label` sent at `now`.
    ///
    /// If the clock goes backwards, the time part stays at its last value; the serial number keeps vectors unique.
    #[inline]
    pub fn next(&mut self, now: Time, label: FlowLabel) -> Vector {
        let units = now.as_ps() >> Timestamp::UNIT_SHIFT;
        if units > self.units {
            (self.units, self.serial) = (units, 0);
        } else if u32::from(self.serial) < SERIAL_MAX {
            self.serial += 1;
        } else {
            (self.units, self.serial) = (self.units + 1, 0);
        }
        Vector { units: self.units, label: label.get() as u8 & LABEL_MAX, serial: self.serial }
    }
}

const LABEL_MAX: u8 = (1 << LABEL_BITS) - 1;
/// Number of bits of the serial number. They suffice: a thousand packets in 131 ns are more than a memory bus can
/// transfer.
const SERIAL_BITS: u32 = 10;
const SERIAL_MAX: u32 = (1 << SERIAL_BITS) - 1;
const EPOCH_SHIFT: u32 = SERIAL_BITS + LABEL_BITS;

// The bits of the label that are stored include all bits of the flow index.
const _: () = assert!(FlowLabel::INDEX_BITS_MAX <= LABEL_BITS);

// The epoch has as many bits as the range of `Time` needs.
const _: () = assert!(u64::MAX >> Timestamp::UNIT_SHIFT >> 32 < 1 << (32 - EPOCH_SHIFT));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_round_trip() {
        let vector = Vector { units: 0x1234_89ab_cdef, label: 0x55, serial: 0x25a };
        let iv = vector.write();
        // 0x1234 << 17 | 0x55 << 10 | 0x25a
        assert_eq!((iv.salt, iv.timestamp.value()), (0x2469_565a, 0x89ab_cdef));
        assert_eq!(Vector::read(iv), vector);
        let last = Vector { units: (1 << 47) - 1, label: 0x7f, serial: 0x3ff };
        assert_eq!(last.write(), Iv { salt: u32::MAX, timestamp: Timestamp::new(u32::MAX) });
        assert_eq!(Vector::read(last.write()), last);
    }

    #[test]
    fn f42_the_timestamp_is_the_send_time() {
        let now = Time::from_ps(0x7_1234_5678 << Timestamp::UNIT_SHIFT);
        let iv = Vectors::default().next(now, FlowLabel::new(0xa_bc83)).write();
        assert_eq!(iv.timestamp, Timestamp::at(now));
        assert_eq!(Vector::read(iv), Vector { units: 0x7_1234_5678, label: 3, serial: 0 });
    }

    #[test]
    fn vectors_increase_strictly() {
        let mut vectors = Vectors::default();
        let unit = |units: u64| Time::from_ps(units << Timestamp::UNIT_SHIFT);
        let mut last = None;
        // A clock that stops, advances, and goes back.
        for now in [unit(0); 40_000].into_iter().chain([unit(9), unit(9), unit(3), unit(1 << 32), unit(8)]) {
            let Vector { units, serial, .. } = vectors.next(now, FlowLabel::new(7));
            assert!(last < Some((units, serial)), "{last:?} {units} {serial}");
            assert!(units >= now.as_ps() >> Timestamp::UNIT_SHIFT);
            last = Some((units, serial));
        }
        assert_eq!(last, Some((1 << 32, 1)));
    }
}
