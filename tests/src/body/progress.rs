//! Detects a stuck run: there must be progress at intervals while there is work to do.

use rnic_base::Time;

use super::end::End;
use super::ends::Ends;
use crate::backend::Backend;

/// Time and state of the last progress.
pub(super) struct Progress {
    at: Time,
    /// Sum of the sequence counters of the queue pairs at that time.
    fingerprint: u64,
    /// Completions since the last check.
    activity: u64,
}

impl Progress {
    /// Starts to watch.
    pub(super) fn new() -> Self {
        Self { at: Time::ZERO, fingerprint: 0, activity: 0 }
    }

    /// Restarts the waiting time at `now`.
    pub(super) fn restart(&mut self, now: Time) {
        self.at = now;
    }

    /// Records a completion.
    pub(super) fn note(&mut self) {
        self.activity += 1;
    }

    /// Checks whether there has been progress; `is_due` when there is work to do.
    ///
    /// # Errors
    /// When there was none for too long.
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
