//! `flow.txt` of HPCC's simulator (Li et al., SIGCOMM'19): the number of flows, then one flow per line, `src dst pg
//! dport bytes start_seconds`.
//!
//! Source: `simulation/scratch/third.cc` of the public repository. It reads as many flows as the first line says and
//! ignores the rest of the file, and so does this reader, with a note. Priority group and port have no effect here.

use super::{Fields, FlowFile, TraceFlow, check_count, check_ends};
use crate::workload::Operation;
use crate::workload::text::{ReadError, lines, shown};

pub(super) fn read(text: &str, hosts: u32) -> Result<FlowFile, ReadError> {
    let fields = Fields { hosts, example: LINE_FORMAT };
    let mut lines = lines(text);
    let Some(head) = lines.next() else { return Ok(FlowFile::default()) };
    let count: usize = head.text.parse().map_err(|_| {
        let what = format!("`{}` is not the number of flows, which the first line gives", shown(head.text));
        head.error(head.text, what)
    })?;
    let mut flows = Vec::new();
    for line in lines.by_ref().take(count) {
        let words: Vec<&str> = line.words().take(7).collect();
        let [src, dst, group, port, bytes, start] = words[..] else {
            return Err(
                line.error(line.text, format!("`{}` does not have six fields; {LINE_FORMAT}", shown(line.text)))
            );
        };
        let at = |part| move |what: String| line.error(part, what);
        check_count(flows.len()).map_err(at(src))?;
        let (from, to) = (fields.host(src).map_err(at(src))?, fields.host(dst).map_err(at(dst))?);
        check_ends(from, to).map_err(at(dst))?;
        for number in [group, port] {
            let wrong = |_| line.error(number, format!("`{}` is not a number; {LINE_FORMAT}", shown(number)));
            number.parse::<u32>().map_err(wrong)?;
        }
        let size = fields.bytes(bytes).map_err(at(bytes))?;
        let start = fields.start(&format!("{start}s")).map_err(at(start))?;
        flows.push(TraceFlow { start, src: from, dst: to, bytes: size, op: Operation::WriteImmediate });
    }
    if flows.len() < count {
        let what = format!("the file has {} flows, but its first line says {count}", flows.len());
        return Err(head.error(head.text, what));
    }
    let rest = lines.count();
    let notes = (rest > 0).then(|| format!("{rest} lines after the {count} flows of the first line are not read"));
    Ok(FlowFile { flows, notes: notes.into_iter().collect(), ..FlowFile::default() })
}

/// Part of error messages: the format of a line.
pub(super) const LINE_FORMAT: &str = "a line is src dst pg dport bytes start_seconds, such as 0 3 3 100 65536 0.0015";
