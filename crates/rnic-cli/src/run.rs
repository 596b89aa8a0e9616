//! `rnic run`: runs an unmodified program on the software device.
//!
//! It sets environment variables and replaces itself with the program. The project's libraries take precedence over
//! the system's in two ways: by `LD_LIBRARY_PATH`, for libraries that are loaded by name at run time, and by
//! `LD_PRELOAD`, which has precedence over paths that are built into programs. Programs for which this would silently
//! fail (static, setuid, of another architecture) are rejected.

pub mod library;
mod program;
mod record;
mod unpack;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rnic_host::{Protection, Settings};
use rnic_transports::programs;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::{console, shell};

use library::Libraries;

/// Runs `rnic run`. This function returns only if the program could not be started, or, with a recording, when it has
/// ended successfully.
///
/// # Errors
/// When a setting is wrong, the libraries do not exist, or the program cannot be run this way.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let settings = settings(args)?;
    Settings::from_variables(effective_variables(&settings)).map_err(Failure::input)?;
    let libraries = Libraries::find()?;
    let mut variables = settings;
    variables.extend(loader_variables(&libraries, args.sockets, |name| std::env::var_os(name)));
    if args.show {
        show(&variables);
        return Ok(());
    }
    let (name, rest) =
        args.command.split_first().ok_or_else(|| Failure::input("no program is given; use `rnic run -- PROGRAM`"))?;
    let path = program::find(name)?;
    program::check(&path)?;
    // Errors are ignored: the program also runs with the default time slices.
    rnic_host::shorten_slices();
    let mut program = Command::new(&path);
    program.arg0(name).args(rest).envs(variables);
    if let Some(file) = &args.record {
        return record::run(&mut program, &path, file, args.record_interval);
    }
    let error = program.exec();
    Err(Failure::file(&path, error))
}

/// Returns the environment variables that the options set, with their values.
fn settings(args: &RunArgs) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut variables = Vec::new();
    for (variable, value) in args.settings.given() {
        let value = match variable.option {
            // Makes the path absolute, because the program may change its working directory before it opens the device.
            "pcap" if !value.is_empty() => absolute(Path::new(value))?.into_os_string(),
            "transport" => {
                let (first, others) = value.split_at(value.find(',').unwrap_or(value.len()));
                if programs::is_file(first) {
                    let mut list = absolute(Path::new(first))?.into_os_string();
                    list.push(others);
                    list
                } else {
                    value.into()
                }
            }
            "key" if !value.is_empty() => {
                let option = Path::new(value);
                Protection::absolute(option).map_err(|error| Failure::file(option, error))?.into_os_string()
            }
            _ => value.into(),
        };
        variables.push((variable.name, value));
    }
    Ok(variables)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::file(path, error))
}

/// Returns the environment of the program as text: the present environment, overridden by `set`. Invalid UTF-8 is
/// replaced.
fn effective_variables(set: &[(&'static str, OsString)]) -> Vec<(String, String)> {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let inherited = std::env::vars_os().filter(|(name, _)| !set.iter().any(|(own, _)| OsStr::new(own) == name));
    let set = set.iter().map(|(name, value)| ((*name).to_owned(), text(value)));
    inherited.map(|(name, value)| (text(&name), text(&value))).chain(set).collect()
}

/// Returns the variables that make the dynamic linker load the project's libraries. Libraries that are already
/// preloaded (a sanitizer, a tracer) stay first. With `sockets`, they include the one for TCP sockets.
pub fn loader_variables(
    libraries: &Libraries,
    sockets: bool,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> [(&'static str, OsString); 3] {
    let mut preloads = vec![libraries.shim(), libraries.verbs()];
    preloads.extend(sockets.then(|| libraries.sockets()));
    let join = |name: &str, own: &[PathBuf], is_own_first: bool| {
        let value = inherited(name).unwrap_or_default();
        let others = value.to_string_lossy().into_owned();
        let is_own = |entry: &&str| own.iter().any(|path| path.as_os_str() == OsStr::new(entry));
        let separators: &[char] = if name == "LD_PRELOAD" { &[':', ' '] } else { &[':'] };
        let others = others.split(separators).filter(|entry| !entry.is_empty() && !is_own(entry)).map(OsString::from);
        let own = own.iter().map(|path| path.clone().into_os_string());
        let parts: Vec<OsString> = if is_own_first { own.chain(others).collect() } else { others.chain(own).collect() };
        parts.join(OsStr::new(":"))
    };
    let folder = [libraries.folder().to_owned()];
    [
        ("LD_LIBRARY_PATH", join("LD_LIBRARY_PATH", &folder, true)),
        ("LD_PRELOAD", join("LD_PRELOAD", &preloads, false)),
        ("RNIC_LIBRARY_DIR", libraries.folder().as_os_str().to_owned()),
    ]
}

fn show(variables: &[(&'static str, OsString)]) {
    for (name, value) in variables {
        console::print(&format!("{}\n", shell::join(&[format!("{name}={}", value.to_string_lossy())])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(inherited: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let libraries = Libraries::at("/opt/rnic");
        let look = |name: &str| inherited.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into());
        let set = loader_variables(&libraries, false, look);
        set.into_iter().map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect()
    }

    #[test]
    fn the_library_folder_is_first_and_the_preloads_are_last() {
        let plain = with(&[]);
        assert_eq!(plain[0], ("LD_LIBRARY_PATH", "/opt/rnic".to_owned()));
        assert_eq!(plain[1], ("LD_PRELOAD", "/opt/rnic/librnic-shim.so:/opt/rnic/libibverbs.so.1".to_owned()));
        let beside = with(&[("LD_LIBRARY_PATH", "/a::/b"), ("LD_PRELOAD", "libasan.so /x.so")]);
        assert_eq!(beside[0].1, "/opt/rnic:/a:/b");
        assert_eq!(beside[1].1, "libasan.so:/x.so:/opt/rnic/librnic-shim.so:/opt/rnic/libibverbs.so.1");
    }

    #[test]
    fn the_library_for_sockets_is_preloaded_only_on_request() {
        let libraries = Libraries::at("/opt/rnic");
        let set = loader_variables(&libraries, true, |_| None);
        let preloads = "/opt/rnic/librnic-shim.so:/opt/rnic/libibverbs.so.1:/opt/rnic/librnic_sockets.so";
        assert_eq!(set[1], ("LD_PRELOAD", preloads.into()));
    }

    #[test]
    fn a_nested_run_adds_no_variables() {
        let once = with(&[]);
        let pairs: Vec<(&str, &str)> = once.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(with(&pairs), once);
    }
}
