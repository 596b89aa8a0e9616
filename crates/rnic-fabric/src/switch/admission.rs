//! Decides whether a switch has buffer space for a packet, and whether its sender must be paused.
//!
//! Two models (an experiment that reproduces a figure may use only the model that the paper used):
//!
//! * *input-queued* (IRN section 4.1): every input port has a separate buffer. With PFC the neighbour at that port is
//!   paused when the buffer exceeds the threshold, and resumed at two full packets below it.
//! * *shared-buffer*: one buffer for all ports; its use by each queue is limited by a dynamic threshold
//!   `alpha * free` (Choudhury and Hahne, IEEE/ACM ToN 1998). Without PFC the threshold applies to the queue of the
//!   output, and packets beyond it are dropped. With PFC the threshold applies to the bytes of the input: beyond it
//!   the neighbour is paused, and packets that still arrive are stored in a headroom that is reserved for each port.
//!
//! A packet occupies its buffer from the arrival of its last bit until its transmission starts; a packet that can be
//! sent immediately occupies no buffer.

use rnic_base::prefetch_at;

use super::{BufferPlan, SwitchPlan};

/// The buffers of a switch.
#[derive(Debug)]
pub(super) struct Admission {
    model: Model,
    pfc: Option<Pfc>,
    inputs: Vec<Input>,
}

#[derive(Debug)]
enum Model {
    PerInput { capacity: u64 },
    Shared { capacity: u64, used: u64, alpha: Alpha },
}

/// Limit of a queue as a multiple of the free buffer, as a fraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alpha {
    /// Numerator.
    pub numerator: u64,
    /// Denominator.
    pub denominator: u64,
}

impl Alpha {
    fn limit(self, free: u64) -> u64 {
        free.saturating_mul(self.numerator) / self.denominator
    }
}

/// Bytes stored for an input port.
#[derive(Clone, Copy, Debug, Default)]
struct Input {
    bytes: u64,
    /// Number of the stored bytes of the port that are accounted to the headroom (shared-buffer model).
    in_headroom: u64,
    /// True while the neighbour is paused.
    paused: bool,
}

/// Thresholds for pausing neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pfc {
    /// Input-queued: number of bytes above which the neighbour is paused. Unused with a shared buffer, where the
    /// threshold is dynamic.
    pub(super) threshold: u64,
    /// Number of bytes below the threshold at which the neighbour is resumed.
    pub(super) hysteresis: u64,
    /// Bytes reserved for each port beyond the threshold.
    pub(super) headroom: u64,
}

/// The signal to send to the neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// No flow control signal.
    None,
    /// Pause the sender (PFC).
    Pause,
    /// Let the sender resume (PFC).
    Resume,
}

impl Admission {
    /// Creates the buffers of a switch with `ports` ports.
    pub(super) fn of(plan: &SwitchPlan, ports: usize) -> Self {
        let pfc =
            plan.pfc.map(|pfc| Pfc { threshold: pfc.threshold, hysteresis: pfc.hysteresis, headroom: pfc.headroom });
        match plan.buffer {
            BufferPlan::InputQueued { per_port } => Self::per_input(ports, per_port, pfc),
            BufferPlan::Shared { total, alpha } => Self::shared(ports, total, alpha, pfc),
        }
    }

    pub(super) fn per_input(ports: usize, capacity: u64, pfc: Option<Pfc>) -> Self {
        Self { model: Model::PerInput { capacity }, pfc, inputs: vec![Input::default(); ports] }
    }

    /// Prefetches the state of `input`.
    #[inline]
    pub(super) fn prefetch(&self, input: usize) {
        prefetch_at(&self.inputs, input);
    }

    /// Creates the buffers of the shared-buffer model; `capacity` includes the headroom of all ports.
    pub(super) fn shared(ports: usize, capacity: u64, alpha: Alpha, pfc: Option<Pfc>) -> Self {
        let reserved = pfc.map_or(0, |pfc| pfc.headroom * ports as u64);
        let model = Model::Shared { capacity: capacity.saturating_sub(reserved), used: 0, alpha };
        Self { model, pfc, inputs: vec![Input::default(); ports] }
    }

    /// Stores `len` bytes from `input` for an output that has `output_bytes` waiting; returns false when there is no
    /// space.
    #[inline]
    pub(super) fn take(&mut self, input: usize, len: u64, output_bytes: u64) -> bool {
        let state = &mut self.inputs[input];
        match &mut self.model {
            Model::PerInput { capacity } => {
                if state.bytes + len > *capacity {
                    return false;
                }
            }
            Model::Shared { capacity, used, alpha } => {
                let free = *capacity - *used;
                let Some(pfc) = &self.pfc else {
                    if len > free || output_bytes + len > alpha.limit(free) {
                        return false;
                    }
                    *used += len;
                    state.bytes += len;
                    return true;
                };
                if !state.paused && len <= free {
                    *used += len;
                } else if state.in_headroom + len <= pfc.headroom {
                    state.in_headroom += len;
                } else {
                    return false;
                }
            }
        }
        state.bytes += len;
        true
    }

