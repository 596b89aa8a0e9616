//! Detects a stuck run: there must be progress at intervals while there is work to do.

use rnic_base::Time;

use super::end::End;
use super::ends::Ends;
use crate::backend::Backend;

/// Time and state of the last progress.
pub(super) struct Progress {
    last_progress_at: Time,
    /// Sum of the sequence counters of the queue pairs at that time.
    fingerprint: u64,
    /// Completions since the last check.
    completions: u64,
}

impl Progress {
    /// Starts to watch.
    pub(super) fn new() -> Self {
        Self { last_progress_at: Time::ZERO, fingerprint: 0, completions: 0 }
    }

    /// Restarts the waiting time at `now`.
    pub(super) fn restart(&mut self, now: Time) {
        self.last_progress_at = now;
    }

    /// Records a completion.
    pub(super) fn note(&mut self) {
        self.completions += 1;
    }

    /// Checks whether there has been progress; `has_work` when there is work to do.
    ///
    /// # Errors
    /// When there was none for too long.
    pub(super) fn check(&mut self, backend: &impl Backend, ends: &Ends, has_work: bool) -> Result<(), String> {
        let now = backend.now();
        if self.completions > 0 || !has_work {
            (self.completions, self.last_progress_at) = (0, now);
            return Ok(());
        }
        let no_progress_time_max = backend.no_progress_time_max();
        if now.since(self.last_progress_at) < no_progress_time_max / 8 {
            return Ok(());
        }
        let sequence_sum = |end: &End| {
            let info = backend.query(end.host, end.qpn);
            info.map_or(0, |info| {
                let seqs = [info.una, info.next, info.expected, info.response_expected];
                seqs.iter().fold(u64::from(info.msn), |sum, seq| sum.wrapping_add(seq.get()))
            })
        };
        let fingerprint = ends.iter().map(sequence_sum).fold(0, u64::wrapping_add);
        if fingerprint != self.fingerprint {
            (self.fingerprint, self.last_progress_at) = (fingerprint, now);
        } else if now.since(self.last_progress_at) > no_progress_time_max {
            return Err(format!("nothing has moved for {no_progress_time_max}"));
        }
        Ok(())
    }
}
