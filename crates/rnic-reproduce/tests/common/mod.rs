//! Small catalogues, and what becomes of them.

#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rnic_reproduce::judge::Samples;
use rnic_reproduce::pool::{self, Limits};
use rnic_reproduce::{Catalogue, Report, RunSpec, Size, Work};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The example of the documentation.
pub fn example() -> String {
    let page = fs::read_to_string(root().join("docs/reproduce.md")).expect("the page");
    let (_, rest) = page.split_once("```toml\n").expect("it has an example");
    rest.split_once("```").expect("which ends").0.to_owned()
}

/// A catalogue with one experiment, `paper/figure`.
pub fn catalogue(text: &str) -> Result<Catalogue, String> {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let place = folder.path().join("paper/figure");
    fs::create_dir_all(&place).expect("folders are made");
    fs::write(place.join("experiment.toml"), text).expect("it is written");
    Catalogue::read(folder.path()).map_err(|error| error.to_string())
}

/// Why the experiment `text` is refused: when it is read, or when its plans are.
pub fn refusal(text: &str) -> String {
    match catalogue(text) {
        Err(said) => said,
        Ok(catalogue) => {
            let selected = catalogue.select(&["all".to_owned()]).expect("all is always there");
            Work::new(selected, Size::Full, None).expect_err(text).to_string()
        }
    }
}

/// Why the experiment `text` is refused when it is read.
pub fn misread(text: &str) -> String {
    catalogue(text).expect_err(text)
}

/// What is wrong with `good` when in it this is replaced by that: each is one line, with the file, that has the third.
#[track_caller]
pub fn mistakes(good: &str, why: fn(&str) -> String, cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from} is in the example");
        let said = why(&text);
        assert!(said.contains(expected) && !said.contains('\n'), "{to}: {said}");
        assert!(said.contains("paper/figure/experiment.toml"), "{said}");
    }
}

pub fn all(catalogue: &Catalogue, size: Size) -> Work<'_> {
    let selected = catalogue.select(&["all".to_owned()]).expect("all is always there");
    Work::new(selected, size, None).expect("every plan can be run")
}

pub fn run(work: &Work<'_>, jobs: usize) -> Samples {
    let specs: Vec<&RunSpec> = work.runs.values().collect();
    let mut samples = Samples::new();
    let limits = Limits { jobs: NonZeroUsize::new(jobs).expect("one at least"), memory: 1 };
    let done = |sample: rnic_reproduce::Sample| -> Result<(), ()> {
        samples.insert(sample.key.clone(), sample);
        Ok(())
    };
    pool::run_all(&specs, limits, done).expect("nobody stops it");
    samples
}

pub fn report<'r>(work: &'r Work<'r>, samples: &'r Samples) -> Report<'r> {
    Report { work, samples, command: "rnic reproduce all", machine: "a machine", wall_s: 1.0, kept: 0 }
}