    /// Returns whether the neighbour at `input` must be paused, after bytes from `input` were stored or dropped.
    #[inline]
    pub(super) fn pause_signal(&mut self, input: usize) -> Signal {
        let Some(pfc) = &self.pfc else { return Signal::None };
        let threshold = self.model.threshold(pfc);
        let state = &mut self.inputs[input];
        if state.paused || state.bytes <= threshold {
            return Signal::None;
        }
        state.paused = true;
        Signal::Pause
    }

    /// Frees `len` bytes of `input`; returns whether its neighbour may resume.
    #[inline]
    pub(super) fn release(&mut self, input: usize, len: u64) -> Signal {
        let state = &mut self.inputs[input];
        state.bytes -= len;
        if let Model::Shared { used, .. } = &mut self.model {
            let from_headroom = len.min(state.in_headroom);
            state.in_headroom -= from_headroom;
            *used -= len - from_headroom;
        }
        let Some(pfc) = &self.pfc else { return Signal::None };
        if !state.paused {
            return Signal::None;
        }
        let threshold = self.model.threshold(pfc);
        if state.in_headroom > 0 || state.bytes > threshold.saturating_sub(pfc.hysteresis) {
            return Signal::None;
        }
        state.paused = false;
        Signal::Resume
    }

    /// Returns the number of bytes stored for `input`.
    pub(super) fn held(&self, input: usize) -> u64 {
        self.inputs[input].bytes
    }

    /// Returns whether the neighbour at `input` is paused.
    pub(super) fn is_paused(&self, input: usize) -> bool {
        self.inputs[input].paused
    }
}

impl Model {
    #[inline]
    fn threshold(&self, pfc: &Pfc) -> u64 {
        match self {
            Self::PerInput { .. } => pfc.threshold,
            Self::Shared { capacity, used, alpha } => alpha.limit(*capacity - *used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Alpha = Alpha { numerator: 1, denominator: 2 };

    #[test]
    fn an_input_has_its_own_buffer() {
        let mut buffers = Admission::per_input(2, 1_000, None);
        assert!(buffers.take(0, 600, 0));
        assert!(!buffers.take(0, 401, 0));
        assert!(buffers.take(0, 400, 0) && buffers.take(1, 1_000, 5_000));
        assert_eq!(buffers.pause_signal(0), Signal::None, "a pause without PFC");
        assert_eq!(buffers.release(0, 600), Signal::None);
        assert!(buffers.take(0, 600, 0));
    }

    #[test]
    fn pause_above_the_threshold_and_resume_below_the_hysteresis() {
        let pfc = Pfc { threshold: 500, hysteresis: 200, headroom: 0 };
        let mut buffers = Admission::per_input(1, 1_000, Some(pfc));
        let mut take = |len| (buffers.take(0, len, 0), buffers.pause_signal(0));
        assert_eq!(take(500), (true, Signal::None));
        assert_eq!(take(1), (true, Signal::Pause));
        assert_eq!(take(400), (true, Signal::None), "the pause was signalled twice");
        assert_eq!(take(100), (false, Signal::None));
        assert_eq!(buffers.release(0, 600), Signal::None, "301 of at most 300 bytes left");
        assert_eq!(buffers.release(0, 1), Signal::Resume);
        assert_eq!(buffers.release(0, 300), Signal::None);
    }

    #[test]
    fn a_dynamic_threshold_shrinks_as_the_buffer_fills() {
        let mut buffers = Admission::shared(2, 1_000, HALF, None);
        assert!(buffers.take(0, 100, 0), "500 allowed");
        assert!(buffers.take(0, 300, 100), "450 allowed");
        assert!(!buffers.take(0, 1, 400), "300 allowed, 400 stored");
        assert!(buffers.take(1, 300, 0), "300 allowed for another queue");
        assert!(!buffers.take(1, 1, 300), "150 allowed");
        buffers.release(0, 300);
        buffers.release(1, 200);
        assert!(buffers.take(0, 200, 100), "400 allowed again");
    }

    #[test]
    fn with_pfc_the_excess_goes_to_the_headroom() {
        let pfc = Pfc { threshold: 0, hysteresis: 100, headroom: 250 };
        let mut buffers = Admission::shared(2, 1_500, HALF, Some(pfc));
        assert!(buffers.take(0, 300, 0));
        assert_eq!(buffers.pause_signal(0), Signal::None, "350 of 700 free");
        assert!(buffers.take(0, 100, 0));
        assert_eq!(buffers.pause_signal(0), Signal::Pause, "400 held, 300 allowed");
        assert!(buffers.take(0, 250, 0), "the headroom has 250 bytes");
        assert!(!buffers.take(0, 1, 0), "the headroom is full");
        assert_eq!((buffers.release(0, 250), buffers.held(0)), (Signal::None, 400));
        assert_eq!(buffers.release(0, 100), Signal::None, "300 held, 350 - 100 allowed");
        assert_eq!(buffers.release(0, 50), Signal::Resume, "250 held, 375 - 100 allowed");
    }
}
