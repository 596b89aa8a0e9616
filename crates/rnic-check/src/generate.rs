//! Generates texts from single declarations: ARCHITECTURE's table of crates from their headers, the clippy.toml files
//! from the bans, the page of mechanisms from the tables and the names of tests.

use core::fmt::Write as _;

use crate::bans::{BANS, Ban, Clippy};
use crate::card::Card;
use crate::crates::{CRATES, Kind};
use crate::mechanisms;
use crate::tree::Tree;

/// Page with the table of crates.
pub const MAP: &str = "ARCHITECTURE.md";
/// Marker at the beginning of the generated part of ARCHITECTURE.md.
pub const CRATES_BEGIN: &str = "<!-- crates:begin -->";
/// Marker at the end of the generated part of ARCHITECTURE.md.
pub const CRATES_END: &str = "<!-- crates:end -->";

/// One generated file.
#[derive(Debug)]
pub struct Generated {
    /// Path from the root of the tree.
    pub path: String,
    /// Complete text that the file should have, or the missing input because of which it cannot be generated.
    pub text: Result<String, String>,
    /// Text of the finding when the file has another text.
    pub stale: &'static str,
}

/// Returns everything that is generated. A page that does not exist is not created: another check reports that it is
/// missing.
pub fn all(tree: &Tree) -> Vec<Generated> {
    let map = tree.file(MAP).and_then(|file| file.text()).map(|text| Generated {
        path: MAP.to_owned(),
        text: with_crates(text, &crates_table(tree)),
        stale: "the table of crates does not say what the cards say",
    });
    let stale = "the lists are not those of crates/rnic-check/src/bans.rs";
    let core = Generated { path: "clippy.toml".to_owned(), text: Ok(clippy_toml(&core_bans(), CORE_HEAD)), stale };
    let edges = CRATES.iter().filter(|rule| rule.kind == Kind::Edge).filter_map(|rule| {
        let dir = &tree.packages().iter().find(|package| package.name == rule.name)?.dir;
        let bans: Vec<&Ban> = BANS.iter().filter(|ban| ban.scope.covers(rule.name)).collect();
        Some(Generated { path: format!("{dir}/clippy.toml"), text: Ok(clippy_toml(&bans, EDGE_HEAD)), stale })
    });
    let mechanisms = tree.file(mechanisms::PAGE).map(|_| Generated {
        path: mechanisms::PAGE.to_owned(),
        text: Ok(mechanisms::page(mechanisms::PAPERS, &mechanisms::tests(tree))),
        stale: "the page does not say what the tables and the tests say",
    });
    map.into_iter().chain([core]).chain(edges).chain(mechanisms).collect()
}

fn with_crates(text: &str, table: &str) -> Result<String, String> {
    let missing = || format!("no `{CRATES_BEGIN}` followed by `{CRATES_END}`");
    let (before, rest) = text.split_once(CRATES_BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(CRATES_END).ok_or_else(missing)?;
    Ok(format!("{before}{CRATES_BEGIN}\n{table}{CRATES_END}{after}"))
}

/// Returns a Markdown table of the crates that exist, in the order of [`crate::crates`].
fn crates_table(tree: &Tree) -> String {
    let mut table = "| crate | purpose | may use | add here |\n|---|---|---|---|\n".to_owned();
    for rule in CRATES {
        let package = tree.packages().iter().find(|package| package.name == rule.name);
        let Some(file) = package.and_then(|package| tree.root_file(package)) else { continue };
        let Some(card) = file.text().and_then(Card::read) else { continue };
        let cell = |heading| card.text(heading).replace('|', "\\|");
        let [purpose, may_use, add_here] = ["Purpose", "May use", "Add here"].map(cell);
        let (name, path) = (rule.name, &file.path);
        let _ = writeln!(table, "| [{name}]({path}) ({}) | {purpose} | {may_use} | {add_here} |", card.colour_word());
    }
    table
}

const CORE_HEAD: &str = "\
# Generated from crates/rnic-check/src/bans.rs by `cargo run -p rnic-check -- --write`.
# These are the rules of the core crates; a crate at the edge has a clippy.toml of its own, which replaces this one.
";
const EDGE_HEAD: &str = "\
# Generated from crates/rnic-check/src/bans.rs by `cargo run -p rnic-check -- --write`.
# A crate at the edge of the project touches the world, so the bans of the core crates do not hold here.
";

fn core_bans() -> Vec<&'static Ban> {
    BANS.iter().collect()
}

