//! The packages in `templates/`, which are compiled and tested there as they stand.

use super::source::Source;

/// A package that is copied with another name.
pub struct Template {
    /// Name of the template.
    pub name: &'static str,
    /// Files of the template.
    pub files: &'static [TemplateFile],
}

/// A file of a template.
pub struct TemplateFile {
    /// Path in the package.
    pub path: &'static str,
    text: &'static str,
}

/// Declares a template: its folder, the name of its package, and its files.
macro_rules! template {
    ($folder:literal, $name:literal, [$($path:literal),* $(,)?]) => {
        Template {
            name: $name,
            files: &[$(TemplateFile {
                path: $path,
                text: include_str!(concat!("../../../../templates/", $folder, "/", $path)),
            }),*],
        }
    };
}

/// A transport program.
pub static TRANSPORT: Template = template!(
    "transport",
    "my-transport",
    [".gitignore", "Cargo.toml", "README.md", "plan.toml", "src/lib.rs", "src/main.rs", "tests/program.rs"]
);

/// A congestion controller.
pub static CONTROLLER: Template = template!(
    "controller",
    "my-controller",
    [".gitignore", "Cargo.toml", "README.md", "plan.toml", "src/lib.rs", "src/main.rs", "tests/controller.rs"]
);

/// A law: a controller as a program.
pub static LAW: Template = template!(
    "law",
    "my-law",
    [".gitignore", "Cargo.toml", "README.md", "plan.toml", "src/lib.rs", "src/main.rs", "tests/law.rs"]
);

/// End of a manifest: cargo would take a package in a folder of another workspace for a member that is missing there.
/// Simulations in tests without optimization take ten times as long.
const MANIFEST_END: &str = "
# A workspace of its own, wherever the folder is.
[workspace]

[profile.dev]
opt-level = 1
";

impl Template {
    /// Returns the text of `file` for a package called `name` that uses OpenRNIC's crates from `source`.
    pub fn fill(&self, file: &TemplateFile, name: &str, source: &Source) -> String {
        // A package's name, and that of its library.
        let text = file.text.replace(self.name, name).replace(&self.name.replace('-', "_"), &name.replace('-', "_"));
        if file.path != "Cargo.toml" {
            return text;
        }
        let mut manifest: String = text.lines().map(|line| dependency(line, source) + "\n").collect();
        manifest.push_str(MANIFEST_END);
        manifest
    }
}

/// Returns a line of a manifest, with the source of OpenRNIC's crates where the template has that of the workspace.
fn dependency(line: &str, source: &Source) -> String {
    match line.split_once(" = { workspace = true }") {
        Some((name, "")) if name.starts_with("rnic-") => source.dependency(name),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_template_and_nothing_of_its_workspace_remains() {
        for template in [&TRANSPORT, &CONTROLLER, &LAW] {
            for source in [Source::Tree("/there".to_owned()), Source::Repository("https://example.org/x")] {
                for file in template.files {
                    let text = template.fill(file, "other-name", &source);
                    let as_library = template.name.replace('-', "_");
                    assert!(!text.contains(template.name) && !text.contains(&as_library), "{}: {text}", file.path);
                    assert!(!text.contains("workspace = true"), "{}: {text}", file.path);
                }
                let manifest = template.files.iter().find(|file| file.path == "Cargo.toml").expect("a manifest");
                let manifest = template.fill(manifest, "other-name", &source);
                let expected = match source {
                    Source::Tree(_) => "\nrnic-policy = { path = \"/there/crates/rnic-policy\" }\n",
                    Source::Repository(_) => "\nrnic-policy = { git = \"https://example.org/x\" }\n",
                };
                assert!(manifest.contains(expected) && manifest.contains("name = \"other-name\""), "{manifest}");
            }
        }
    }
}
