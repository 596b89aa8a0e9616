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
        let mut output = self.begin(name)?;
        fill(&mut output).and_then(|()| output.flush()).map_err(|error| Failure::file(&self.0.join(name), error))?;
        self.keep(name)
    }

    /// Starts the file `name`, under a temporary name until [`Self::keep`].
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn begin(&self, name: &str) -> Result<BufWriter<File>, Failure> {
        let file = File::create(self.partial(name));
        file.map(BufWriter::new).map_err(|error| Failure::file(&self.0.join(name), error))
    }

    /// Gives a file that is complete its name; returns its path.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn keep(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        fs::rename(self.partial(name), &path).map_err(|error| Failure::file(&path, error))?;
        Ok(path)
    }

    /// Removes a file that has not been completed.
    pub fn discard(&self, name: &str) {
        // A file that cannot be removed has a name that says that it is incomplete.
        let _ = fs::remove_file(self.partial(name));
    }

    fn partial(&self, name: &str) -> PathBuf {
        self.0.join(format!(".{name}.partial"))
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
