//! htsim's connection matrix: `Nodes N`, `Connections N`, then one connection per line.
//!
//! Source: `sim/datacenter/connection_matrix.cpp` of the public repository, which has the grammar. Starts are in
//! picoseconds. Not supported, and refused by name: connections without end (`size 0`, or no size), `prio`, `addon`,
//! and failures of links.
//!
//! A flow with `trigger T` starts when trigger T is activated, at the end of another flow (`send_done_trigger T`: it
//! has completed at its sender; `recv_done_trigger T`: it has arrived).

use std::collections::BTreeMap;

use super::{Fields, FlowFile, TraceFlow, TriggerKind, TriggerLinks, Triggers, check_count, check_ends};
use crate::workload::Operation;
use crate::workload::text::{Line, ReadError, lines, shown};

/// Words with which lines of the header start.
pub(super) const HEADS: [&str; 4] = ["Nodes", "Connections", "Triggers", "Failures"];

/// The part of a file that has been read.
#[derive(Default)]
struct Reader {
    flows: Vec<TraceFlow>,
    links: Vec<TriggerLinks>,
    /// Line of each flow.
    places: Vec<usize>,
    /// By number in the file: index, and the line that names the trigger first.
    triggers: BTreeMap<u32, (u32, usize)>,
    kinds: Vec<Option<TriggerKind>>,
    /// Values of the header, with their lines.
    heads: [Option<(u32, usize)>; HEADS.len()],
}

pub(super) fn read(text: &str, hosts: u32) -> Result<FlowFile, ReadError> {
    let (fields, mut reader) = (Fields { hosts, example: LINE_FORMAT }, Reader::default());
    for line in lines(text) {
        let first = line.words().next().unwrap_or_default();
        if first.contains("->") {
            reader.connection(line, fields)?;
        } else if let Some(index) = HEADS.iter().position(|head| *head == first) {
            let value = line.words().nth(1).unwrap_or_default();
            let number = number(line, value)?;
            reader.heads[index] = Some((number, line.number));
            if first == "Nodes" && number > hosts {
                return Err(
                    line.error(value, format!("the file is for {number} nodes, the topology has {hosts} hosts"))
                );
            }
            if first == "Failures" && number > 0 {
                return Err(line.error(value, "failures of links are not supported; use faults of the plan"));
            }
        } else if first == "trigger" {
            reader.trigger(line)?;
        } else {
            let what = format!("unknown word `{}`; {LINE_FORMAT}", shown(first));
            return Err(line.error(first, what));
        }
    }
    reader.finish()
}

