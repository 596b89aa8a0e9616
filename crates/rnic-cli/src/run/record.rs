//! Records the NICs of a program while it runs, in the form of a simulation's time series.
//!
//! The command stays the parent of the program, takes a snapshot of every NIC of it and of the processes that it starts
//! (as `rnic top` does) at regular intervals, and ends as the program ended. A process belongs to the recording if it
//! has the variable [`MARK`] in its environment, which children inherit. Signals that only this process receives are
//! passed on; those of a terminal reach the program anyway.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::Time;
use rnic_fabric::record::{Metric, Object, ObjectKind, ParquetRecording, ROWS_MAX, RecordError, Recording, Sample};
use rnic_host::observe::{self, Endpoint, QueuePairSnapshot, Snapshot};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::console;
use crate::failure::Failure;
use crate::output::Folder;

/// Runs `program`, whose file is `path`, records it in `file`, and ends this process as the program ends: with its exit
/// code, or by its signal. Returns when the program has succeeded.
///
/// # Errors
/// When the program cannot be started or the file cannot be created; later, the recording ends and the program goes on.
pub fn run(program: &mut Command, path: &Path, file: &Path, interval: rnic_base::Duration) -> Result<(), Failure> {
    let interval = Duration::from_nanos(interval.as_ps() / 1_000).max(INTERVAL_MIN);
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::file(file, "expected the name of a file"))?;
    let folder = Folder::make(file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let recording = ParquetRecording::new(folder.begin(name)?).map_err(|error| Failure::file(file, error))?;
    // Signals are caught before the program exists, so that none ends this process alone.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]).map_err(Failure::input)?;
    let mark = format!("{MARK}={}", std::process::id());
    let child = program.env(MARK, std::process::id().to_string()).spawn();
    let mut child = child.map_err(|error| {
        folder.discard(name);
        Failure::file(path, error)
    })?;
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    thread::spawn(move || signals.forever().for_each(|signal| pass_on(pid, signal)));
    let (sender, ended) = channel();
    thread::spawn(move || sender.send(child.wait()));
    let mut recorder = Recorder::new(recording, mark);
    let mut next = recorder.start + interval;
    let status = loop {
        match ended.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(status) => break status.map_err(Failure::input)?,
            Err(RecvTimeoutError::Timeout) => recorder.sample(),
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends the status before it ends"),
        }
        // Samples that are late are left out.
        let now = Instant::now();
        next += interval;
        if next < now {
            next = now + interval;
        }
    };
    handle.close();
    recorder.finish(&folder, name);
    end_as(status)
}

