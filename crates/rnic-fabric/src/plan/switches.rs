//! Switches: conversion from the parsed to the checked plan.

use rnic_base::Bytes;

use super::quantity::{Fraction, OrAuto, Unit};
use super::raw::{self, EcnDepth, EcnDraw, SwitchModel};
use super::{Plan, PlanError, derived};
use crate::switch::{Alpha, BufferPlan, EcnPlan, MarkDepth, MarkDraw, Multipath, PfcPlan, SwitchPlan, TrimPlan};

/// Rejects keys that this switch model does not use, because they would have no effect.
fn reject_unused_keys(switch: &raw::Switch) -> Result<(), PlanError> {
    let given = |key: fn(&raw::Pfc) -> OrAuto<Bytes>| {
        switch.pfc.as_ref().is_some_and(|pfc| matches!(key(pfc), OrAuto::Given(_)))
    };
    let reject = |key, what| Err(PlanError::value(key, what));
    match switch.model {
        SwitchModel::InputQueued if switch.alpha.is_some() => {
            reject("switch.alpha", "applies only to switches with a shared buffer; remove it")
        }
        SwitchModel::InputQueued if given(raw::Pfc::headroom) => {
            reject("switch.pfc.headroom", "does not apply to an input-queued switch; give `threshold` instead")
        }
        SwitchModel::SharedBuffer if given(raw::Pfc::threshold) => reject(
            "switch.pfc.threshold",
            "does not apply to a shared buffer, whose threshold is dynamic; give `alpha` and `headroom` instead",
        ),
        _ => Ok(()),
    }
}

/// Returns the part of each switch that one of `parts` classes has: the whole buffer without classes.
pub(super) fn resolve(raw: &raw::Switch, plan: &Plan, parts: u64) -> Result<SwitchPlan, PlanError> {
    reject_unused_keys(raw)?;
    let buffer = raw.buffer.0.get() / parts;
    let pause_reaction_bytes = plan.pause_reaction_bytes();
    let hysteresis = 2 * derived::largest_frame(plan);
    let wanted = raw.pfc.as_ref().filter(|pfc| pfc.enabled());
    let given = |value: OrAuto<Bytes>| match value {
        OrAuto::Auto => None,
        OrAuto::Given(bytes) => Some(bytes.get()),
    };
    let (buffer, pfc) = match raw.model {
        SwitchModel::InputQueued => {
            let pfc = wanted.map(|pfc| {
                let threshold = given(pfc.threshold()).unwrap_or(buffer.saturating_sub(pause_reaction_bytes));
                PfcPlan { threshold, hysteresis, headroom: 0 }
            });
            if pfc.is_some_and(|pfc| pfc.threshold < hysteresis || pfc.threshold >= buffer) {
                let what = format!(
                    "must be at least two packets ({hysteresis} bytes) and below the buffer size ({buffer} bytes); \
                     up to {pause_reaction_bytes} bytes still arrive after a pause"
                );
                return Err(PlanError::value("switch.pfc.threshold", what));
            }
            (BufferPlan::InputQueued { per_port: buffer }, pfc)
        }
        SwitchModel::SharedBuffer => {
            let Unit(Fraction { numerator, denominator }) = raw.alpha();
            let alpha = Alpha { numerator, denominator };
            let pfc = wanted.map(|pfc| PfcPlan {
                threshold: 0,
                hysteresis,
                headroom: given(pfc.headroom()).unwrap_or(pause_reaction_bytes),
            });
            (BufferPlan::Shared { total: buffer, alpha }, pfc)
        }
    };
    let ecn = raw.ecn.as_ref().filter(|ecn| ecn.enabled());
    let ecn = ecn.map(|ecn| EcnPlan {
        kmin: ecn.kmin.0.get(),
        kmax: ecn.kmax.0.get(),
        pmax: ecn.pmax.0,
        depth: match ecn.depth() {
            EcnDepth::Output => MarkDepth::Output,
            EcnDepth::VirtualQueue => MarkDepth::VirtualQueue,
            EcnDepth::Input => MarkDepth::Input,
        },
        draw: match ecn.draw() {
            EcnDraw::Sequence => MarkDraw::Sequence,
            EcnDraw::Packet => MarkDraw::Packet,
        },
    });
    let csig = raw.csig.as_ref().is_some_and(raw::Csig::enabled);
    let multipath = match raw.multipath() {
        raw::Multipath::Ecmp => Multipath::Ecmp,
        raw::Multipath::Wcmp => Multipath::Wcmp,
    };
    let trim = raw.trim.as_ref().filter(|trim| trim.enabled());
    let trim = trim.map(|trim| TrimPlan { packets: trim.queue(), header_bytes: trim.headers().0.get() });
    Ok(SwitchPlan { buffer, pfc, ecn, csig, trim, multipath })
}

/// Checks that the buffers, marks and trimming of `switch` are possible with `ports` ports and frames of `frame` bytes.
pub(super) fn check(switch: &SwitchPlan, ports: u64, frame: u64) -> Result<(), PlanError> {
    let usable = match switch.buffer {
        BufferPlan::InputQueued { per_port } => per_port,
        BufferPlan::Shared { total, .. } => total.saturating_sub(switch.pfc.map_or(0, |pfc| pfc.headroom * ports)),
    };
    if usable < frame {
        let what =
            format!("is too small: {usable} bytes remain beside the PFC headroom, but a full packet has {frame} bytes");
        return Err(PlanError::value("switch.buffer", what));
    }
    if let Some(trim) = switch.trim {
        if !(1..=TRIM_QUEUE_MAX).contains(&trim.packets) {
            return Err(PlanError::value("switch.trim.queue", format!("must be 1 to {TRIM_QUEUE_MAX} packets")));
        }
        if trim.header_bytes < TRIM_HEADERS_MIN {
            let what = format!("must be at least {TRIM_HEADERS_MIN} bytes, so that a few headers fit");
            return Err(PlanError::value("switch.trim.headers", what));
        }
        if switch.pfc.is_some() {
            let what = "cannot be combined with switch.pfc: a switch that pauses its neighbours has space for every \
                        packet; disable one of them";
            return Err(PlanError::value("switch.trim", what));
        }
    }
    if switch.ecn.is_some_and(|ecn| ecn.kmin >= ecn.kmax) {
        return Err(PlanError::value("switch.ecn.kmin", "must be below kmax"));
    }
    let is_shared = matches!(switch.buffer, BufferPlan::Shared { .. });
    if is_shared && switch.ecn.is_some_and(|ecn| ecn.depth == MarkDepth::VirtualQueue) {
        return Err(PlanError::value(
            "switch.ecn.depth",
            "must not be `virtual-queue` for a switch with a shared buffer; use `output` or `input`",
        ));
    }
    Ok(())
}

/// Maximum number of data packets that may wait in a switch that trims: far more than a buffer holds.
const TRIM_QUEUE_MAX: u32 = 1 << 20;
/// Smallest queue of headers in bytes: a few of the longest headers.
const TRIM_HEADERS_MIN: u64 = 1_000;
