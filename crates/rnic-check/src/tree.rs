//! The files that are checked: the real tree, or a synthetic one in a test.

pub mod manifest;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::rust_source::RustSource;
use manifest::Package;

/// Size limit in bytes above which files are listed but not read, because no check uses the text of such files.
const READ_BYTES_MAX: u64 = 4 << 20;

/// Every file of the project that version control does not ignore.
pub struct Tree {
    files: BTreeMap<String, SourceFile>,
    packages: OnceCell<Vec<Package>>,
}

/// One file of the tree.
pub struct SourceFile {
    /// Path from the root of the tree, with `/`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// `true` if its owner may execute it.
    pub is_executable: bool,
    text: Option<String>,
    rust: OnceCell<Result<RustSource, syn::Error>>,
}

impl Tree {
    /// Reads the tree under `root`, except for files that `.gitignore` excludes, `.git` itself and Cargo's target
    /// directories under any name.
    ///
    /// # Errors
    /// When a directory or file cannot be read.
    pub fn load(root: &Path) -> io::Result<Self> {
        let walk = ignore::WalkBuilder::new(root)
            .hidden(false)
            .parents(false)
            .git_global(false)
            .git_exclude(false)
            .require_git(false)
            .filter_entry(|entry| entry.file_name() != ".git" && !entry.path().join("CACHEDIR.TAG").exists())
            .build();
        let mut files = Vec::new();
        for entry in walk {
            let entry = entry.map_err(io::Error::other)?;
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                files.push(SourceFile::load(root, entry.path())?);
            }
        }
        Ok(Self::from_files(files))
    }

    /// Returns a tree of synthetic files, each a path and its text.
    pub fn synthetic<P: Into<String>, T: Into<String>>(files: impl IntoIterator<Item = (P, T)>) -> Self {
        Self::from_files(files.into_iter().map(|(path, text)| SourceFile::synthetic(path, text)))
    }

    /// Returns a tree of these files.
    pub fn from_files(files: impl IntoIterator<Item = SourceFile>) -> Self {
        let files = files.into_iter().map(|file| (file.path.clone(), file)).collect();
        Self { files, packages: OnceCell::new() }
    }

    /// Returns the workspace root at or above `start`: the nearest directory whose Cargo.toml has a `[workspace]`.
    pub fn find_root(start: &Path) -> Option<PathBuf> {
        let is_root = |dir: &&Path| {
            fs::read_to_string(dir.join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
        };
        start.ancestors().find(is_root).map(Path::to_path_buf)
    }

    /// Returns every file, in order of path.
    pub fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.values()
    }

    /// Returns every file whose name ends in `suffix`.
    pub fn files_ending(&self, suffix: &str) -> impl Iterator<Item = &SourceFile> {
        self.files().filter(move |file| file.path.ends_with(suffix))
    }

    /// Returns the file at `path`.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.get(path)
    }

    /// Returns `true` if `path` is a file or a directory of the tree; the empty path is its root.
    pub fn exists(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(inside.clone()..).next().is_some_and(|(found, _)| found.starts_with(&inside))
    }

    /// Returns every Cargo package, in order of directory.
    pub fn packages(&self) -> &[Package] {
        self.packages.get_or_init(|| self.files_ending("Cargo.toml").filter_map(Package::read).collect())
    }

    /// Returns the package in the innermost directory that contains `path`.
    pub fn package_of(&self, path: &str) -> Option<&Package> {
        self.packages().iter().filter(|package| package.holds(path)).max_by_key(|package| package.dir.len())
    }

    /// Returns the file that contains the header (card) of `package`: its library, or its program when there is no
    /// library.
    pub fn root_file(&self, package: &Package) -> Option<&SourceFile> {
        self.file(&package.path("src/lib.rs")).or_else(|| self.file(&package.path("src/main.rs")))
    }

    /// Returns the parsed Rust files that are part of the product: no tests, benches or examples. A module of tests is
    /// called `tests`, or its files begin with `#![cfg(test)]`.
    pub fn production_rust(&self) -> impl Iterator<Item = (&SourceFile, &RustSource)> {
        self.rust().filter(|(file, source)| {
            let inside = self.package_of(&file.path).map_or("", |package| package.inside(&file.path));
            let is_test = |part| matches!(part, "tests" | "tests.rs" | "benches" | "examples");
            !inside.split('/').any(is_test) && !source.is_test_line(1)
        })
    }

    /// Returns every Rust file that parses.
    pub fn rust(&self) -> impl Iterator<Item = (&SourceFile, &RustSource)> {
        self.files_ending(".rs").filter_map(|file| Some((file, file.rust()?.as_ref().ok()?)))
    }
}

impl SourceFile {
    /// Returns a synthetic file for a test.
    pub fn synthetic(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let (path, bytes) = (path.into(), text.len() as u64);
        Self { path, bytes, is_executable: false, text: Some(text), rust: OnceCell::new() }
    }

    fn load(root: &Path, path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let (bytes, is_executable) = (metadata.len(), metadata.permissions().mode() & 0o100 != 0);
        let text = if bytes <= READ_BYTES_MAX { String::from_utf8(fs::read(path)?).ok() } else { None };
        let relative = path.strip_prefix(root).map_err(io::Error::other)?;
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        Ok(Self { path: parts.join("/"), bytes, is_executable, text, rust: OnceCell::new() })
    }

    /// Returns the text; `None` when the file is not UTF-8 or too large to be read.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns the lines with their numbers, from 1; none when there is no text.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text().unwrap_or_default().lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the file parsed as Rust; `None` when it is not a Rust file.
    pub fn rust(&self) -> Option<&Result<RustSource, syn::Error>> {
        if !self.path.ends_with(".rs") {
            return None;
        }
        let text = self.text()?;
        Some(self.rust.get_or_init(|| RustSource::parse(text)))
    }

    /// Returns the number of the first line for which `is_it` returns true; 1 when there is none.
    pub fn line_where(&self, is_it: impl Fn(&str) -> bool) -> usize {
        self.lines().find(|(_, line)| is_it(line)).map_or(1, |(number, _)| number)
    }
}
