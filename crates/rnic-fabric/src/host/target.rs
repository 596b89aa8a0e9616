//! Memory at the remote end of a flow, when payload bytes are checked: its content before the flow, and its required
//! content after it.

use rnic_base::Time;

use super::Host;
use super::session::{Buffers, Sender, message_seed, slot_offset};
use crate::check::Violations;
use crate::workload::Operation;

impl Host {
    /// Initializes the memory that the flow of `sender`, at another host, accesses.
    pub(crate) fn prepare_target(&mut self, sender: &Sender, target: &Buffers) {
        let (Some(memory), Some(block)) = (&mut self.memory, target.block) else { return };
        memory.bytes_mut(block.local, block.len).fill(0);
        if sender.traffic.op == Operation::Read {
            for slot in 0..sender.traffic.depth.min(sender.messages) {
                let local = block.local + slot_offset(&sender.traffic, sender.bytes, slot);
                let len = sender.traffic.slot_bytes(sender.bytes);
                memory.fill(local, len, message_seed(sender.seed, slot));
            }
        }
    }

    /// Checks the memory after the flow. Messages for which the receiver had completions were checked at that time.
    pub(crate) fn check_target(&self, at: Time, sender: &Sender, target: &Buffers, violations: &mut Violations) {
        let (Some(memory), Some(block)) = (&self.memory, target.block) else { return };
        match sender.traffic.op {
            Operation::Write => {
                let first = sender.completed - sender.completed.min(sender.traffic.depth);
                for index in first..sender.completed {
                    let local = block.local + slot_offset(&sender.traffic, sender.bytes, index);
                    let len = u64::from(sender.traffic.message_len(sender.bytes, index));
                    if let Some(byte) = memory.first_difference(local, len, message_seed(sender.seed, index)) {
                        let flow = sender.flow;
                        violations
                            .add(at, format!("flow {flow}: the data of Write {index} is wrong from byte {byte} on"));
                    }
                }
            }
            Operation::FetchAdd | Operation::CompareSwap => {
                let count =
                    u64::from_ne_bytes(*memory.bytes(block.local, 8).first_chunk().expect("the block has eight bytes"));
                if count != u64::from(sender.completed) {
                    let (flow, completed) = (sender.flow, sender.completed);
                    violations.add(
                        at,
                        format!("flow {flow}: {completed} atomic operations completed, but the counter is {count}"),
                    );
                }
            }
            Operation::WriteImmediate | Operation::Send | Operation::Read => {}
        }
    }
}