/// Passes a signal on to the program, unless a terminal has sent it to the program, too.
fn pass_on(pid: Pid, signal: i32) {
    if !matches!(signal, SIGINT | SIGQUIT)
        && let Some(signal) = Signal::from_named_raw(signal)
    {
        // The program may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// Ends this process as the program has ended; returns if it has succeeded.
fn end_as(status: ExitStatus) -> Result<(), Failure> {
    if let Some(signal) = status.signal() {
        // If the default of the signal is not to end a process, the exit code of shells says that it did.
        let _ = emulate_default_handler(signal);
        std::process::exit(128 + signal);
    }
    match status.code() {
        Some(0) | None => Ok(()),
        Some(code) => std::process::exit(code),
    }
}

/// A recording in progress.
struct Recorder {
    /// `None` after it has ended.
    recording: Option<ParquetRecording<BufWriter<File>>>,
    /// Reason why it has ended before the program.
    failure: Option<RecordError>,
    start: Instant,
    /// Variable and value in the environment of the program.
    mark: String,
    /// True for processes that belong to the program, by number.
    is_own: HashMap<u32, bool>,
    /// Last snapshots, by process and device.
    before: BTreeMap<(u32, u32), Snapshot>,
    objects: Vec<Object>,
    /// Objects of devices, and of their queue pairs by number.
    known: HashMap<(u32, u32, Option<u32>), u32>,
    samples: Vec<Sample>,
    rows: u64,
}

impl Recorder {
    fn new(recording: ParquetRecording<BufWriter<File>>, mark: String) -> Self {
        Self {
            recording: Some(recording),
            failure: None,
            start: Instant::now(),
            mark,
            is_own: HashMap::new(),
            before: BTreeMap::new(),
            objects: Vec::new(),
            known: HashMap::new(),
            samples: Vec::new(),
            rows: 0,
        }
    }

    /// Returns whether a process is the program or was started by it.
    fn is_own(&mut self, pid: u32) -> bool {
        let mark = self.mark.as_bytes();
        *self.is_own.entry(pid).or_insert_with(|| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        })
    }

    /// Takes a sample of every device.
    fn sample(&mut self) {
        if self.recording.is_none() {
            return;
        }
        // Without the kernel's list there is no sample at this time.
        let endpoints: Vec<Endpoint> = observe::endpoints().unwrap_or_default();
        let own: Vec<_> = endpoints.into_iter().filter(|endpoint| self.is_own(endpoint.pid)).collect();
        let at = Time::from_ps(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000) * 1_000);
        for snapshot in observe::fetch_all(&own, SNAPSHOT_TIMEOUT) {
            let key = (snapshot.pid, snapshot.context);
            let before = self.before.remove(&key).unwrap_or_default();
            self.sample_device(at, &before, &snapshot);
            self.before.insert(key, snapshot);
        }
        self.write();
    }

    fn sample_device(&mut self, at: Time, before: &Snapshot, now: &Snapshot) {
        let seconds = now.uptime_us.saturating_sub(before.uptime_us) as f64 / 1e6;
        if seconds <= 0.0 {
            return;
        }
        let process = match now.context {
            0 => format!("{}-{}", now.program, now.pid),
            context => format!("{}-{}/{context}", now.program, now.pid),
        };
        let object = self.object((now.pid, now.context, None), ObjectKind::Host, || process.clone());
        let (old, new) = (&before.counters, &now.counters);
        let increase = |old: u64, new: u64| new.saturating_sub(old) as f64;
        let gbps = |old: u64, new: u64| increase(old, new) * 8.0 / seconds / 1e9;
        let values = [
            (Metric::SentRate, gbps(old.bytes_sent, new.bytes_sent)),
            (Metric::ReceivedRate, gbps(old.bytes_received, new.bytes_received)),
            (Metric::Sent, increase(old.packets_sent, new.packets_sent)),
            (Metric::Retransmitted, increase(old.packets_retransmitted, new.packets_retransmitted)),
            (Metric::MarksReceived, increase(old.marks_received, new.marks_received)),
            (Metric::Timeouts, increase(old.timeouts, new.timeouts)),
            (Metric::Discarded, increase(old.packets_dropped, new.packets_dropped)),
            (Metric::Lost, increase(old.impairment_lost, new.impairment_lost)),
        ];
        self.samples.extend(values.map(|(metric, value)| Sample { at, object, metric, value }));
        let none = QueuePairSnapshot::default();
        for pair in &now.queue_pairs {
            let name = || format!("{process}>{}", pair.peer);
            let object = self.object((now.pid, now.context, Some(pair.number)), ObjectKind::Flow, name);
            self.objects[object as usize].flow = Some(pair.number);
            // A number that is used again belongs to another queue pair, whose counters begin at zero.
            let old = before.queue_pairs.iter().find(|old| old.number == pair.number);
            let old = old.filter(|old| old.packets_sent <= pair.packets_sent).unwrap_or(&none);
            let values = [
                (Metric::Sent, Some(increase(old.packets_sent, pair.packets_sent))),
                (Metric::Retransmitted, Some(increase(old.packets_retransmitted, pair.packets_retransmitted))),
                (Metric::Timeouts, Some(increase(old.timeouts, pair.timeouts))),
                (Metric::Window, pair.window_packets.map(|window| window as f64)),
                (Metric::InFlight, Some(pair.packets_in_flight as f64)),
                (Metric::Rate, pair.dequeue_gbps),
                (Metric::RoundTrip, pair.round_trip_us),
            ];
            let values = values.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
            self.samples.extend(values.map(|(metric, value)| Sample { at, object, metric, value }));
        }
    }

    fn object(&mut self, key: (u32, u32, Option<u32>), kind: ObjectKind, name: impl FnOnce() -> String) -> u32 {
        *self.known.entry(key).or_insert_with(|| {
            self.objects.push(Object { kind, name: name(), flow: None });
            self.objects.len() as u32 - 1
        })
    }

    /// Passes the samples on; a failure ends the recording.
    fn write(&mut self) {
        let Some(recording) = &mut self.recording else { return };
        self.rows += self.samples.len() as u64;
        let written = match self.rows > ROWS_MAX {
            true => Err(RecordError::Full(ROWS_MAX)),
            false => recording.write(&self.objects, core::mem::take(&mut self.samples).into()),
        };
        self.samples.clear();
        if let Err(error) = written {
            self.failure = Some(error);
        }
        if matches!(self.failure, Some(RecordError::Write(_))) {
            self.recording = None;
        }
    }

    /// Completes the file, and gives it its name.
    fn finish(mut self, folder: &Folder, name: &str) {
        let finished = self.recording.as_mut().map_or(Ok(()), |recording| recording.finish(&self.objects));
        let failure = self.failure.take().or(finished.err());
        match failure {
            None => {}
            Some(full @ RecordError::Full(_)) => {
                console::line(&format!("rnic: the recording ended before the program: {full}"));
            }
            Some(error) => {
                console::line(&format!("rnic: the recording ended before the program, without {name}: {error}"));
                return folder.discard(name);
            }
        }
        match folder.keep(name) {
            Ok(path) => console::line(&format!("rnic: recorded {} values in {}", self.rows, path.display())),
            Err(failure) => console::line(&failure.to_string()),
        }
    }
}

/// Variable in the environment of a recorded program: the number of the process that records it.
const MARK: &str = "OPENRNIC_RECORDED_BY";

/// Shortest interval between two samples.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Time within which devices must answer.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_millis(300);
