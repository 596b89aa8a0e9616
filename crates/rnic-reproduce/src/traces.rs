//! Execution traces as part of the description of a run. They are not text, and large: all runs of a sweep share them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rnic_fabric::plan::TraceFiles;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// The content of an execution trace; a clone shares it.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    bytes: Arc<[u8]>,
    digest: String,
}

impl Trace {
    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the SHA-256 of the content, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl From<Vec<u8>> for Trace {
    fn from(bytes: Vec<u8>) -> Self {
        Self { digest: hex(&Sha256::digest(&bytes)), bytes: bytes.into() }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Trace({} bytes, {})", self.bytes.len(), self.digest)
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.bytes))
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        Ok(bytes.ok_or_else(|| D::Error::custom("an execution trace is not hexadecimal digits"))?.into())
    }
}

/// Returns `bytes` in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    bytes.iter().flat_map(digits).collect()
}

/// Execution traces by name.
pub type Traces = BTreeMap<String, Trace>;

/// The traces of a folder, which remembers those that are read.
pub(crate) struct Reading<'r> {
    folder: &'r mut dyn TraceFiles,
    /// Traces that have been read for other plans of this folder.
    known: &'r mut Traces,
    read: Traces,
}

impl<'r> Reading<'r> {
    pub(crate) fn new(folder: &'r mut dyn TraceFiles, known: &'r mut Traces) -> Self {
        Self { folder, known, read: Traces::new() }
    }

    /// Returns the traces that were read.
    pub(crate) fn into_read(self) -> Traces {
        self.read
    }
}

impl TraceFiles for Reading<'_> {
    fn list(&mut self, folder: &str) -> Result<Vec<String>, String> {
        self.folder.list(folder)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        let trace = match self.known.get(name) {
            Some(trace) => trace,
            None => {
                let trace = self.folder.read(name, bytes_max)?.into();
                self.known.entry(name.to_owned()).or_insert(trace)
            }
        };
        self.read.insert(name.to_owned(), trace.clone());
        Ok(trace.bytes().to_vec())
    }
}

/// The traces that are part of the description of a run: its folders have these files, and no others.
pub(crate) struct Included<'t>(pub(crate) &'t Traces);

impl TraceFiles for Included<'_> {
    fn list(&mut self, folder: &str) -> Result<Vec<String>, String> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let inside = self.0.keys().filter_map(|name| name.strip_prefix(&folder));
        let names: Vec<String> = inside.filter(|name| !name.contains('/')).map(str::to_owned).collect();
        if names.is_empty() { Err(format!("the description of the run has no folder {folder}")) } else { Ok(names) }
    }

    fn read(&mut self, name: &str, _: u64) -> Result<Vec<u8>, String> {
        let trace = self.0.get(name).ok_or_else(|| format!("{name}: the description of the run has no such trace"))?;
        Ok(trace.bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_a_text_of_digits_in_json() {
        let trace = Trace::from(vec![0, 1, 0x9f, 0xff]);
        let json = serde_json::to_string(&trace).expect("it has a form");
        assert_eq!(json, r#""00019fff""#);
        assert_eq!(serde_json::from_str::<Trace>(&json).expect("it is one"), trace);
        for wrong in [r#""0""#, r#""0g""#, r#""é""#, "1"] {
            assert!(serde_json::from_str::<Trace>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn included_traces_are_in_their_folders() {
        let traces = ["runs/a/llama.0.et", "runs/a/llama.1.et", "./x.0.et"];
        let traces = traces.map(|name| (name.to_owned(), Trace::from(vec![1]))).into();
        let mut included = Included(&traces);
        assert_eq!(included.list("runs/a/").as_deref(), Ok(&["llama.0.et".to_owned(), "llama.1.et".to_owned()][..]));
        assert_eq!(included.list("."), Ok(vec!["x.0.et".to_owned()]));
        assert!(included.list("runs").is_err() && included.list("runs/a/llama").is_err());
        assert!(included.read("./x.0.et", 0).is_ok() && included.read("x.0.et", 0).is_err());
    }
}
