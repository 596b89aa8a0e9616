//! `rnic new`: packages outside of our source tree, in which users write a transport, a controller or a law.

mod build;
mod name;
mod source;
mod template;

use std::io::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::args::{NewArgs, NewKind};
use crate::console;
use crate::failure::Failure;
pub use build::build;
use source::Source;
use template::Template;

/// The JSON object of `rnic new`.
#[derive(Debug, Serialize)]
struct Made {
    folder: String,
    files: Vec<&'static str>,
    /// The source tree or the repository that has OpenRNIC's crates.
    depends_on: String,
}

/// Runs `rnic new`.
///
/// # Errors
/// When the name cannot be used, the folder exists, there is no source tree at the given path, or a file cannot be
/// written.
pub fn run(args: &NewArgs) -> Result<(), Failure> {
    let template = match args.kind {
        NewKind::Transport => &template::TRANSPORT,
        NewKind::Controller => &template::CONTROLLER,
        NewKind::Law => &template::LAW,
    };
    let name = args.name.as_str();
    name::check(name, args.kind).map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let source = Source::choose(args.path.as_deref())?;
    let folder = Path::new(name);
    write(folder, template, &source).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::file(folder, "exists already; choose another name, or another folder to work in")
        }
        _ => Failure::file(folder, error),
    })?;
    let files: Vec<&str> = template.files.iter().map(|file| file.path).collect();
    let text = format!(
        "{name}: a package that depends on {source}, with {}\nnext: cd {name} && cargo test; README.md has more\n",
        files.join(", "),
    );
    let made = Made { folder: name.to_owned(), files, depends_on: source.to_string() };
    console::result(&text, args.json.then_some(&made));
    Ok(())
}

/// Writes the files of `template` into `folder`, which must not exist, and whose name is that of the package.
fn write(folder: &Path, template: &Template, source: &Source) -> io::Result<()> {
    let name = folder.to_string_lossy();
    fs::create_dir(folder)?;
    for file in template.files {
        let path = folder.join(file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create_new(path)?.write_all(template.fill(file, &name, source).as_bytes())?;
    }
    Ok(())
}
