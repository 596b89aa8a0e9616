//! Reads files that a user names, with size limits.
//!
//! A name may refer to an endless device (`/dev/zero`), a folder, or a file of a terabyte. Only regular files and
//! pipes are read; pipes, because shells create them (`<(command)`). Everything else is refused without opening it,
//! because opening some devices has side effects.

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
    /// The name refers to neither a regular file nor a pipe; the text names its type.
    #[error("this is {0}; a regular file or a pipe is required")]
    NoFile(&'static str),
    /// Larger than any valid file.
    #[error("the file exceeds the maximum size of {} MiB", .0 >> 20)]
    TooLarge(u64),
    /// The content is not text.
    #[error("the file is not UTF-8 text: byte {0} is invalid")]
    NoText(usize),
}

/// Reads the text file at `path`, of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read, is not text, or is too large.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, InputError> {
    let bytes = read_bytes(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|error| InputError::NoText(error.utf8_error().valid_up_to()))
}

/// Reads the file at `path`, of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be read or is too large.
pub fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(InputError::TooLarge(bytes_max));
    }
    Ok(bytes)
}

/// Opens the file, or the pipe, at `path`.
///
/// # Errors
/// When it cannot be opened, or is neither a file nor a pipe.
pub fn open(path: &Path) -> Result<File, InputError> {
    check_file_type(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    // Checks again, because the path may by now refer to another file.
    check_file_type(&file.metadata()?)?;
    Ok(file)
}

fn check_file_type(metadata: &Metadata) -> Result<(), InputError> {
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

/// Returns a message of a parser on one line.
pub(crate) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Maximum size in bytes of a plan, an experiment or its factors; they usually have some kilobytes.
pub const PLAN_BYTES_MAX: u64 = 16 << 20;

/// Maximum size in bytes of a list of flows or lengths that a plan names: some ten million lines.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Maximum length in bytes of a line of a file of samples: a series has some megabytes.
pub const LINE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn refusal(path: &Path, bytes_max: u64) -> String {
        read_text(path, bytes_max).expect_err("the file is refused").to_string()
    }

    #[test]
    fn devices_and_directories_are_refused() {
        assert_eq!(refusal(Path::new("/dev/zero"), 10), "this is a device; a regular file or a pipe is required");
        assert_eq!(refusal(Path::new("/"), 10), "this is a directory; a regular file or a pipe is required");
        assert!(refusal(Path::new("/nowhere"), 10).contains("No such file"));
    }

    #[test]
    fn a_file_is_read_up_to_the_size_limit() {
        let folder = tempfile::tempdir().expect("the directory is created");
        let path = folder.path().join("plan.toml");
        fs::write(&path, vec![b'a'; 2 << 20]).expect("the file is written");
        assert_eq!(read_text(&path, 2 << 20).expect("the file is below the limit").len(), 2 << 20);
        assert_eq!(refusal(&path, 1 << 20), "the file exceeds the maximum size of 1 MiB");
        fs::write(&path, b"abc\xff").expect("the file is written");
        assert_eq!(refusal(&path, 10), "the file is not UTF-8 text: byte 3 is invalid");
        // The length that can be read differs from the length in the file's metadata.
        let sparse = File::create(&path).expect("the file is written");
        sparse.set_len(1 << 40).expect("a sparse file is created");
        assert!(refusal(&path, 1 << 20).contains("maximum size of 1 MiB"));
        (&sparse).flush().expect("the file is flushed");
    }
}
