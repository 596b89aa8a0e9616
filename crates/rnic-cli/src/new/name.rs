//! Names of new packages.

use rnic_transports::{control, profiles, programs};

use crate::args::NewKind;

/// Longest name, that of a program file.
const LENGTH_MAX: usize = 32;

/// Names that a package must not have: keywords of the language, and crates on which every program or template depends.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "bytemuck",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Checks that `name` can be that of a package, a program file and a policy at once.
///
/// # Errors
/// The reason why not.
pub fn check(name: &str, kind: NewKind) -> Result<(), String> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_letter);
    if !is_name || name.ends_with('-') || name.contains("--") || name.len() > LENGTH_MAX {
        return Err(format!(
            "not a valid name; choose another, of at most {LENGTH_MAX} lower-case letters and digits, with single \
             hyphens between them and a letter first"
        ));
    }
    if TAKEN.contains(&name) || name.starts_with("rnic-") {
        return Err("Rust, or one of the crates of OpenRNIC, uses this name; choose another".to_owned());
    }
    let is_known = match kind {
        NewKind::Transport => programs::find(name).is_some() || profiles::profile(name).is_some(),
        NewKind::Controller | NewKind::Law => control::find(name).is_some(),
    };
    if is_known {
        return Err("an item of `rnic list` has this name; choose another".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suit_packages_files_and_policies() {
        let longest = "a2345678901234567890123456789012";
        for name in ["ecn-reno", "x", "a1-2", longest, "state", "transport", "mod-1"] {
            assert_eq!(check(name, NewKind::Transport), Ok(()), "{name}");
        }
        let long = format!("{longest}3");
        let wrong = ["", "-a", "a-", "a--b", "1a", "Reno", "a_b", "a b", "../a", "/a", "ä", long.as_str(), "a\n"];
        for name in wrong {
            assert!(check(name, NewKind::Transport).is_err_and(|why| why.contains("not a valid name")), "{name}");
        }
        for name in ["match", "std", "test", "rnic-program", "rnic-x"] {
            assert!(check(name, NewKind::Transport).is_err_and(|why| why.contains("crates of OpenRNIC")), "{name}");
        }
        for name in ["reno", "tonic-reno", "irn"] {
            assert!(check(name, NewKind::Transport).is_err_and(|why| why.contains("rnic list")), "{name}");
        }
        assert!(check("dctcp", NewKind::Controller).is_err_and(|why| why.contains("rnic list")));
        assert_eq!(check("dctcp", NewKind::Transport), Ok(()));
    }
}
