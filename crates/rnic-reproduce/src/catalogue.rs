//! The folder of experiments: `experiments/<paper>/<figure>/experiment.toml`.

use std::path::{Path, PathBuf};

use rnic_base::{plain, similar};

use crate::experiment::Experiment;
use crate::files::Files;
use crate::input::{PLAN_BYTES_MAX, one_line};

/// All experiments of a folder, in order of their ids.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Experiments, in order of their ids.
    pub experiments: Vec<Experiment>,
}

/// Reason why experiments cannot be read. Displays as one line that names file, key and problem.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A file or folder that cannot be read.
    #[error("{path}: {what}")]
    File {
        /// Path of the file or folder.
        path: String,
        /// Error text of the system.
        what: String,
    },
    /// A key of an experiment file, or of the plan in it, is invalid.
    #[error("{path}{}: {key}: {what}", line.map_or_else(String::new, |line| format!(", line {line}")))]
    Key {
        /// Path of the file.
        path: String,
        /// Line in the file, from 1.
        line: Option<usize>,
        /// Key at fault.
        key: String,
        /// Description of the problem.
        what: String,
    },
    /// No experiment or row has that name.
    #[error("there is no experiment, paper or row `{name}`{hint}; `rnic reproduce --list` shows all of them")]
    Unknown {
        /// The unknown name.
        name: String,
        /// A similar name, as a question; empty when there is none.
        hint: String,
    },
}

impl Catalogue {
    /// Reads every experiment in the folder `root` of `files`.
    ///
    /// # Errors
    /// The first problem that is found in any of them.
    pub fn read(files: Files, root: &Path) -> Result<Self, CatalogueError> {
        let mut experiments = Vec::new();
        for paper in folders(files, root)? {
            for figure in folders(files, &paper)? {
                let file = figure.join(FILE);
                if files.has_file(&file) {
                    experiments.push(read(files, &file, &name(&paper), &name(&figure))?);
                }
            }
        }
        Ok(Self { experiments })
    }

    /// Returns everything that a request can name.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.experiments.iter().flat_map(|experiment| {
            let rows = experiment.check.iter().map(|check| check.row.as_str());
            [experiment.id.as_str(), experiment.paper()].into_iter().chain(rows)
        })
    }

    /// Returns the experiments that a request names, each with the requested rows (all when empty).
    ///
    /// # Errors
    /// When no experiment or row has a requested name.
    pub fn select(&self, names: &[String]) -> Result<Vec<Selected<'_>>, CatalogueError> {
        let mut selected: Vec<Selected<'_>> = Vec::new();
        for name in names {
            let mut is_known = false;
            for experiment in &self.experiments {
                let is_whole = name == "all" || experiment.id == *name || experiment.paper() == name;
                let has_row = experiment.check.iter().any(|check| check.row.eq_ignore_ascii_case(name));
                if is_whole || has_row {
                    is_known = true;
                    add(&mut selected, experiment, (!is_whole).then_some(name));
                }
            }
            if !is_known {
                return Err(CatalogueError::Unknown { name: name.clone(), hint: similar::hint(name, self.names()) });
            }
        }
        selected.sort_by(|a, b| a.experiment.id.cmp(&b.experiment.id));
        Ok(selected)
    }
}

/// An experiment that was requested.
#[derive(Clone, Debug)]
pub struct Selected<'c> {
    /// The experiment.
    pub experiment: &'c Experiment,
    /// Requested rows; all when empty.
    pub rows: Vec<String>,
}

impl Selected<'_> {
    /// Returns `true` if the row called `row` was requested.
    pub fn has_row(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|asked| asked.eq_ignore_ascii_case(row))
    }
}

fn add<'c>(selected: &mut Vec<Selected<'c>>, experiment: &'c Experiment, row: Option<&String>) {
    match (selected.iter_mut().find(|other| other.experiment.id == experiment.id), row) {
        (None, row) => selected.push(Selected { experiment, rows: row.into_iter().cloned().collect() }),
        // A request for an experiment and for one of its rows selects the complete experiment.
        (Some(other), None) => other.rows.clear(),
        (Some(other), Some(row)) if !other.rows.is_empty() => other.rows.push(row.clone()),
        (Some(_), Some(_)) => {}
    }
}

impl Experiment {
    /// Returns the name of the paper: the first half of the id.
    pub fn paper(&self) -> &str {
        self.id.split_once('/').map_or(self.id.as_str(), |(paper, _)| paper)
    }
}

fn folders(files: Files, path: &Path) -> Result<Vec<PathBuf>, CatalogueError> {
    let failed = |error: std::io::Error| CatalogueError::File { path: display_path(path), what: error.to_string() };
    files.folders(path).map_err(failed)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// Reads one experiment file.
fn read(files: Files, file: &Path, paper: &str, figure: &str) -> Result<Experiment, CatalogueError> {
    let text = files
        .read_text(file, PLAN_BYTES_MAX)
        .map_err(|error| CatalogueError::File { path: display_path(file), what: error.to_string() })?;
    let mut experiment =
        parse(&text).map_err(|(line, key, what)| CatalogueError::Key { path: display_path(file), line, key, what })?;
    experiment.id = format!("{paper}/{figure}");
    experiment.files = files;
    experiment.folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    let wrong = |(key, what)| CatalogueError::Key { path: display_path(file), line: None, key, what };
    experiment.validate().map_err(wrong)?;
    experiment.base_plan = base_plan(&experiment)?;
    Ok(experiment)
}

type Wrong = (Option<usize>, String, String);

fn parse(text: &str) -> Result<Experiment, Wrong> {
    let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let line_of = |error: &toml::de::Error| error.span().map(|span| line_at(span.start));
    let deserializer = toml::Deserializer::parse(text)
        .map_err(|error| (line_of(&error), "the file is not valid TOML".to_owned(), one_line(error.message())))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        let key = if path == "." { "top level".to_owned() } else { path };
        (line_of(error.inner()), key, plain::explained(error.inner().message()))
    })
}

fn base_plan(experiment: &Experiment) -> Result<toml::Table, CatalogueError> {
    let Some(plan) = &experiment.plan else { return Ok(experiment.base.clone().unwrap_or_default()) };
    let path = experiment.folder.join(plan);
    let failed = |what: String| CatalogueError::File { path: display_path(&path), what };
    let text = experiment.files.read_text(&path, PLAN_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    text.parse().map_err(|error: toml::de::Error| failed(one_line(error.message())))
}

/// Name of an experiment's file.
pub const FILE: &str = "experiment.toml";
