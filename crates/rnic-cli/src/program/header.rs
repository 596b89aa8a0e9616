//! The positions of a program's inputs and outputs, for modules that are written in C.

use std::fmt::Write as _;

use rnic_program::loaded::ports;
use rnic_program::{Description, Kind, Port};

/// Words of a map.
const MAP_WORDS: usize = rnic_program::value::MAP_WORDS;

/// Returns a header for the module of a program like `program`.
pub fn emit(program: &Description) -> String {
    let [incoming, periodic, outputs] = ports(program);
    let mut text = format!(
        "/* Words of the program `{}`: 8 bytes each, in the order of these names; a map has {MAP_WORDS} words.\n * \
         void incoming(const uint64_t *in, uint64_t *out); void periodic(const uint64_t *in, uint64_t *out); */\n\
         #include <stdint.h>\n",
        program.name
    );
    for (prefix, ports) in [("I", incoming), ("P", periodic), ("O", outputs)] {
        let _ = write!(text, "\nenum {{\n{}}};\n", names(prefix, &ports));
    }
    text
}

/// Returns a line for each port: its name in capitals, after `prefix`, its position and its width.
fn names(prefix: &str, ports: &[Port]) -> String {
    let mut at = 0;
    let line = |port: &Port| {
        let (position, name) = (at, port.name.to_uppercase());
        let (words, kind) = match port.kind {
            Kind::Bits(bits) => (1, format!("{bits} bits")),
            Kind::Map => (MAP_WORDS, "map".to_owned()),
        };
        at += words;
        format!("    {prefix}_{name} = {position}, /* {kind} */\n")
    };
    ports.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_words() {
        let reno = rnic_transports::programs::find("reno").expect("registered");
        let text = emit(&reno.description());
        assert!(text.contains("    I_IN_ACK = 0, /* 1 bits */"), "{text}");
        assert!(text.contains("    I_IN_ACKED = 15, /* map */\n    I_IN_MARKED = 19, /* map */"), "{text}");
        assert!(text.contains("    O_NEXT_CWND = 0, /* 8 bits */"), "{text}");
    }
}
