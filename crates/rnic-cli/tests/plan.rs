//! `rnic plan`.

mod common;

use std::fs;

use common::rnic;

#[test]
fn plans_are_listed_shown_and_copied() {
    let list = rnic(&["plan", "list"]).ok().out;
    assert!(list.lines().any(|line| line.starts_with("incast ") && line.contains("Many to one")), "{list}");
    let shown = rnic(&["plan", "show", "incast"]).ok().out;
    assert_eq!(shown, fs::read_to_string(common::root().join("plans/incast.toml")).expect("the plan"));
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("mine.toml");
    let name = file.to_str().expect("a plain path");
    rnic(&["plan", "new", name, "--from", "falcon"]).ok();
    rnic(&["sim", name, "--set", "run.limit=10us"]).ok();
    rnic(&["plan", "new", name]).assert_refused(2, &["mine.toml", "File exists"]);
    let own = folder.path().join("own.toml");
    let own = own.to_str().expect("a plain path");
    rnic(&["plan", "new", own, "--from", "own-topology"]).ok();
    rnic(&["sim", own, "--set", "workload.duration=50us"]).ok();
    rnic(&["sim", "own-topology", "--set", "workload.duration=50us"]).ok();
    rnic(&["plan", "show", "incest"]).assert_refused(2, &["did you mean `incast`?"]);
}

#[test]
fn the_schema_is_json_that_describes_keys() {
    let schema = rnic(&["plan", "schema"]).json();
    assert_eq!(schema["properties"]["mtu"]["type"], "integer");
    let about = schema["properties"]["record"]["properties"]["interval"]["description"].as_str();
    assert!(about.is_some_and(|about| about.contains("Time between two samples")), "{about:?}");
}