fn clippy_toml(bans: &[&Ban], head: &str) -> String {
    let mut text = format!("{head}allow-unwrap-in-tests = true\n");
    for (key, wants_types) in [("disallowed-types", true), ("disallowed-methods", false)] {
        let entries = bans.iter().flat_map(|ban| ban.clippy.iter().map(move |entry| (*ban, *entry)));
        let lines: Vec<String> = entries
            .filter_map(|(ban, entry)| match entry {
                Clippy::Type(path) if wants_types => Some((ban, path)),
                Clippy::Method(path) if !wants_types => Some((ban, path)),
                _ => None,
            })
            .map(|(ban, path)| format!("    {{ path = \"{path}\", reason = \"{}: {}\" }},\n", ban.because, ban.instead))
            .collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{key} = [\n{}]", lines.concat());
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PAGE: &str = "# T\n\nThe crates:\n<!-- crates:begin -->\nold\n<!-- crates:end -->\n\nafter\n";

    pub(crate) fn tree_with(page: &str, clippy: &str) -> Tree {
        let card = "//! About.\n//!\n//! ```text\n//! CRATE    rnic-wire (amber: careful)\n\
                    //! Purpose  bytes | meaning\n//! May use  rnic-base\n//! Add here a header\n//! ```\n";
        Tree::invent([
            (MAP, page),
            ("clippy.toml", clippy),
            ("crates/rnic-wire/Cargo.toml", "[package]\nname = \"rnic-wire\"\n"),
            ("crates/rnic-wire/src/lib.rs", card),
        ])
    }

    #[test]
    fn the_table_replaces_what_stands_between_the_markers() {
        let page = all(&tree_with(PAGE, "")).remove(0).text.expect("the markers are there");
        let row = "| [rnic-wire](crates/rnic-wire/src/lib.rs) (amber) | bytes \\| meaning | rnic-base | a header |\n";
        assert!(page.contains(row), "{page}");
        assert!(page.starts_with("# T\n\nThe crates:\n<!-- crates:begin -->\n| crate |"));
        assert!(page.ends_with("|\n<!-- crates:end -->\n\nafter\n") && !page.contains("old"));
    }

    #[test]
    fn edge_rooms_get_rules_of_their_own_where_they_exist() {
        let paths = |tree: &Tree| all(tree).into_iter().map(|made| made.path).collect::<Vec<_>>();
        assert_eq!(paths(&Tree::invent([("a", "")])), ["clippy.toml"]);
        let tree = Tree::invent([("crates/rnic-host/Cargo.toml", "[package]\nname = \"rnic-host\"\n")]);
        assert_eq!(paths(&tree), ["clippy.toml", "crates/rnic-host/clippy.toml"]);
        let edge = all(&tree).remove(1).text.expect("nothing is missing");
        assert!(!edge.contains("Instant"), "{edge}");
    }

    #[test]
    fn every_clippy_entry_has_a_reason_and_the_file_is_toml() {
        let table: toml::Table = clippy_toml(&core_bans(), CORE_HEAD).parse().expect("it is TOML");
        for key in ["disallowed-types", "disallowed-methods"] {
            let entries = table[key].as_array().expect("a list");
            assert!(entries.iter().all(|entry| entry["reason"].as_str().is_some_and(|reason| reason.len() > 20)));
        }
    }
}
