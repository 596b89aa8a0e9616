//! `rnic list` names everything that can be chosen.

mod common;

use common::rnic;
use serde_json::Value;

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name")).collect()
}

#[test]
fn people_see_transports_with_options_and_policies_by_kind() {
    let said = rnic(&["list"]).ok();
    for shown in ["roce-gbn", "irn", "cap_packets", "320 us", "go-back-n", "dcqcn", "ecmp", "round-robin"] {
        assert!(said.out.contains(shown), "{shown} is not shown");
    }
    assert!(said.out.contains("over UDP, for software: measured_timeouts true, rto 8 ms"), "{}", said.out);
    assert!(said.out.lines().all(|line| line.chars().count() <= 120), "lines fit a terminal");
}

#[test]
fn programs_see_the_same_as_one_object() {
    let all = rnic(&["list", "--json"]).json();
    let registered: Vec<&str> = rnic_transports::profiles().iter().map(|profile| profile.name).collect();
    assert_eq!(names(&all["transports"]), registered);
    assert!(registered.starts_with(&["roce-gbn", "irn"]), "{registered:?}");
    let irn = &all["transports"][1];
    let cap = irn["options"].as_array().expect("options").iter().find(|option| option["name"] == "cap_packets");
    let cap = cap.expect("irn has a cap");
    assert_eq!((&cap["unit"], &cap["default"]), (&"count".into(), &"110".into()));
    for key in ["min", "max", "help"] {
        assert!(cap[key].is_string(), "{key}");
    }
    let kinds: std::collections::BTreeSet<&str> =
        all["policies"].as_array().expect("policies").iter().filter_map(|policy| policy["kind"].as_str()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["control", "paths", "recovery", "schedule"]);
}
