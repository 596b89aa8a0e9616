//! What is listed is what the plan's reader takes, and nothing is missing.

use rnic_fabric::Plan;

use super::*;

/// A plan whose `table` has the kind `kind`.
fn complaint(table: &str, kind: &str) -> String {
    let mut kinds = [("topology", "point-to-point"), ("workload", "manual"), ("fault", "duplicate")];
    for (name, value) in &mut kinds {
        if *name == table {
            *value = kind;
        }
    }
    let [(_, topology), (_, workload), (_, fault)] = kinds;
    let text = format!(
        "[topology]\nkind = \"{topology}\"\n[links]\nrate = \"1Gbps\"\ndelay = \"1us\"\n[transport]\nname = \"irn\"\n\
         [workload]\nkind = \"{workload}\"\n[[fault]]\nkind = \"{fault}\"\nprobability = \"1%\"\n"
    );
    Plan::from_toml(&text).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn every_listed_kind_is_known_to_the_reader_of_plans() {
    let names = |rows: &[[&'static str; 3]]| rows.iter().map(|[name, ..]| *name).collect::<Vec<_>>();
    let workloads = WORKLOADS.iter().map(|[name, _]| *name).collect();
    for (table, rows) in [("topology", names(TOPOLOGIES)), ("workload", workloads), ("fault", names(FAULTS))] {
        for name in &rows {
            let complaint = complaint(table, name);
            assert!(!complaint.contains("unknown variant"), "{table}.kind = {name}: {complaint}");
        }
        let known = complaint(table, "nonsense");
        let listed = rows.iter().filter(|name| known.contains(&format!("`{name}`"))).count();
        let expected = known.split("expected").nth(1).expect("it names what there is").matches('`').count() / 2;
        assert_eq!(listed, expected, "{table}: {known}");
    }
}

/// Keys come from the table by which the reader refuses others; every workload stands in it by its name.
#[test]
fn keys_of_workloads_are_those_that_the_reader_takes() {
    for Kind { name, keys, .. } in workloads() {
        assert_eq!(keys.is_empty(), name == "manual", "{name}: {keys}");
    }
    let keys = |kind: &str| workload_keys(kind).collect::<Vec<_>>();
    assert!(keys("incast").contains(&"start") && keys("closed-loop").contains(&"jitter"), "they have been missing");
    assert_eq!(keys("trace"), ["file"]);
}
