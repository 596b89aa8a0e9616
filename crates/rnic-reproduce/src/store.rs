//! Samples stored on disk, one file each, so that a repeated command executes only new runs.
//!
//! A sample is found by its run's key, which covers the plan, its files, the seed and [`SOURCES`](crate::SOURCES): any
//! change to the behaviour of a run changes the key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::input::{LINE_BYTES_MAX, read_text};
use crate::run::Sample;

/// A folder in which samples are stored, one file each.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// Opens the folder `path`, and creates it when it does not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Returns the sample of the run with this key; one that cannot be read counts as missing.
    pub fn get(&self, key: &str) -> Option<Sample> {
        let text = read_text(&self.path(key), LINE_BYTES_MAX).ok()?;
        serde_json::from_str(&text).ok().filter(|sample: &Sample| sample.key == key)
    }

    /// Stores `sample` atomically: completely or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, sample: &Sample) -> io::Result<()> {
        let (path, partial) = (self.path(&sample.key), self.0.join(format!(".{}.partial", sample.key)));
        fs::write(&partial, serde_json::to_string(sample)?)?;
        fs::rename(partial, path)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }
}
