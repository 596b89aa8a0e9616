//! Writes output files atomically: complete or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A folder for results, created when it does not exist.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Returns the folder at `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn make(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| Failure::file(path, error))?;
        Ok(Self(path.to_owned()))
    }

    /// Writes the file `name` by calling `fill`, under a temporary name until it is complete, and returns the path of
    /// the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(
        &self,
        name: &str,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<PathBuf, Failure> {
        let (path, partial) = (self.0.join(name), self.0.join(format!(".{name}.partial")));
        let write = || -> io::Result<()> {
            let mut output = BufWriter::new(File::create(&partial)?);
            fill(&mut output)?;
            output.flush()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|error| Failure::file(&path, error))?;
        Ok(path)
    }

    /// Writes `text` to the file `name`; returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_text(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        self.write(name, |output| output.write_all(text.as_bytes()))
    }
}

/// Opens the capture file that the user requested.
///
/// # Errors
/// When the file cannot be created.
pub fn capture(path: &Path) -> Result<BufWriter<File>, Failure> {
    File::create(path).map(BufWriter::new).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_write_fails_is_removed() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let folder = Folder::make(&root.path().join("a/b")).expect("folders are made");
        let written = folder.write_text("good", "text").expect("it is written");
        assert_eq!(fs::read_to_string(written).expect("the file exists"), "text");
        let failure = folder.write("bad", |output| output.write_all(b"ha").and(Err(io::Error::other("no more"))));
        assert!(failure.expect_err("it failed").to_string().contains("no more"));
        assert!(!root.path().join("a/b/bad").exists());
    }
}
