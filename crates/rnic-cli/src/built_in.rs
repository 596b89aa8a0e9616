//! Files that are part of the command, and the names by which plans and experiments are found: the only place that
//! decides between them and files on disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rnic_base::similar;
use rnic_reproduce::{Files, PlanFolder};

use crate::failure::Failure;

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// A file or folder, and the place where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// Path in that place.
    pub path: PathBuf,
    /// The file system, or the files of the command.
    pub files: Files,
}

impl Located {
    /// Returns the folder of a plan: it has the files that the plan names.
    pub fn folder(&self) -> PlanFolder {
        PlanFolder { files: self.files, path: self.path.parent().unwrap_or(Path::new(".")).to_owned() }
    }
}

/// Returns the plan that `word` names. A word with a slash, or that ends in `.toml`, is the path of a file; another is
/// the name of a built-in plan, or, if there is none, a file in the current folder.
///
/// # Errors
/// When there is no such plan.
pub fn plan(word: &Path) -> Result<Located, Failure> {
    let stem = word.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let built_in = PathBuf::from(format!("{PLANS}/{stem}.toml"));
    let is_built_in = Files::BuiltIn(TEXTS).has_file(&built_in);
    let is_path = word.components().count() > 1 || word.has_root() || word.extension().is_some_and(|end| end == "toml");
    if is_built_in && !is_path {
        return Ok(Located { path: built_in, files: Files::BuiltIn(TEXTS) });
    }
    if word.exists() {
        return Ok(Located { path: word.to_owned(), files: Files::Disk });
    }
    if is_path {
        let hint =
            if is_built_in { format!("; a plan of this name is built in: `rnic sim {stem}`") } else { String::new() };
        return Err(Failure::file(word, format!("No such file or directory{hint}")));
    }
    let file = word.with_extension("toml");
    let hint = match file.exists() {
        true => format!("; did you mean `{}`?", file.display()),
        false => similar::hint(&word.to_string_lossy(), plans().map(|(name, _)| name)),
    };
    Err(Failure::file(word, format!("neither a built-in plan nor a file{hint} (`rnic list` lists all plans)")))
}

/// Returns the folder of experiments: the one that was given, `experiments` in the current folder, which a source tree
/// has, or the built-in ones.
pub fn experiments(given: Option<&Path>) -> Located {
    let here = Path::new(EXPERIMENTS);
    match given.or_else(|| here.is_dir().then_some(here)) {
        Some(path) => Located { path: path.to_owned(), files: Files::Disk },
        None => Located { path: here.to_owned(), files: Files::BuiltIn(TEXTS) },
    }
}

/// Returns name and text of each built-in plan.
pub fn plans() -> impl Iterator<Item = (&'static str, &'static str)> {
    TEXTS.iter().filter_map(|(path, text)| {
        let name = path.strip_prefix(PLANS)?.strip_prefix('/')?.strip_suffix(".toml")?;
        Some((name, *text))
    })
}

/// Returns what a plan simulates: the first sentence of its first comment.
pub fn summary(plan: &str) -> String {
    let comment = plan.lines().map_while(|line| line.strip_prefix('#')).take_while(|line| !line.trim().is_empty());
    let text = comment.map(str::trim).collect::<Vec<_>>().join(" ");
    text.split_once(". ").map_or(text.as_str(), |(first, _)| first).trim_end_matches(['.', ':']).to_owned()
}

const PLANS: &str = "plans";
const EXPERIMENTS: &str = "experiments";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_found_by_name_and_files_by_path() {
        let found = plan(Path::new("irn-default")).expect("a built-in plan");
        assert_eq!(found.path, Path::new("plans/irn-default.toml"));
        assert_ne!(found.files, Files::Disk);
        let folder = tempfile::tempdir().expect("a folder for the test");
        let file = folder.path().join("irn-default");
        std::fs::write(&file, "").expect("a file");
        assert_eq!(plan(&file).expect("a file").files, Files::Disk);
        let error = |word: &str| plan(Path::new(word)).expect_err(word).to_string();
        assert!(error("nowhere/irn-default.toml").ends_with("is built in: `rnic sim irn-default`"));
        assert!(error("irn-defualt").contains("did you mean `irn-default`?"), "{}", error("irn-defualt"));
        assert!(!error("x.toml").contains("built in"));
    }

    #[test]
    fn every_plan_has_a_summary() {
        let all: Vec<_> = plans().collect();
        assert!(all.len() >= 11, "{}", all.len());
        for (name, text) in all {
            let summary = summary(text);
            assert!(summary.len() > 20 && !summary.ends_with('.'), "{name}: {summary}");
        }
    }
}
