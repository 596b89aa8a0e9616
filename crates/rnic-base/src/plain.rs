//! Messages of deserializers in the words of those who write the file: keys and words instead of fields and variants,
//! kinds of values instead of Rust's types.

use crate::similar;

/// Returns serde's `message` about a key or a value of a TOML file in plain words, on one line. A message of another
/// kind is returned as it is.
pub fn explained(message: &str) -> String {
    let message = message.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let known = |start: &str, noun: &str, list: &str| {
        let rest = message.strip_prefix(start)?;
        let mut names = rest.split('`').skip(1).step_by(2);
        let unknown = names.next()?;
        let names: Vec<&str> = names.collect();
        let hint = similar::hint(unknown, names.iter().copied());
        let hint = match names.len() {
            _ if !hint.is_empty() => hint,
            0 => String::new(),
            _ => format!("; {list} {}", names.join(", ")),
        };
        Some(format!("unknown {noun} `{unknown}`{hint}"))
    };
    known("unknown field", "key", "the keys of this table are")
        .or_else(|| known("unknown variant", "word", "the words for this key are"))
        .or_else(|| message.strip_prefix("missing field ").map(|key| format!("the key {key} is missing")))
        .or_else(|| wrong_type(&message))
        .unwrap_or(message)
}

/// Rewrites `invalid type: string "3", expected u32`, and the same about values.
fn wrong_type(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not below 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other if other.contains("variant") || other.starts_with("enum ") => "one of a few words, in quotes",
        other => other,
    };
    let found = match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("floating", rest)) => rest.trim_start_matches("point ").trim_matches('`').to_owned(),
        _ if found == "map" => "a table".to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        _ => found.to_owned(),
    };
    Some(format!("must be {expected}: it is {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_keys_words_and_kinds_of_values() {
        for (message, expected) in [
            (
                "unknown field `sendrs`, expected one of `senders`, `bytes`",
                "unknown key `sendrs`; did you mean `senders`?",
            ),
            (
                "unknown field `x`, expected `rate` or `delay`",
                "unknown key `x`; the keys of this table are rate, delay",
            ),
            ("unknown field `x`, there are no fields", "unknown key `x`"),
            ("unknown variant `torus`, expected `star`", "unknown word `torus`; the words for this key are star"),
            ("missing field `kind`\n", "the key `kind` is missing"),
            ("invalid type: string \"3\", expected u32", "must be a whole number, not below 0: it is the text \"3\""),
            ("invalid value: integer `-1`, expected u32", "must be a whole number, not below 0: it is -1"),
            ("invalid type: floating point `1.5`, expected a string", "must be a text in quotes: it is 1.5"),
            ("invalid type: sequence, expected struct Links", "must be a table: it is a list"),
            ("invalid type: boolean `true`, expected a map", "must be a table: it is true"),
            ("1M has no unit\n here", "1M has no unit; here"),
        ] {
            assert_eq!(explained(message), expected);
        }
    }
}
