//! `docs/metrics.md`: every field of a simulation's report, from the doc comments of the report's types, and every
//! metric that `rnic top --prometheus` serves.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;

use rnic_fabric::Report;

/// Files that define the types of a report.
const SOURCES: [&str; 18] = [
    "falcon_counts.rs",
    "host/nic.rs",
    "host/recoveries.rs",
    "report.rs",
    "report/classes.rs",
    "report/collective.rs",
    "report/groups.rs",
    "report/latency_parts.rs",
    "report/percentile.rs",
    "report/pool.rs",
    "report/processors.rs",
    "report/queue_pairs.rs",
    "report/scr.rs",
    "report/slices.rs",
    "report/tail.rs",
    "report/tenants.rs",
    "simulation.rs",
    "workload.rs",
];

const HEAD: &str = "\
# Metrics

Generated from the program's source by `make generate`; a test compares it with the program.

## Report of a simulation

`rnic sim --json` prints these fields, and `--out DIR` writes them to `report.json`. A field that is described by a
condition (\"when ...\") is `null`, or absent, otherwise. Names with dots are those of fields in nested objects:
`drops.buffer`. Plans of `rnic reproduce` refer to numbers by these names. Times are simulated time.

| field | meaning |
|---|---|
";

const PROMETHEUS_HEAD: &str = "
## Counters of running programs

`rnic top --prometheus ADDRESS` serves these metrics for every program of the same user that has opened the device,
in Prometheus' text format. Labels name the device, the process and, where they apply, the queue pair, its peer and the
flow.

| metric | type | meaning |
|---|---|---|
";

/// A public field: its name, the name of its innermost type, and its documentation as one line.
struct Field {
    name: String,
    type_name: String,
    doc: String,
}

/// Returns the text of a doc comment as one line, without the brackets of links.
fn doc_of(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
        let syn::Meta::NameValue(value) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &value.value else { return None };
        Some(text.value().trim().to_owned())
    });
    lines.collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// Returns the innermost type: `Spread` of `Option<Spread>`.
fn innermost(ty: &syn::Type) -> String {
    let syn::Type::Path(path) = ty else { return String::new() };
    let last = path.path.segments.last().expect("a path has segments");
    if let syn::PathArguments::AngleBracketed(arguments) = &last.arguments {
        let types = arguments.args.iter().filter_map(|argument| match argument {
            syn::GenericArgument::Type(ty) => Some(innermost(ty)),
            _ => None,
        });
        return types.last().unwrap_or_default();
    }
    last.ident.to_string()
}

/// Returns the serialised fields of every structure in the sources.
fn structures() -> BTreeMap<String, Vec<Field>> {
    let mut all = BTreeMap::new();
    for source in SOURCES {
        let path = common::root().join("crates/rnic-fabric/src").join(source);
        let text = std::fs::read_to_string(&path).expect("a source of the tree");
        for item in syn::parse_file(&text).expect("Rust").items {
            let syn::Item::Struct(item) = item else { continue };
            let is_skipped = |field: &&syn::Field| {
                field.attrs.iter().any(|attribute| {
                    let syn::Meta::List(list) = &attribute.meta else { return false };
                    attribute.path().is_ident("serde") && list.tokens.to_string() == "skip"
                })
            };
            let fields = item.fields.iter().filter(|field| !is_skipped(field)).filter_map(|field| {
                let name = field.ident.as_ref()?.to_string();
                Some(Field { name, type_name: innermost(&field.ty), doc: doc_of(&field.attrs) })
            });
            all.insert(item.ident.to_string(), fields.collect());
        }
    }
    all
}

