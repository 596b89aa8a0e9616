//! The capture file of a process that may exit at any moment, and that may run next to other processes with the same
//! file name setting.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{process, thread};

use super::{Settings, SettingsError};
use crate::background;

/// A capture file. When the process is killed, the file is complete except for the last moments.
#[derive(Debug)]
pub struct CaptureFile {
    path: PathBuf,
    capture: Arc<Mutex<OpenCapture>>,
}

/// An open capture file, and the bytes that have not been written to it yet.
#[derive(Debug)]
struct OpenCapture {
    file: File,
    /// ID of the process that writes the file: a child that has inherited the descriptor has another ID.
    process: u32,
    /// True when the header has been written to the file, so that readers recognise the format.
    has_header: bool,
    buffer: Vec<u8>,
    /// Error of a write for which there was no caller to return it to.
    failed: Option<io::Error>,
}

impl OpenCapture {
    fn flush(&mut self) -> io::Result<()> {
        if self.process != process::id() {
            // The buffer is cleared: the process that opened the file writes these bytes from its own copy of the
            // buffer.
            self.buffer.clear();
            return Ok(());
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let result = self.file.write_all(&self.buffer);
        self.buffer.clear();
        result
    }
}

impl Settings {
    /// Opens the capture file, if one is configured.
    ///
    /// Several processes may have the same file name setting. `%p` in it is replaced by the process ID. Without it, the
    /// first process uses the name as it is, and those that start while it runs insert their process ID before the
    /// extension: `out.pcap`, `out.4711.pcap`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open_capture(&self) -> Result<Option<CaptureFile>, SettingsError> {
        let Some(path) = &self.capture else { return Ok(None) };
        let refused =
            |error: io::Error| SettingsError::Capture { path: path.display().to_string(), reason: error.to_string() };
        CaptureFile::open(path, process::id()).map(Some).map_err(refused)
    }
}

impl CaptureFile {
    /// Opens the file with the first name that no process is writing.
    fn open(path: &Path, pid: u32) -> io::Result<Self> {
        for count in 0..FILES_MAX {
            match Self::create(&name(path, pid, count)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
        Err(io::Error::other("all capture files derived from this name are in use by other processes"))
    }

    /// Creates or empties `path`, unless another process is writing it.
    fn create(path: &Path) -> io::Result<Self> {
        // Opened without truncation, because another process may be writing it.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
        }
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let (process, buffer) = (process::id(), Vec::with_capacity(BUFFER_BYTES));
        let capture = Arc::new(Mutex::new(OpenCapture { file, process, has_header: false, buffer, failed: None }));
        let weak = Arc::downgrade(&capture);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.strong_count() > 0);
        open.push(Weak::clone(&weak));
        drop(open);
        // Without this thread, a killed process loses up to one buffer of its capture.
        let _ = background::spawn("rnic-capture", move || flush_periodically(&weak));
        Ok(Self { path: path.to_owned(), capture })
    }

