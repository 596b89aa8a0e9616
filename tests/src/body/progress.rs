//! Something must happen now and then while there is anything to do.

use rnic_base::Time;

use super::end::End;
use super::ends::Ends;
use crate::backend::Backend;

/// When something happened last.
pub(super) struct Progress {
    at: Time,
    /// Sum of what queue pairs have counted then.
    fingerprint: u64,
    /// Completions since the last check.
    activity: u64,
}

impl Progress {
    /// Begins to watch.
    pub(super) fn new() -> Self {
        Self { at: Time::ZERO, fingerprint: 0, activity: 0 }
    }

    /// Patience begins anew.
    pub(super) fn restart(&mut self, now: Time) {
        self.at = now;
    }

    /// Takes in that there was a completion.
    pub(super) fn note(&mut self) {
        self.activity += 1;
    }

    /// Looks whether anything has happened; `is_due` when there is anything to do.
    ///
    /// # Errors
    /// When nothing has for too long.
    pub(super) fn check(&mut self, backend: &impl Backend, ends: &Ends, is_due: bool) -> Result<(), String> {
        let now = backend.now();
        if self.activity > 0 || !is_due {
            (self.activity, self.at) = (0, now);
            return Ok(());
        }
        let patience = backend.patience();
        if now.since(self.at) < patience / 8 {
            return Ok(());
        }
        let of = |end: &End| {
            let info = backend.query(end.host, end.qpn);
            info.map_or(0, |info| {
                let seqs = [info.una, info.next, info.expected, info.response_expected];
                seqs.iter().fold(u64::from(info.msn), |sum, seq| sum.wrapping_add(seq.get()))
            })
        };
        let fingerprint = ends.iter().map(of).fold(0, u64::wrapping_add);
        if fingerprint != self.fingerprint {
            (self.fingerprint, self.at) = (fingerprint, now);
        } else if now.since(self.at) > patience {
            return Err(format!("nothing has moved for {patience}"));
        }
        Ok(())
    }
}
