//! Checks that invalid arguments are refused, and that a measurement returns a number, of any size.

use super::*;

fn arguments(text: &str) -> toml::Table {
    text.parse().expect("the text is TOML")
}

const VALID: &str = "subject = \"table\"\nconnections = 100\nstate = 64\nrounds = 1\nbatches = 2";

#[test]
fn every_subject_gives_a_rate() {
    for (subject, state, program) in [
        ("stateless", 64, "type"),
        ("stateless", 64, "name"),
        ("table", 128, "type"),
        ("table", 256, "type"),
        ("prefetching", 512, "type"),
        ("prefetching", 64, "name"),
        ("memory", 256, "type"),
    ] {
        let text = VALID.replace("table", subject).replace("state = 64", &format!("state = {state}"));
        let arguments = arguments(&format!("{text}\nprogram = \"{program}\""));
        let found = TRIAL.run(&arguments, 1).expect(subject);
        for number in TRIAL.numbers {
            assert!(found[number].as_f64().is_some_and(|value| value > 0.0), "{subject}: {found}");
        }
    }
}

#[test]
fn invalid_arguments_are_one_line_errors() {
    let cases = [
        ("state = 64", "state = 96", "state: 96 bytes; there are states of 64, 128, 256 and 512"),
        ("connections = 100", "connections = 0", "connections: 0 does not lie between 1 and 16777216"),
        ("connections = 100", "connections = -1", "connections: "),
        ("rounds = 1", "", "the key `rounds` is missing"),
        ("rounds = 1", "rounds = 1\nround = 1", "unknown key `round`"),
        ("\"table\"", "\"tabel\"", "subject: unknown word `tabel`"),
        ("\"table\"\n", "\"memory\"\nprogram = \"name\"\n", "program: memory alone has none"),
    ];
    for (from, to, expected) in cases {
        let text = VALID.replace(from, to);
        assert_ne!(text, VALID, "{from} is not in the arguments");
        let error = TRIAL.cost(&arguments(&text)).expect_err(to);
        assert!(error.contains(expected) && !error.contains('\n'), "{to}: {error}");
    }
    for (subject, program) in [("stateless", "type"), ("table", "name")] {
        let text = VALID.replace("table", subject).replace("64", "128");
        let error = TRIAL.cost(&arguments(&format!("{text}\nprogram = \"{program}\""))).expect_err(subject);
        assert!(error.starts_with("state: ") && error.contains("64 bytes"), "{error}");
    }
    assert!(TRIAL.cost(&arguments(VALID)).is_ok_and(|cost| cost > 0));
}
