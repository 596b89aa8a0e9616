//! IRN's modules as circuits, and their records: words of inputs, and words of outputs by the specification.

use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::spec::irn::{Acknowledgement, Effect, ReceiveContext, SendContext};

/// Folders of `rtl` with the modules.
pub const FOLDERS: [&str; 2] = ["irn", "lib"];

/// Width of an id.
const ID: u32 = 24;

/// Returns the width of a distance in a window of `window` packets.
const fn distance(window: u32) -> u32 {
    window.ilog2() + 1
}

/// Words of the inputs and outputs of one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub inputs: Vec<u64>,
    pub outputs: Vec<u64>,
}

/// Returns the flags as the circuit packs them.
fn flags<const W: u32>(context: &SendContext<W>) -> u64 {
    u64::from(context.recovering) | u64::from(context.extended) << 1 | u64::from(context.timed_out) << 2
}

fn combinational(module: &str, window: u32, inputs: &[(&str, u32)], outputs: &[(&str, u32)]) -> Circuit {
    Circuit::written(module, &FOLDERS, Timing::Combinational, inputs, outputs).with("W", window.into())
}

pub fn receive_data(window: u32) -> Circuit {
    let context = [("expected_i", ID), ("msn_i", ID), ("high_i", window), ("low_i", window)];
    let next = [("expected_o", ID), ("msn_o", ID), ("high_o", window), ("low_o", window)];
    let answer = [("answer_o", 2), ("selective_o", ID), ("completions_o", distance(window)), ("place_o", 1)];
    let inputs = [&[("psn_i", ID), ("arrival_i", 2)], &context[..]].concat();
    combinational("irn_receive_data", window, &inputs, &[next, answer].concat())
}

/// Runs receiveData of the specification on `context`.
pub fn run_receive_data<const W: u32>(context: &mut ReceiveContext<W>, psn: u32, effect: Effect) -> Record {
    let words_of = |context: &ReceiveContext<W>| {
        let ids = [context.expected, context.msn].map(u64::from);
        [&ids, context.high.words(), context.low.words()].concat()
    };
    let inputs = [vec![psn.into(), effect as u64], words_of(context)].concat();
    let received = context.receive_data(psn, effect);
    let answer =
        [received.answer as u64, received.selective.into(), received.completions.into(), received.place.into()];
    Record { inputs, outputs: [words_of(context), answer.to_vec()].concat() }
}

pub fn tx_free(window: u32) -> Circuit {
    let inputs = [
        ("allowed_i", 1),
        ("has_new_i", 1),
        ("cap_i", distance(window)),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", distance(window)),
        ("lost_i", distance(window)),
        ("flags_i", 4),
        ("sacked_i", window),
    ];
    let outputs = [
        ("next_o", ID),
        ("again_o", distance(window)),
        ("send_o", 1),
        ("psn_o", ID),
        ("is_again_o", 1),
        ("timer_o", 2),
    ];
    combinational("irn_tx_free", window, &inputs, &outputs)
}

/// Runs txFree of the specification on `context`, if it is allowed to send.
pub fn run_tx_free<const W: u32>(context: &mut SendContext<W>, allowed: bool, has_new: bool, cap: u32) -> Record {
    let event = [u64::from(allowed), u64::from(has_new), u64::from(cap)];
    let before = [context.una, context.next, context.again, context.lost].map(u64::from);
    let inputs = [&event[..], &before, &[flags(context)], context.sacked.words()].concat();
    let sent = if allowed { context.tx_free(has_new, cap) } else { None };
    let packet = sent.map_or([0; 4], |sent| [1, sent.psn.into(), sent.is_again.into(), sent.timer as u64]);
    Record { inputs, outputs: [&[context.next.into(), context.again.into()], &packet[..]].concat() }
}

pub fn receive_ack(window: u32) -> Circuit {
    let inputs = [
        ("is_nack_i", 1),
        ("cumulative_i", ID),
        ("has_selective_i", 1),
        ("selective_i", ID),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", distance(window)),
        ("lost_i", distance(window)),
        ("presumed_i", distance(window)),
        ("recovery_i", ID),
        ("flags_i", 4),
        ("sacked_i", window),
    ];
    let outputs = [
        ("una_o", ID),
        ("again_o", distance(window)),
        ("lost_o", distance(window)),
        ("presumed_o", distance(window)),
        ("recovery_o", ID),
        ("flags_o", 4),
        ("sacked_o", window),
        ("acknowledged_o", distance(window)),
        ("is_new_selective_o", 1),
        ("timer_o", 2),
    ];
    combinational("irn_receive_ack", window, &inputs, &outputs)
}

/// Runs receiveAck of the specification on `context`.
pub fn run_receive_ack<const W: u32>(context: &mut SendContext<W>, ack: Acknowledgement) -> Record {
    let selective = ack.selective.unwrap_or(0);
    let event = [ack.is_nack.into(), ack.cumulative.into(), ack.selective.is_some().into(), u64::from(selective)];
    let inputs = [&event[..], &[context.una.into(), context.next.into()], &state(context)].concat();
    let done = context.receive_ack(ack);
    let answer = [done.packets.into(), done.is_new_selective.into(), done.timer as u64];
    Record { inputs, outputs: [&[context.una.into()], &state(context)[..], &answer].concat() }
}

/// Returns the words of the context after `next`.
fn state<const W: u32>(context: &SendContext<W>) -> Vec<u64> {
    let numbers = [context.again, context.lost, context.presumed, context.recovery].map(u64::from);
    [&numbers[..], &[flags(context)], context.sacked.words()].concat()
}

pub fn timeout(window: u32) -> Circuit {
    let inputs = [
        ("low_packets_i", distance(window)),
        ("una_i", ID),
        ("next_i", ID),
        ("again_i", distance(window)),
        ("lost_i", distance(window)),
        ("presumed_i", distance(window)),
        ("recovery_i", ID),
        ("flags_i", 4),
    ];
    let outputs = [
        ("again_o", distance(window)),
        ("lost_o", distance(window)),
        ("presumed_o", distance(window)),
        ("recovery_o", ID),
        ("flags_o", 4),
        ("acts_o", 1),
        ("timer_o", 2),
    ];
    combinational("irn_timeout", window, &inputs, &outputs)
}

/// Runs timeout of the specification on `context`.
pub fn run_timeout<const W: u32>(context: &mut SendContext<W>, low_packets: u32) -> Record {
    let numbers = |context: &SendContext<W>| {
        let numbers = [context.again, context.lost, context.presumed, context.recovery].map(u64::from);
        [&numbers[..], &[flags(context)]].concat()
    };
    let event = [u64::from(low_packets), context.una.into(), context.next.into()];
    let inputs = [&event[..], &numbers(context)].concat();
    let expired = context.timeout(low_packets);
    Record { inputs, outputs: [numbers(context), vec![expired.acts.into(), expired.timer as u64]].concat() }
}
