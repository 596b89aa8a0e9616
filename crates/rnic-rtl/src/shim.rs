//! The C++ program around Verilator's models: reads input words and writes output words.
//!
//! It is called with the number of a model. It reads a count and that many records of input words, and then writes as
//! many records of output words; so neither process waits for the other to read.

use core::fmt::Write as _;

use crate::circuit::{Circuit, Timing, Wire, record_words};

/// Returns the program for `circuits`.
pub(crate) fn text(circuits: &[Circuit]) -> String {
    let mut text = String::from("#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n");
    text.push_str("#include \"verilated.h\"\n#if VM_COVERAGE\n#include \"verilated_cov.h\"\n#endif\n");
    text.push_str(WAVES);
    for Circuit { name, .. } in circuits {
        let _ = writeln!(text, "#include \"V{name}.h\"");
    }
    text.push_str("double sc_time_stamp() { return 0; }\n");
    for circuit in circuits {
        text.push_str(&step(circuit));
    }
    text.push_str(MAIN);
    for (number, Circuit { name, inputs, outputs, .. }) in circuits.iter().enumerate() {
        let (inputs, outputs) = (record_words(inputs), record_words(outputs));
        let _ =
            writeln!(text, "    case {number}: return run<V{name}>(start_{name}, step_{name}, {inputs}, {outputs});");
    }
    text.push_str("  }\n  return 2;\n}\n");
    text
}

/// Returns the C++ functions that prepare a model and pass one record to it.
fn step(circuit: &Circuit) -> String {
    let Circuit { name, inputs, outputs, timing, .. } = circuit;
    let is_clocked = *timing != Timing::Combinational;
    let mut text = format!("static void start_{name}(V{name}& m) {{\n");
    if *timing == Timing::Clocked {
        let _ = writeln!(text, "  std::vector<uint64_t> in({}), out({});", record_words(inputs), record_words(outputs));
        let _ = writeln!(text, "  extern void step_{name}(V{name}&, const uint64_t*, uint64_t*);");
        text.push_str("  m.rst_n = 0;\n");
        let _ = writeln!(text, "  for (int i = 0; i < 2; i++) step_{name}(m, in.data(), out.data());");
        text.push_str("  m.rst_n = 1;\n");
    }
    let _ = writeln!(text, "}}\nvoid step_{name}(V{name}& m, const uint64_t* in, uint64_t* out) {{");
    let mut at = 0;
    for wire in inputs {
        text.push_str(&pass(wire, at));
        at += wire.words;
    }
    if inputs.iter().any(|wire| wire.name == TIME) {
        let _ = writeln!(text, "  set_time(m.{TIME});");
    }
    text.push_str(if is_clocked { "  m.clk = 0;\n" } else { "" });
    text.push_str("  m.eval();\n  sample();\n");
    let mut at = 0;
    for wire in outputs {
        text.push_str(&take(wire, at));
        at += wire.words;
    }
    text.push_str(if is_clocked { "  m.clk = 1;\n  m.eval();\n  sample();\n}\n" } else { "}\n" });
    text
}

/// Returns the assignment to an input from the words from number `at` on; bits beyond its width are dropped, as a model
/// does not drop them.
fn pass(Wire { name, bits, .. }: &Wire, at: usize) -> String {
    let mask = |bits: u32| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    if *bits <= u64::BITS {
        return format!("  m.{name} = in[{at}] & {}ull;\n", mask(*bits));
    }
    let half = |half: u32| {
        let (word, shift, left) = (at + half as usize / 2, half % 2 * 32, (bits - half * 32).min(32));
        format!("  m.{name}[{half}] = uint32_t(in[{word}] >> {shift}) & {}u;\n", mask(left))
    };
    (0..bits.div_ceil(32)).map(half).collect()
}

/// Returns the assignment of an output to the words from number `at` on.
fn take(Wire { name, bits, .. }: &Wire, at: usize) -> String {
    if *bits <= u64::BITS {
        return format!("  out[{at}] = m.{name};\n");
    }
    let half = |half: u32| {
        let (word, shift) = (at + half as usize / 2, half % 2 * 32);
        let operator = if shift == 0 { "=" } else { "|=" };
        format!("  out[{word}] {operator} uint64_t(m.{name}[{half}]) << {shift};\n")
    };
    (0..bits.div_ceil(32)).map(half).collect()
}

/// Input that, where a circuit has it, is the time of waves in picoseconds, and grows from record to record by 2 at
/// least: the rising edge of the clock follows one picosecond later.
pub(crate) const TIME: &str = "now_ps_i";

/// Notes the values of all signals: at half cycles of 5 ns, or at the times of the records.
const WAVES: &str = r#"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
static VerilatedFstC* waves;
static uint64_t time_ps, half_cycle_ps = 5000;
static void sample() {
  if (waves) waves->dump(time_ps);
  time_ps += half_cycle_ps;
}
static void set_time(uint64_t ps) {
  half_cycle_ps = 1;
  if (ps > time_ps) time_ps = ps;
}
#else
static void sample() {}
static void set_time(uint64_t) {}
#endif
"#;

const MAIN: &str = r#"
template <class Model>
static int run(void (*start)(Model&), void (*step)(Model&, const uint64_t*, uint64_t*), size_t inputs, size_t outputs) {
#if VM_TRACE_FST
  const char* file = std::getenv("RNIC_RTL_WAVES_FILE");
  Verilated::traceEverOn(file != nullptr);
#endif
  Model model;
#if VM_TRACE_FST
  if (file) {
    waves = new VerilatedFstC;
    model.trace(waves, 99);
    waves->open(file);
    if (!waves->isOpen()) return 1;
  }
#endif
  std::vector<uint64_t> in(inputs), out;
  start(model);
  for (uint64_t count; std::fread(&count, 8, 1, stdin) == 1;) {
    out.assign(count * outputs, 0);
    for (uint64_t record = 0; record < count; record++) {
      if (std::fread(in.data(), 8, inputs, stdin) != inputs) return 1;
      step(model, in.data(), out.data() + record * outputs);
    }
    if (std::fwrite(out.data(), 8, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) return 1;
  }
#if VM_COVERAGE
  if (const char* file = std::getenv("RNIC_RTL_COVERAGE_FILE")) Verilated::threadContextp()->coveragep()->write(file);
#endif
#if VM_TRACE_FST
  if (waves) waves->close();
#endif
  return 0;
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  Verilated::commandArgs(count, arguments);
  switch (std::atoi(arguments[1])) {
"#;