/// Appends the fields of the structure `name` to `rows`, with `path` in front of their names.
fn add(structures: &BTreeMap<String, Vec<Field>>, name: &str, path: &str, rows: &mut Vec<(String, String)>) {
    for field in &structures[name] {
        let path = format!("{path}{}", field.name);
        rows.push((path.clone(), field.doc.clone()));
        // Percentiles have the same fields everywhere: one set of rows describes them.
        if field.type_name == "Spread" {
            continue;
        }
        if structures.contains_key(&field.type_name) {
            let by_name =
                ["HostSlices", "TenantSlices", "QueuePairSlices", "TenantFigures", "GroupFigures", "ClassFigures"];
            let is_by_name = by_name.contains(&field.type_name.as_str());
            let one_of_several = if is_by_name { ".*." } else { "." };
            add(structures, &field.type_name, &format!("{path}{one_of_several}"), rows);
        }
    }
}

/// Returns the fields of a report, with their meaning.
fn report_fields() -> Vec<(String, String)> {
    let structures = structures();
    let mut rows = Vec::new();
    add(&structures, "Report", "", &mut rows);
    let percentiles = structures["Spread"].iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join("`, `");
    for (path, doc) in &mut rows {
        let is_spread = Report::numbers().iter().any(|number| number == &format!("{path}.p999"));
        if is_spread {
            let _ = write!(doc, " An object: `{percentiles}`.");
        }
    }
    rows
}

/// Returns the page.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (path, doc) in report_fields() {
        let _ = writeln!(page, "| `{path}` | {doc} |");
    }
    page.push_str(PROMETHEUS_HEAD);
    for (name, kind, help) in rnic_host::observe::metrics() {
        let _ = writeln!(page, "| `{name}` | {kind} | {help} |");
    }
    page
}

#[test]
fn every_number_of_a_report_is_described() {
    let rows = report_fields();
    for number in Report::numbers() {
        let is_described = |path: &str| rows.iter().any(|(row, doc)| row == path && !doc.is_empty());
        let parent = number.rsplit_once('.').map_or("", |(parent, _)| parent);
        assert!(is_described(&number) || is_described(parent), "{number} has no row");
    }
}

#[test]
fn the_metrics_page_is_current() {
    let text = std::fs::read_to_string(common::root().join("docs/metrics.md")).unwrap_or_default();
    assert!(text == page(), "docs/metrics.md is old: make generate");
}

#[test]
#[ignore = "writes docs/metrics.md"]
fn write_the_metrics_page() {
    std::fs::write(common::root().join("docs/metrics.md"), page()).expect("the page can be written");
}

/// Returns the queries of the Grafana dashboard, with its variables replaced.
fn dashboard_queries() -> Vec<String> {
    let text = std::fs::read_to_string(common::root().join("packaging/grafana/openrnic.json")).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a query").to_owned());
    queries.map(|query| query.replace("$program", ".*").replace("$__rate_interval", "1m")).collect()
}

#[test]
fn the_dashboard_queries_metrics_that_exist() {
    let mut known: Vec<String> = rnic_host::observe::metrics().map(|(name, ..)| name.to_owned()).collect();
    for (name, ..) in rnic_host::observe::metrics().filter(|(_, kind, _)| *kind == "histogram") {
        known.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
    }
    let queries = dashboard_queries();
    assert!(queries.len() > 20, "{queries:?}");
    for query in &queries {
        let words: Vec<&str> = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let named: Vec<&str> = words.into_iter().filter(|word| word.starts_with("rnic_")).collect();
        assert!(
            !named.is_empty() && named.iter().all(|name| known.iter().any(|known| known == name)),
            "{query}: {named:?}"
        );
    }
}

/// Prometheus' own checker accepts the queries, where it is installed (Debian: prometheus).
#[test]
fn promtool_accepts_the_queries_of_the_dashboard() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let rules = folder.path().join("rules.yml");
    let mut text = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (index, query) in dashboard_queries().iter().enumerate() {
        writeln!(text, "  - record: q{index}\n    expr: '{}'", query.replace('\'', "''")).expect("memory");
    }
    std::fs::write(&rules, text).expect("a file");
    let checked = std::process::Command::new("promtool").args(["check", "rules"]).arg(&rules).output();
    match checked {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => println!("no promtool: not checked"),
        checked => {
            let checked = checked.expect("promtool runs");
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}
