//! A save file for GTKWave: the signals that show most.

use core::fmt::Write as _;
use std::path::Path;

use super::Stimulus;

/// Returns the text of a save file that opens `waves` with the signals of `stimulus`.
pub fn save_file(waves: &Path, stimulus: &Stimulus) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "[dumpfile] \"{}\"", waves.display());
    let _ = writeln!(text, "[timestart] 0");
    let _ = writeln!(text, "[sst_expanded] 1");
    for signal in &stimulus.signals {
        let wires = [&stimulus.circuit.inputs, &stimulus.circuit.outputs];
        let bits = wires.into_iter().flatten().find(|wire| wire.name == *signal).map_or(1, |wire| wire.bits);
        // Decimal, and binary for a single bit.
        let _ = writeln!(text, "@{}", if bits == 1 { "28" } else { "24" });
        let range = if bits == 1 { String::new() } else { format!("[{}:0]", bits - 1) };
        let _ = writeln!(text, "TOP.{signal}{range}");
    }
    text
}
