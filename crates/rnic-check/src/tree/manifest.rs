//! The contents of a Cargo.toml, as far as the checks need them.

use super::SourceFile;

/// A Cargo package of the tree.
pub struct Package {
    /// Directory from the root of the tree; empty for the root itself.
    pub dir: String,
    /// Name of the package.
    pub name: String,
    /// Path of its Cargo.toml, from the root of the tree.
    pub manifest_path: String,
    /// Parsed Cargo.toml.
    pub manifest: toml::Table,
}

/// One dependency of a package.
pub struct Dependency {
    /// Key in the manifest, by which its line is found.
    pub key: String,
    /// Name of the package: `package = "..."` when given, otherwise the key.
    pub package: String,
    /// True when only tests, benches and examples use the dependency.
    pub is_dev: bool,
}

impl Package {
    /// Reads `file`; returns `None` when it does not parse or has no `[package]` with a name.
    pub fn read(file: &SourceFile) -> Option<Self> {
        let dir = file.path.strip_suffix("Cargo.toml")?.trim_end_matches('/').to_owned();
        let manifest: toml::Table = file.text()?.parse().ok()?;
        let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
        Some(Self { dir, name, manifest_path: file.path.clone(), manifest })
    }

    /// Returns `true` if `path` is in the package's directory.
    pub fn holds(&self, path: &str) -> bool {
        self.dir.is_empty() || path.strip_prefix(&self.dir).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Converts `path`, which is relative to the package, into a path relative to the root of the tree.
    pub fn path(&self, path: &str) -> String {
        if self.dir.is_empty() { path.to_owned() } else { format!("{}/{path}", self.dir) }
    }

    /// Returns `path`, which is in the package's directory, relative to it.
    pub fn inside<'path>(&self, path: &'path str) -> &'path str {
        path.strip_prefix(&self.dir).unwrap_or(path).trim_start_matches('/')
    }

    /// Returns every dependency (normal, build and dev) for every target.
    pub fn dependencies(&self) -> Vec<Dependency> {
        let targets = self.manifest.get("target").and_then(toml::Value::as_table);
        let mut found = Vec::new();
        collect_dependencies(&self.manifest, &mut found);
        for target in targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table) {
            collect_dependencies(target, &mut found);
        }
        found
    }
}

fn collect_dependencies(table: &toml::Table, found: &mut Vec<Dependency>) {
    for (section, is_dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
        for (key, value) in table.get(section).and_then(toml::Value::as_table).into_iter().flatten() {
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned();
            found.push(Dependency { key: key.clone(), package, is_dev });
        }
    }
}