    /// Writes out all captures of this process; called when a process exits without closing them. A capture whose
    /// lock is not released within a short time is skipped.
    pub fn flush_all() {
        let open = background::lock_at_exit(&OPEN).map(|open| open.clone()).unwrap_or_default();
        for capture in open.iter().filter_map(Weak::upgrade) {
            if let Some(mut capture) = background::lock_at_exit(&capture) {
                capture.failed = capture.flush().err();
            }
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn capture(&self) -> MutexGuard<'_, OpenCapture> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn flush_periodically(capture: &Weak<Mutex<OpenCapture>>) {
    loop {
        thread::sleep(BUFFER_TIME_MAX);
        let Some(capture) = capture.upgrade() else { return };
        let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        capture.failed = capture.flush().err();
    }
}

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut capture = self.capture();
        if capture.failed.is_some() || capture.buffer.len() + bytes.len() > BUFFER_BYTES {
            capture.flush()?;
        }
        capture.buffer.extend_from_slice(bytes);
        if !std::mem::replace(&mut capture.has_header, true) {
            capture.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.capture().flush()
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        let mut capture = self.capture();
        let _ = capture.flush();
        // Unlocked explicitly, because a child process shares the lock through its inherited descriptor, and a
        // concurrent flush may keep the file open slightly longer.
        if capture.process == process::id() {
            let _ = capture.file.unlock();
        }
    }
}

/// Returns the `count`-th name that a process tries: `out.pcap`, `out.4711.pcap`, `out.4711-2.pcap` and so on; when
/// the name contains the placeholder, `out-4711.pcap`, `out-4711-2.pcap` and so on.
fn name(path: &Path, pid: u32, count: u32) -> PathBuf {
    let text = path.to_string_lossy();
    if text.contains(PLACEHOLDER) {
        let number = if count == 0 { pid.to_string() } else { format!("{pid}-{}", count + 1) };
        return PathBuf::from(text.replace(PLACEHOLDER, &number));
    }
    let number = match count {
        0 => return path.to_owned(),
        1 => pid.to_string(),
        _ => format!("{pid}-{count}"),
    };
    match path.extension() {
        Some(extension) => path.with_extension(format!("{number}.{}", extension.to_string_lossy())),
        None => path.with_extension(number),
    }
}

/// The open captures of this process.
static OPEN: Mutex<Vec<Weak<Mutex<OpenCapture>>>> = Mutex::new(Vec::new());

/// Placeholder for the process ID.
const PLACEHOLDER: &str = "%p";
/// Buffer size in bytes: large enough that the cost of the write system call per packet is small.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum time that bytes stay in the buffer: it limits the amount that is lost when the process is killed.
const BUFFER_TIME_MAX: Duration = Duration::from_millis(20);
/// Maximum number of devices that one process captures at the same time.
const FILES_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: PathBuf) -> Settings {
        Settings { capture: Some(path), ..Settings::default() }
    }

    #[test]
    fn a_second_capture_of_the_same_name_gets_another_file() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let settings = settings(folder.path().join("out.pcap"));
        let open = || settings.open_capture().expect("it can be written").expect("a capture is configured");
        let (mut first, second, third) = (open(), open(), open());
        let pid = process::id();
        let name = |file: &CaptureFile| file.path().file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(name(&first), "out.pcap");
        assert_eq!(name(&second), format!("out.{pid}.pcap"));
        assert_eq!(name(&third), format!("out.{pid}-2.pcap"));
        first.write_all(b"abc").expect("it is written");
        let read = || std::fs::read(folder.path().join("out.pcap")).expect("the capture file exists");
        let start = std::time::Instant::now();
        while read() != b"abc" {
            assert!(start.elapsed() < Duration::from_secs(20), "the buffer was not flushed in time");
            thread::sleep(Duration::from_millis(1));
        }
        first.write_all(b"d").expect("it is written");
        drop(first);
        assert_eq!(read(), b"abcd");
        // A later run reuses the name, and the previous contents are gone.
        assert_eq!(name(&open()), "out.pcap");
        assert_eq!(std::fs::read(folder.path().join("out.pcap")).expect("the capture file exists"), b"");
    }

    /// Programs may exit without closing the device, so the header is written immediately and the rest by
    /// `flush_all`.
    #[test]
    fn the_header_is_written_immediately_and_the_rest_by_flush_all() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut file = settings(folder.path().join("out.pcap")).open_capture().expect("a folder").expect("it is set");
        let read = || std::fs::read(folder.path().join("out.pcap")).expect("the capture file exists");
        file.write_all(b"head").expect("it is written");
        assert_eq!(read(), b"head");
        // Repeated, because the background thread may already have written the bytes of a single round.
        for count in 0..100_u8 {
            file.write_all(&[count; 10]).expect("it is written");
            CaptureFile::flush_all();
            assert_eq!(read().len(), 4 + 10 * (usize::from(count) + 1));
        }
    }

    #[test]
    fn the_placeholder_in_a_file_name_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let settings = settings(folder.path().join("a-%p.pcap"));
        // A program may open the device twice, or have children that keep the file open.
        let open = || settings.open_capture().expect("it can be written").expect("a capture is configured");
        let (first, second) = (open(), open());
        assert_eq!(first.path(), folder.path().join(format!("a-{}.pcap", process::id())));
        assert_eq!(second.path(), folder.path().join(format!("a-{}-2.pcap", process::id())));
    }

    #[test]
    fn a_capture_that_cannot_be_written_is_a_one_line_error() {
        let error = settings(PathBuf::from("/nowhere/out.pcap")).open_capture().expect_err("no such folder");
        let said = error.to_string();
        assert!(said.starts_with("RNIC_PCAP=/nowhere/out.pcap: ") && said.lines().count() == 1, "{said}");
    }
}
