//! Lines `start,src,dst,bytes`: starts and sizes with their units, hosts as numbers.

use super::{Fields, FlowFile, TraceFlow, check_count, check_ends};
use crate::workload::Operation;
use crate::workload::text::{ReadError, lines, shown};

pub(super) fn read(text: &str, hosts: u32) -> Result<FlowFile, ReadError> {
    let fields = Fields { hosts, example: LINE_FORMAT };
    let mut flows = Vec::new();
    for line in lines(text) {
        let parts: Vec<&str> = line.text.split(',').map(str::trim).take(5).collect();
        let [start, src, dst, bytes] = parts[..] else {
            return Err(
                line.error(line.text, format!("`{}` does not have four fields; {LINE_FORMAT}", shown(line.text)))
            );
        };
        let at = |part| move |what: String| line.error(part, what);
        check_count(flows.len()).map_err(at(start))?;
        let (from, to) = (fields.host(src).map_err(at(src))?, fields.host(dst).map_err(at(dst))?);
        check_ends(from, to).map_err(at(dst))?;
        let (start, bytes) = (fields.start(start).map_err(at(start))?, fields.bytes(bytes).map_err(at(bytes))?);
        flows.push(TraceFlow { start, src: from, dst: to, bytes, op: Operation::WriteImmediate });
    }
    Ok(FlowFile { flows, ..FlowFile::default() })
}

/// Part of error messages: the format of a line.
pub(super) const LINE_FORMAT: &str = "a line is start,src,dst,bytes, such as 1.5us,0,3,64KiB";
