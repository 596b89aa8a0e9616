//! The workload `chakra`: execution traces from files.

use rnic_base::limits::MESSAGE_BYTES_MAX;

use super::traffic::{check_traffic, operation};
use super::{Plan, PlanError, raw};
use crate::link::PLAN_TIME_MAX;
use crate::workload::Operation;
use crate::workload::chakra::{ChakraPlan, RANKS_MAX, TRACE_BYTES_MAX};

/// Files of execution traces, which are not text.
pub trait TraceFiles {
    /// Returns the names of the files in a folder.
    ///
    /// # Errors
    /// The reason why there are none.
    fn list(&mut self, folder: &str) -> Result<Vec<String>, String>;

    /// Returns the content of a file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Vec<u8>, String>;
}

/// For plans that are read without such files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoTraceFiles;

impl TraceFiles for NoTraceFiles {
    fn list(&mut self, _: &str) -> Result<Vec<String>, String> {
        Err("execution traces are not text, and are not read here".to_owned())
    }

    fn read(&mut self, folder: &str, _: u64) -> Result<Vec<u8>, String> {
        self.list(folder).map(|_| Vec::new())
    }
}

pub(super) fn resolve(
    raw: &raw::Workload,
    file: &str,
    hosts: u32,
    files: &mut dyn TraceFiles,
) -> Result<ChakraPlan, PlanError> {
    let wrong = |what: String| PlanError::File { key: "workload.file", name: file.to_owned(), what };
    let names = names(file, files).map_err(wrong)?;
    if names.len() > hosts as usize {
        let count = names.len();
        return Err(wrong(format!("there are traces of {count} ranks, but the topology has {hosts} hosts")));
    }
    let traces: Result<Vec<_>, _> = names.iter().map(|name| files.read(name, TRACE_BYTES_MAX as u64)).collect();
    let op = operation(raw, Some(Operation::WriteImmediate))?;
    ChakraPlan::from_traces(&traces.map_err(wrong)?, op).map_err(|error| wrong(error.to_string()))
}

/// Returns the names of the traces of all ranks, in order.
fn names(file: &str, files: &mut dyn TraceFiles) -> Result<Vec<String>, String> {
    let folder = files.list(file);
    let (folder, all, stem) = match folder {
        Ok(all) => (format!("{}/", file.trim_end_matches('/')), all, None),
        Err(_) => {
            let (folder, stem) = file.rsplit_once('/').map_or((".", file), |(folder, stem)| (folder, stem));
            (format!("{folder}/"), files.list(folder)?, Some(stem.to_owned()))
        }
    };
    let mut ranks: Vec<(usize, String)> = Vec::new();
    let mut found: Option<String> = stem;
    for name in all {
        let Some((stem, rank)) = name.strip_suffix(".et").and_then(|name| name.rsplit_once('.')) else { continue };
        let Ok(rank) = rank.parse::<usize>() else { continue };
        match &found {
            Some(first) if first == stem => {}
            Some(_) if !folder_is_given(file, &folder) => continue,
            Some(first) => {
                return Err(format!(
                    "the folder has traces `{first}` and `{stem}`; name one of them: `{folder}{first}`"
                ));
            }
            None => found = Some(stem.to_owned()),
        }
        ranks.push((rank, format!("{folder}{name}")));
    }
    ranks.sort_unstable();
    if ranks.is_empty() {
        let stem = found.unwrap_or_else(|| "NAME".to_owned());
        return Err(format!("there are no traces `{folder}{stem}.0.et`, `{folder}{stem}.1.et` and so on"));
    }
    if ranks.len() > RANKS_MAX {
        return Err(format!("there are {} traces; the maximum is {RANKS_MAX}", ranks.len()));
    }
    if let Some((expected, (rank, _))) = ranks.iter().enumerate().find(|(expected, (rank, _))| expected != rank) {
        return Err(format!("the trace of rank {expected} is missing: the next one is that of rank {rank}"));
    }
    Ok(ranks.into_iter().map(|(_, name)| name).collect())
}

/// Returns whether `file` is the folder itself.
fn folder_is_given(file: &str, folder: &str) -> bool {
    file.trim_end_matches('/') == folder.trim_end_matches('/')
}

/// Checks the constraints of execution traces.
pub(super) fn check(chakra: &ChakraPlan, plan: &Plan) -> Result<(), PlanError> {
    let wrong = |key, what: String| Err(PlanError::value(key, what));
    if !chakra.op.consumes_receive() {
        return wrong("workload.op", "must notify the receiving rank; use write-imm or send".to_owned());
    }
    let shortest = chakra.script.shortest_time();
    if shortest > PLAN_TIME_MAX {
        return wrong("workload.file", format!("has computations of {shortest}; the longest run is {PLAN_TIME_MAX}"));
    }
    let largest = chakra.largest_message();
    if largest > MESSAGE_BYTES_MAX {
        return wrong("workload.file", format!("has messages of {largest} bytes; the maximum is {MESSAGE_BYTES_MAX}"));
    }
    for connection in &chakra.script.connections {
        check_traffic(&chakra.traffic(&connection.lengths), plan)?;
    }
    Ok(())
}
