//! Dissects captures with tshark.
//!
//! Needs `tshark` (Debian package tshark). Without it the tests say so and pass; with `RNIC_REQUIRE_TSHARK=1` in the
//! environment they fail.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it has tshark read files")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use rnic_base::Time;
use rnic_wire::pcap::Capture;
use rnic_wire::{Addresses, IpFields};

/// Numeric fields and the values that tshark must show for them.
pub type Numbers = Vec<(&'static str, u64)>;

/// A datagram with its addresses and IP fields.
pub struct Sent {
    pub path: Addresses,
    pub fields: IpFields,
    pub datagram: Vec<u8>,
}

impl Sent {
    /// Returns a datagram with default IP fields.
    pub fn plain(path: Addresses, datagram: Vec<u8>) -> Self {
        Self { path, fields: IpFields::default(), datagram }
    }
}

/// Writes a capture and dissects it with tshark, run with `arguments`; returns the layers of each frame, or `None`
/// without tshark.
pub fn dissect(name: &str, sent: &[Sent], arguments: &[&str]) -> Option<Vec<Value>> {
    dissect_cut(name, sent, |_| usize::MAX, arguments)
}

/// Like [`dissect`], for a capture that has at most `snap_len` bytes of each frame.
pub fn dissect_cut(
    name: &str,
    sent: &[Sent],
    snap_len: impl Fn(usize) -> usize,
    arguments: &[&str],
) -> Option<Vec<Value>> {
    if let Err(error) = Command::new("tshark").arg("--version").output() {
        let required = std::env::var("RNIC_REQUIRE_TSHARK").is_ok_and(|value| value == "1");
        assert!(!required, "tshark is required but does not run: {error}");
        eprintln!("skipped: tshark does not run ({error}); install the package tshark to check captures");
        return None;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
    let mut capture = Capture::new(Vec::new()).expect("a capture");
    for (index, Sent { path, fields, datagram }) in sent.iter().enumerate() {
        capture.write_with(Time::from_us(index as u64), path, *fields, datagram).expect("a frame");
    }
    fs::write(&path, shorten(&capture.into_inner(), snap_len)).expect("a file");
    let output = Command::new("tshark")
        .args(["-n", "-T", "json", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
        .args(["--disable-protocol", "rpcordma"])
        .args(arguments)
        .arg("-r")
        .arg(&path)
        .output()
        .expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let frames: Vec<Value> = serde_json::from_slice(&output.stdout).expect("tshark prints JSON");
    assert_eq!(frames.len(), sent.len());
    Some(frames.into_iter().map(|mut frame| frame["_source"]["layers"].take()).collect())
}

/// Truncates the frames of a capture to `snap_len` bytes each: the record header gives the number of captured bytes
/// and the original length.
fn shorten(capture: &[u8], snap_len: impl Fn(usize) -> usize) -> Vec<u8> {
    let (header, mut rest) = capture.split_at(24);
    let (mut short, mut lens) = (header.to_vec(), (0..).map(snap_len));
    while let Some((about, behind)) = rest.split_at_checked(16) {
        let len = u32::from_be_bytes(about[8..12].try_into().expect("four bytes")) as usize;
        let (frame, behind) = behind.split_at(len);
        let kept = &frame[..len.min(lens.next().expect("one for each"))];
        short.extend([&about[..8], &(kept.len() as u32).to_be_bytes(), &about[12..], kept].concat());
        rest = behind;
    }
    short
}

/// One dissected frame.
pub struct Frame<'a> {
    pub name: &'a str,
    pub layers: &'a Value,
}

impl Frame<'_> {
    /// The text of the first field called `key`, anywhere in the tree.
    pub fn text(&self, key: &str) -> &str {
        find(self.layers, key).unwrap_or_else(|| panic!("{}: no {key} in {:#}", self.name, self.layers))
    }

    pub fn number(&self, key: &str) -> u64 {
        number(self.text(key))
    }

    pub fn check_numbers(&self, expected: &Numbers) {
        for (key, value) in expected {
            assert_eq!(self.number(key), *value, "{}: {key}", self.name);
        }
    }

    pub fn check_texts(&self, expected: &[(&str, String)]) {
        for (key, value) in expected {
            assert_eq!(self.text(key), value, "{}: {key}", self.name);
        }
    }
}

/// The value of the first field called `key`, depth first.
pub fn find_key<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    fields.get(key).or_else(|| fields.values().find_map(|inner| find_key(inner, key)))
}

pub fn find<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    find_key(value, key).and_then(Value::as_str)
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|error| panic!("{text}: {error}"))
}
