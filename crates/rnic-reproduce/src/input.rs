//! Reads files that a user names, with size limits.
//!
//! A name may refer to anything: an endless device (`/dev/zero`), a folder, a file of a terabyte. Anything but a
//! regular file is refused without opening it, because opening some devices has side effects; only pipes are read too,
//! because shells create them (`<(command)`).

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Reason why a file is not read. Displays as text that follows the file name.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Error of the system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The name refers to something other than a file, as described.
    #[error("is {0}, and a file is needed")]
    NoFile(&'static str),
    /// Larger than any valid file.
    #[error("has more than {} MiB, the most that such a file may have", .0 >> 20)]
    TooLarge(u64),
    /// The content is not text.
    #[error("is not text (UTF-8) from byte {0} on")]
    NoText(usize),
}

/// Reads the text file at `path`, of at most `most` bytes.
///
/// # Errors
/// When it cannot be read, is not text, or is too large.
pub fn read_text(path: &Path, most: u64) -> Result<String, InputError> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(InputError::TooLarge(most));
    }
    String::from_utf8(bytes).map_err(|error| InputError::NoText(error.utf8_error().valid_up_to()))
}

/// Opens the file, or the pipe, at `path`.
///
/// # Errors
/// When it cannot be opened, or is something other than a file or a pipe.
pub fn open(path: &Path) -> Result<File, InputError> {
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    // Checks again, because another file may have been put there meanwhile.
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(metadata: &Metadata) -> Result<(), InputError> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_fifo() {
        return Ok(());
    }
    Err(InputError::NoFile(if kind.is_dir() {
        "a directory"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }))
}

/// Maximum size in bytes of a plan, an experiment, or its factors, which have kilobytes.
pub const PLAN_BYTES_MAX: u64 = 16 << 20;

/// Maximum size in bytes of a list of flows or lengths that a plan names: some ten million lines.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Maximum length in bytes of a line of a file of samples: a series has some megabytes.
pub const LINE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn refusal(path: &Path, most: u64) -> String {
        read_text(path, most).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        assert_eq!(refusal(Path::new("/dev/zero"), 10), "is a device, and a file is needed");
        assert_eq!(refusal(Path::new("/"), 10), "is a directory, and a file is needed");
        assert!(refusal(Path::new("/nowhere"), 10).contains("No such file"));
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("plan.toml");
        fs::write(&path, vec![b'a'; 2 << 20]).expect("room");
        assert_eq!(read_text(&path, 2 << 20).expect("it fits").len(), 2 << 20);
        assert_eq!(refusal(&path, 1 << 20), "has more than 1 MiB, the most that such a file may have");
        fs::write(&path, b"abc\xff").expect("room");
        assert_eq!(refusal(&path, 10), "is not text (UTF-8) from byte 3 on");
        // Of a length that its folder entry does not say.
        let sparse = File::create(&path).expect("room");
        sparse.set_len(1 << 40).expect("it has no blocks");
        assert!(refusal(&path, 1 << 20).contains("more than 1 MiB"));
        (&sparse).flush().expect("nothing waits");
    }
}
