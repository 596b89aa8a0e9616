//! Checks that `rnic list` names everything that a user can choose.

mod common;

use common::rnic;
use serde_json::Value;

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name")).collect()
}

#[test]
fn the_list_is_an_overview_and_a_name_or_kind_shows_options() {
    let shows = |arguments: &[&str], shown: &[&str]| {
        let output = rnic(&[&["list"], arguments].concat()).ok();
        for text in shown {
            assert!(output.out.contains(text), "{arguments:?}: {text} is not shown: {}", output.out);
        }
        assert!(output.out.lines().all(|line| line.chars().count() <= 120), "a line has more than 120 columns");
        output.out
    };
    let all = shows(&[], &["roce-gbn", "irn-default", "go-back-n", "dcqcn", "ecmp", "leaf-spine", "rnic list NAME"]);
    assert!(all.lines().count() < 150 && !all.contains("cap_packets"), "the overview is too long: {all}");
    let words = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for summary in ["(SCR A.6); needs [scr] or --messages", "(SCR A.7); needs [scr] or --messages"] {
        assert!(words.contains(summary), "{summary}: {all}");
    }
    let gbn = shows(
        &["roce-gbn"],
        &["over UDP, for software: measured_timeouts true, rto 8 ms", "cap_packets", "320 us", "recovery=go-back-n"],
    );
    assert!(!gbn.contains("falcon"), "{gbn}");
    let both = shows(&["irn"], &["Transports", "Policies of recovery"]);
    assert_eq!(both.matches("irn: ").count(), 2, "{both}");
    let transports = shows(&["--kind", "transport"], &["Options of most transports", "roce-gbn: ", "falcon: "]);
    let explained = transports.matches("request an acknowledgement after this many packets").count();
    assert_eq!(explained, 1, "a common option is explained again: {transports}");
    let controllers = shows(&["--kind", "control"], &["dcqcn: ", "swift: "]);
    assert!(!controllers.contains("Transports"), "{controllers}");
    shows(&["burst"], &["probability, length, end, loss"]);
    rnic(&["list", "facon"]).assert_refused(2, &["nothing is called `facon`; did you mean `falcon`?"]);
    rnic(&["list", "--kind", "transprot"]).assert_refused(2, &["transprot", "'transport'"]);
}

#[test]
fn the_json_list_has_the_same_contents() {
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

/// Kinds and their keys are those that the reader of plans declares.
#[test]
fn plan_kinds_are_listed_with_their_keys() {
    let all = rnic(&["list", "--json"]).json();
    assert!(names(&all["plans"]).contains(&"irn-default"), "{}", all["plans"]);
    let counts = ["topologies", "workloads", "faults"].map(|table| names(&all[table]).len());
    assert_eq!(counts, [8, 11, 9]);
    let keys = |table: &str, name: &str| {
        let kind = all[table].as_array().expect("kinds").iter().find(|kind| kind["name"] == name).expect(name);
        assert!(!kind["help"].as_str().expect("a text").is_empty(), "{name}");
        kind["keys"].as_str().expect("a text").to_owned()
    };
    assert_eq!(keys("topologies", "leaf-spine"), "spines, leaves, hosts_per_leaf");
    assert_eq!(keys("topologies", "file"), "file, format");
    assert_eq!(keys("workloads", "trace"), "file, format");
    assert_eq!(keys("workloads", "manual"), "");
    assert!(keys("workloads", "incast").contains("start") && keys("workloads", "closed-loop").contains("jitter"));
    assert_eq!(keys("faults", "burst"), "probability, length, end, loss");
}

/// Head of the page of options, which is generated from `rnic list --json`.
const OPTIONS_HEAD: &str = "\
# Transports, policies and their options

Generated from `rnic list` by `make generate`; a test compares it with the command.

An option of a transport is set with `--set KEY=VALUE` for `rnic perf` and `rnic run` (or `RNIC_SET`), and with
`[transport]` or `--set transport.KEY=VALUE` in plans. Over UDP some defaults differ, because software on a shared
machine is slower than an adapter; they are named below each transport. A policy is chosen by its kind:
`--set control=dcqcn`.
";

/// Returns the page of options.
fn options_page() -> String {
    let all = rnic(&["list", "--json"]).json();
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('|', "\\|");
    let table = |page: &mut String, options: &Value| {
        let options = options.as_array().map_or(&[][..], Vec::as_slice);
        if options.is_empty() {
            return page.push_str("\nNo options.\n");
        }
        page.push_str("\n| option | default | range | meaning |\n|---|---|---|---|\n");
        for option in options {
            let [name, default, min, max, help] =
                ["name", "default", "min", "max", "help"].map(|key| text(&option[key]));
            let range = if option["unit"] == "switch" { "true or false".to_owned() } else { format!("{min} to {max}") };
            page.push_str(&format!("| `{name}` | {default} | {range} | {help} |\n"));
        }
    };
    let mut page = format!("{OPTIONS_HEAD}\n## Transports\n");
    for transport in all["transports"].as_array().expect("transports") {
        let [name, summary] = ["name", "summary"].map(|key| text(&transport[key]));
        let parts =
            ["recovery", "control", "paths", "schedule"].map(|kind| format!("{kind} `{}`", text(&transport[kind])));
        page.push_str(&format!("\n### {name}\n\n{summary}. Policies: {}.\n", parts.join(", ")));
        table(&mut page, &transport["options"]);
        let over_udp = transport["over_udp"].as_array().map_or(&[][..], Vec::as_slice);
        let over_udp: Vec<String> =
            over_udp.iter().map(|pair| format!("`{}` {}", text(&pair[0]), text(&pair[1]))).collect();
        if !over_udp.is_empty() {
            page.push_str(&format!("\nOver UDP: {}.\n", over_udp.join(", ")));
        }
    }
    for kind in ["recovery", "control", "paths", "schedule"] {
        page.push_str(&format!("\n## Policies of {kind}\n"));
        for policy in all["policies"].as_array().expect("policies").iter().filter(|policy| policy["kind"] == kind) {
            let [name, summary] = ["name", "summary"].map(|key| text(&policy[key]));
            let bytes = &policy["state_bytes"];
            page.push_str(&format!("\n### {kind} {name}\n\n{summary}. {bytes} bytes of state a queue pair.\n"));
            table(&mut page, &policy["options"]);
        }
    }
    page
}

#[test]
fn the_options_page_matches_the_command() {
    let page = std::fs::read_to_string(common::root().join("docs/options.md")).unwrap_or_default();
    assert!(page == options_page(), "docs/options.md is old: make generate");
}

#[test]
#[ignore = "writes docs/options.md"]
fn write_the_options_page() {
    std::fs::write(common::root().join("docs/options.md"), options_page()).expect("the page can be written");
}