impl Reader {
    fn connection(&mut self, line: Line<'_>, fields: Fields) -> Result<(), ReadError> {
        let mut words = line.words();
        let ends = words.next().unwrap_or_default();
        let (src, dst) = ends.split_once("->").unwrap_or((ends, ""));
        let at = |part| move |what: String| line.error(part, what);
        check_count(self.flows.len()).map_err(at(ends))?;
        let (from, to) = (fields.host(src).map_err(at(src))?, fields.host(dst).map_err(at(dst))?);
        check_ends(from, to).map_err(at(dst))?;
        let (mut start, mut bytes, mut links, mut id) = (None, 0, TriggerLinks::default(), 0);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "start" => {
                    let text = value();
                    // htsim drops fractions of a picosecond.
                    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                    let whole = if fraction.bytes().all(|byte| byte.is_ascii_digit()) { whole } else { text };
                    start = Some(fields.start(&format!("{whole}ps")).map_err(at(text))?);
                }
                "size" => {
                    let text = value();
                    number_of_bytes(line, text)?;
                    bytes = fields.bytes(text).map_err(at(text))?;
                }
                "id" => id = nonzero(line, value(), "a flow")?,
                "trigger" => links.waits_for = Some(self.known(line, value())?),
                "send_done_trigger" => links.when_sent = Some(self.known(line, value())?),
                "recv_done_trigger" => links.when_received = Some(self.known(line, value())?),
                "prio" | "addon" => {
                    let what = format!("`{word}` is not supported; remove it");
                    return Err(line.error(word, what));
                }
                _ => return Err(line.error(word, format!("unknown word `{}`; {LINE_FORMAT}", shown(word)))),
            }
        }
        if bytes == 0 {
            let what = "the connection has no size, or size 0, which means without end in htsim; give it a size";
            return Err(line.error(ends, what));
        }
        let start = match (start, links.waits_for) {
            (Some(start), None) => start,
            (None, Some(_)) if id == 0 => return Err(line.error(ends, "a connection with a trigger needs an `id`")),
            (None, Some(_)) => rnic_base::Time::ZERO,
            (None, None) => return Err(line.error(ends, format!("neither `start` nor `trigger`; {LINE_FORMAT}"))),
            (Some(_), Some(_)) => return Err(line.error(ends, "both `start` and `trigger`; remove one")),
        };
        self.flows.push(TraceFlow { start, src: from, dst: to, bytes, op: Operation::WriteImmediate });
        self.links.push(links);
        self.places.push(line.number);
        Ok(())
    }

    /// Returns the index of the trigger with the number `text`.
    fn known(&mut self, line: Line<'_>, text: &str) -> Result<u32, ReadError> {
        let number = nonzero(line, text, "a trigger")?;
        let (index, _) = *self.triggers.entry(number).or_insert_with(|| {
            self.kinds.push(None);
            (self.kinds.len() as u32 - 1, line.number)
        });
        Ok(index)
    }

    fn trigger(&mut self, line: Line<'_>) -> Result<(), ReadError> {
        let (mut id, mut kind, mut count) = (None, None, 0);
        let mut words = line.words().skip(1);
        while let Some(word) = words.next() {
            match word {
                "id" => id = Some(words.next().unwrap_or_default()),
                "count" => count = nonzero(line, words.next().unwrap_or_default(), "a barrier's count")?,
                "oneshot" => kind = Some(TriggerKind::OneShot),
                "multishot" => kind = Some(TriggerKind::MultiShot),
                "barrier" => kind = Some(TriggerKind::Barrier(0)),
                _ => return Err(line.error(word, format!("unknown word `{}`; {TRIGGER_FORMAT}", shown(word)))),
            }
        }
        let (Some(id), Some(kind)) = (id, kind) else {
            return Err(line.error(line.text, format!("a trigger needs an id and a type; {TRIGGER_FORMAT}")));
        };
        let kind = if kind == TriggerKind::Barrier(0) { TriggerKind::Barrier(count) } else { kind };
        if kind == TriggerKind::Barrier(0) {
            return Err(line.error(line.text, format!("a barrier needs a count; {TRIGGER_FORMAT}")));
        }
        let index = self.known(line, id)? as usize;
        if self.kinds[index].is_some() {
            return Err(line.error(id, format!("trigger {id} is defined twice")));
        }
        self.kinds[index] = Some(kind);
        Ok(())
    }

    fn finish(self) -> Result<FlowFile, ReadError> {
        let defined = self.kinds.iter().filter(|kind| kind.is_some()).count();
        for (index, count, what) in [(1, self.flows.len(), "connections"), (2, defined, "triggers")] {
            if let Some((said, line)) = self.heads[index]
                && said as usize != count
            {
                let what = format!("the file has {count} {what}, but `{}` says {said}", HEADS[index]);
                return Err(ReadError::at(line, 1, what));
            }
        }
        for (number, (index, line)) in &self.triggers {
            if self.kinds[*index as usize].is_none() {
                let what = format!("trigger {number} is not defined; add a line `trigger id {number} oneshot`");
                return Err(ReadError::at(*line, 1, what));
            }
        }
        if self.triggers.is_empty() {
            return Ok(FlowFile { flows: self.flows, ..FlowFile::default() });
        }
        let triggers = Triggers { kinds: self.kinds.into_iter().flatten().collect(), links: self.links };
        if let Some(flow) = triggers.first_without_start() {
            let what = "the flow never starts: its trigger is not activated often enough by flows that start before it";
            return Err(ReadError::at(self.places[flow], 1, what));
        }
        Ok(FlowFile { flows: self.flows, triggers: Some(triggers), notes: Vec::new() })
    }
}

fn number(line: Line<'_>, text: &str) -> Result<u32, ReadError> {
    let part = if text.is_empty() { line.text } else { text };
    text.parse().map_err(|_| line.error(part, format!("`{}` is not a number; {LINE_FORMAT}", shown(text))))
}

fn nonzero(line: Line<'_>, text: &str, what: &str) -> Result<u32, ReadError> {
    match number(line, text)? {
        0 => Err(line.error(text, format!("{what} must not be 0"))),
        number => Ok(number),
    }
}

fn number_of_bytes(line: Line<'_>, text: &str) -> Result<u64, ReadError> {
    let part = if text.is_empty() { line.text } else { text };
    text.parse().map_err(|_| line.error(part, format!("`{}` is not a number of bytes; {LINE_FORMAT}", shown(text))))
}

/// Part of error messages: the format of a line.
pub(super) const LINE_FORMAT: &str =
    "a connection is src->dst start PICOSECONDS size BYTES, such as 0->3 start 0 size 65536";
const TRIGGER_FORMAT: &str = "a trigger is `trigger id N oneshot`, `multishot`, or `barrier count N`";
