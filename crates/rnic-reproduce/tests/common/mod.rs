//! Small catalogues for tests, and helpers to run them.

#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rnic_reproduce::judge::Samples;
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::{Catalogue, Files, Report, RunSpec, Size, Work};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The example of the documentation.
pub fn example() -> String {
    let page = fs::read_to_string(root().join("docs/reproduce.md")).expect("docs/reproduce.md is readable");
    let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
    rest.split_once("```").expect("the example ends with a fence").0.to_owned()
}

/// A catalogue with one experiment, `paper/figure`.
pub fn catalogue(text: &str) -> Result<Catalogue, String> {
    let folder = tempfile::tempdir().expect("the test folder is created");
    let dir = folder.path().join("paper/figure");
    fs::create_dir_all(&dir).expect("the folders are created");
    fs::write(dir.join("experiment.toml"), text).expect("the file is written");
    Catalogue::read(Files::Disk, folder.path()).map_err(|error| error.to_string())
}

/// Returns the error with which the experiment `text` is rejected, either when it is read or when its plans are.
pub fn refusal(text: &str) -> String {
    match catalogue(text) {
        Err(error) => error,
        Ok(catalogue) => {
            let selected = catalogue.select(&["all".to_owned()]).expect("`all` is a valid name");
            Work::new(selected, Size::Full, None).expect_err(text).to_string()
        }
    }
}

/// Returns the error with which the experiment `text` is rejected when it is read.
pub fn read_error(text: &str) -> String {
    catalogue(text).expect_err(text)
}

/// Checks each case: with the first string in `good` replaced by the second, the error is one line that names the
/// file and contains the third.
#[track_caller]
pub fn assert_errors(good: &str, error_of: fn(&str) -> String, cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from} is not in the text");
        let error = error_of(&text);
        assert!(error.contains(expected) && !error.contains('\n'), "{to}: {error}");
        assert!(error.contains("paper/figure/experiment.toml"), "{error}");
    }
}

pub fn all(catalogue: &Catalogue, size: Size) -> Work<'_> {
    let selected = catalogue.select(&["all".to_owned()]).expect("`all` is a valid name");
    Work::new(selected, size, None).expect("every plan can be run")
}

pub fn run(work: &Work<'_>, jobs: usize) -> Samples {
    let specs: Vec<&RunSpec> = work.runs.values().collect();
    let mut samples = Samples::new();
    let limits = Limits { jobs: NonZeroUsize::new(jobs).expect("there is at least one job"), memory: 1 };
    let done = |sample: rnic_reproduce::Sample| -> Result<(), ()> {
        samples.insert(sample.key.clone(), sample);
        Ok(())
    };
    pool::run_all(&specs, limits, done).expect("no callback fails");
    samples
}

pub fn report<'r>(work: &'r Work<'r>, samples: &'r Samples) -> Report<'r> {
    Report { work, samples, command: "rnic reproduce all", machine: "a machine", wall_s: 1.0, kept: 0 }
}
