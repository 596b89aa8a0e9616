//! The C++ program around Verilator's models: reads input words and writes output words.
//!
//! It is called with the number of a module. It reads a count and that many records of input words, and then writes as
//! many records of output words; so neither process waits for the other to read.

use core::fmt::Write as _;

use rnic_program::{Graph, Kind};

/// Width of maps in circuits.
const MAP_BITS: u32 = 128;

/// Returns the program for `modules`: their names and graphs.
pub(crate) fn text(modules: &[(String, &Graph)]) -> String {
    let mut text = String::from("#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n");
    for (name, _) in modules {
        let _ = writeln!(text, "#include \"V{name}.h\"");
    }
    text.push_str("double sc_time_stamp() { return 0; }\n");
    for (name, graph) in modules {
        text.push_str(&step(name, graph));
    }
    text.push_str(MAIN);
    for (number, (name, graph)) in modules.iter().enumerate() {
        let (inputs, outputs) = (input_words(graph), graph.outputs().len());
        let _ = writeln!(text, "    case {number}: return run<V{name}>(step_{name}, {inputs}, {outputs});");
    }
    text.push_str("  }\n  return 2;\n}\n");
    text
}

/// Number of words of a record of inputs.
pub(crate) fn input_words(graph: &Graph) -> usize {
    graph.inputs().iter().map(|port| if port.kind == Kind::Map { rnic_program::value::MAP_WORDS } else { 1 }).sum()
}

/// Returns the C++ function that passes one record to a model.
fn step(name: &str, graph: &Graph) -> String {
    let mut text = format!("static void step_{name}(V{name}& m, const uint64_t* in, uint64_t* out) {{\n");
    let mut at = 0;
    for port in graph.inputs() {
        if port.kind == Kind::Map {
            for half in 0..MAP_BITS / 32 {
                let (word, shift) = (at + half as usize / 2, half % 2 * 32);
                let _ = writeln!(text, "  m.{}[{half}] = uint32_t(in[{word}] >> {shift});", port.name);
            }
            at += rnic_program::value::MAP_WORDS;
        } else {
            let _ = writeln!(text, "  m.{} = in[{at}];", port.name);
            at += 1;
        }
    }
    text.push_str("  m.eval();\n");
    for (at, (port, _)) in graph.outputs().iter().enumerate() {
        let _ = writeln!(text, "  out[{at}] = m.{};", port.name);
    }
    text.push_str("}\n");
    text
}

const MAIN: &str = r#"
template <class Model>
static int run(void (*step)(Model&, const uint64_t*, uint64_t*), size_t inputs, size_t outputs) {
  Model model;
  std::vector<uint64_t> in(inputs), out;
  for (uint64_t count; std::fread(&count, 8, 1, stdin) == 1;) {
    out.assign(count * outputs, 0);
    for (uint64_t record = 0; record < count; record++) {
      if (std::fread(in.data(), 8, inputs, stdin) != inputs) return 1;
      step(model, in.data(), out.data() + record * outputs);
    }
    if (std::fwrite(out.data(), 8, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) return 1;
  }
  return 0;
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  switch (std::atoi(arguments[1])) {
"#;
