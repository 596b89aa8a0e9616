//! `docs/plans.md`: every key of a plan. The tables are here, and tests compare them with the reader of plans: the keys
//! are those that it accepts, examples can be read, documented defaults are the real defaults, and keys documented as
//! required are required.

mod tables;

use std::fmt::Write as _;

use toml::{Table, Value};

use super::{Plan, PlanError, workload_keys};

use tables::{BASE, OF_KINDS, TABLES};

const PAGE: &str = include_str!("../../../../docs/plans.md");
const PAGE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plans.md");

/// A table of a plan.
struct Section {
    /// Its name, with dots; empty for the keys before all tables.
    path: &'static str,
    /// Description of the table.
    head: &'static str,
    /// Additional content of the plan for the examples: top-level keys that replace those of [`BASE`].
    with: &'static str,
    keys: &'static [Key],
}

/// A key of a table.
struct Key {
    name: &'static str,
    kind: &'static str,
    default: Default,
    /// An example value, as TOML.
    example: &'static str,
    meaning: &'static str,
    /// Like [`Section::with`], applied after it.
    with: &'static str,
}

/// The value that applies when a key is missing.
#[derive(Clone, Copy)]
enum Default {
    /// None: the key is required.
    Needed,
    /// Required, as [`Self::Needed`], together with the additional content of the example's plan, described in words.
    For(&'static str),
    /// This value, as TOML.
    Is(&'static str),
    /// Not a single value: described in words.
    No(&'static str),
}

/// Returns the plan into which examples are inserted.
fn base(section: &Section, key: &Key) -> Table {
    let mut plan: Table = BASE.parse().expect("the base is TOML");
    for text in [section.with, key.with] {
        plan.extend(text.parse::<Table>().unwrap_or_else(|error| panic!("{}.{}: {error}", section.path, key.name)));
    }
    plan
}

/// Returns the table at `path`, which is created if needed; of an array, its first table.
fn at<'a>(plan: &'a mut Table, path: &str) -> &'a mut Table {
    path.split('.').filter(|part| !part.is_empty()).fold(plan, |table, part| {
        let value = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        let value = if let Value::Array(all) = value { &mut all[0] } else { value };
        value.as_table_mut().expect("a table")
    })
}

fn read(plan: &Table) -> Result<Plan, PlanError> {
    let files: &mut super::FileReader<'_> = &mut |_| Ok("0,0,1,1KB\n".to_owned());
    let plan = Plan::from_toml_with(&plan.to_string(), &[], files)?;
    plan.check().map(|()| plan)
}

fn value(text: &str) -> Value {
    let mut table: Table = format!("it = {text}").parse().expect("values are TOML");
    table.remove("it").expect("just read")
}

/// Reads the plan with value `given` for the key, or without the key.
fn with(section: &Section, key: &Key, given: Option<&str>) -> Result<Plan, PlanError> {
    let mut plan = base(section, key);
    let place = at(&mut plan, section.path);
    match given {
        Some(text) => drop(place.insert(key.name.to_owned(), value(text))),
        None => drop(place.remove(key.name)),
    }
    read(&plan)
}

/// Returns the keys that the reader of plans accepts in a table, from its error message about an unknown key.
fn taken(section: &Section) -> Vec<String> {
    let mut plan = base(section, &section.keys[0]);
    at(&mut plan, section.path).insert("no-such-key".to_owned(), Value::Boolean(true));
    let error = read(&plan).expect_err("an unknown key").to_string();
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("{}: {error}", section.path));
    let mut keys: Vec<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    // Nested tables have sections of their own.
    keys.retain(|key| !TABLES.iter().any(|other| other.path == join(section.path, key)));
    keys.sort();
    keys
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[test]
fn the_tables_have_the_keys_that_the_reader_takes() {
    for section in TABLES.iter().filter(|section| section.path != "transport") {
        let mut listed: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        listed.sort_unstable();
        assert_eq!(listed, taken(section), "[{}]", section.path);
    }
}

/// Reads a plan of `kind` with the examples of `keys`, and returns the first error.
fn of_kind(section: &Section, kind: &str, keys: &[&str]) -> Option<String> {
    let mut plan = base(section, &section.keys[0]);
    let place = at(&mut plan, section.path);
    place.clear();
    place.insert("kind".to_owned(), Value::String(kind.to_owned()));
    for key in section.keys.iter().filter(|key| keys.contains(&key.name)) {
        place.insert(key.name.to_owned(), value(key.example));
    }
    read(&plan).err().map(|error| error.to_string())
}

/// The keys listed for a kind are valid for it, and no other keys are.
#[test]
fn kinds_take_the_keys_that_are_listed() {
    for (path, kinds) in OF_KINDS {
        let section = TABLES.iter().find(|section| section.path == *path).expect("a section");
        let of_some = |name: &str| kinds.iter().any(|(_, keys)| keys.contains(&name));
        for (kind, keys) in *kinds {
            for key in section.keys.iter().filter(|key| of_some(key.name)) {
                let complaint = if *path == "fault" {
                    of_kind(section, kind, &[key.name]).filter(|complaint| complaint.contains("means nothing"))
                } else {
                    of_kind(section, kind, &[&[key.name], *keys].concat())
                };
                assert_eq!(complaint.is_none(), keys.contains(&key.name), "{path} {kind} {}: {complaint:?}", key.name);
            }
        }
    }
}

#[test]
fn examples_are_read_and_defaults_and_needs_are_what_is_said() {
    let all = TABLES.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    let wrong: Vec<String> = all.filter_map(|(section, key)| complaint(section, key)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a difference between the documentation of `key` and the reader of plans, if there is one.
fn complaint(section: &Section, key: &Key) -> Option<String> {
    let name = join(section.path, key.name);
    if let Err(error) = with(section, key, Some(key.example)) {
        return Some(format!("{name} = {}: {error}", key.example));
    }
    let without = with(section, key, None).map(|plan| format!("{plan:?}"));
    match (key.default, without) {
        (Default::Needed | Default::For(_), Ok(_)) => Some(format!("{name} is not needed")),
        (Default::No(_) | Default::Is(_), Err(error)) => Some(format!("{name} is needed: {error}")),
        (Default::Is(value), Ok(without)) => match with(section, key, Some(value)) {
            Ok(given) if format!("{given:?}") == without => None,
            Ok(_) => Some(format!("{name} is not {value} when nothing is said")),
            Err(error) => Some(format!("{name} = {value}: {error}")),
        },
        _ => None,
    }
}

#[test]
fn the_page_says_what_the_tables_say() {
    assert!(PAGE == page(), "docs/plans.md is stale: run `make generate`");
}

#[test]
#[ignore = "writes docs/plans.md; run by `make generate`"]
fn write_the_plans_page() {
    std::fs::write(PAGE_PATH, page()).expect("docs/plans.md can be written");
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in TABLES {
        let name = match section.path {
            "" => "Before all tables".to_owned(),
            "fault" => "`[[fault]]`".to_owned(),
            path => format!("`[{path}]`"),
        };
        let _ = writeln!(page, "\n## {name}\n\n{}\n", section.head);
        page += "| key | type | default | meaning | example |\n|---|---|---|---|---|\n";
        for key in section.keys {
            let default = match key.default {
                Default::Needed => "needed".to_owned(),
                Default::For(words) | Default::No(words) => words.to_owned(),
                Default::Is(value) => format!("`{value}`"),
            };
            let row = [format!("`{}`", key.name), key.kind.to_owned(), default, key.meaning.to_owned()];
            let _ = writeln!(page, "| {} | `{} = {}` |", row.join(" | "), key.name, key.example);
        }
        let kinds = kinds_of(section.path);
        if !kinds.is_empty() {
            page += "\nWhich keys mean something, by `kind`:\n\n| kind | keys |\n|---|---|\n";
        }
        for (kind, keys) in kinds {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            let _ = writeln!(page, "| `{kind}` | {keys} |");
        }
    }
    page
}

/// Returns the kinds of a table, and the keys that each accepts.
fn kinds_of(path: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    if path == "workload" {
        return tables::WORKLOADS.iter().map(|kind| (*kind, workload_keys(kind).collect())).collect();
    }
    let kinds = OF_KINDS.iter().filter(|(of, _)| *of == path).flat_map(|(_, kinds)| kinds.iter());
    kinds.map(|(kind, keys)| (*kind, keys.to_vec())).collect()
}

const HEAD: &str = "\
# Keys of plans

Generated by `make generate` from the tables in `crates/rnic-fabric/src/plan/page/tables.rs`; a test has the reader of
plans take every example, and compares keys, defaults and what is needed with what it does.

A plan is a TOML file that says everything about a simulation but its seed: `rnic sim PLAN`, with `--set KEY=VALUE` for
any key below as a path with dots (`--set links.rate=400Gbps`, or
`--set 'fault=[{kind=\"drop\", probability=\"1%\"}]'`). Whole plans to begin with are in `plans/`. A key that does not
exist, or means nothing with what else the plan says, is refused with one line; only what the topology has no place for
(`[switch]` without switches, `[links.fabric]` without links between them) and tables with `enabled = false` may stay.

Types: a *duration* is `\"1.5us\"` (s, ms, us, ns, ps), a *rate* `\"100Gbps\"`, a *size* `\"64KiB\"` or `\"240KB\"`, a
*share* `\"1%\"`, all in quotes; 0 may stand without a unit. *Words* are one of those that are listed.
";
