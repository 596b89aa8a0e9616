//! Advice in errors about keys, from the description of all keys.

use super::raw::SCHEMA;
use super::schema::{Key, Table};

/// Returns `; ...` with what helps with the error `what` about `key`, or nothing.
pub(super) fn hint(key: &str, what: &str) -> String {
    let table = if key == TOP_LEVEL { Some(SCHEMA) } else { find(key).and_then(|key| key.table) };
    if let Some(name) = quoted_in(what, "the key `", "` is missing") {
        let missing = table.and_then(|table| table.keys.iter().find(|key| key.name == name));
        return missing.map(values).unwrap_or_default();
    }
    if what.starts_with("must be a table") {
        let names = table.map(|table| table.keys.iter().map(|key| format!("`{}`", key.name)).collect::<Vec<_>>());
        return names.map(|names| format!("; its keys are {}", names.join(", "))).unwrap_or_default();
    }
    match quoted_in(what, "unknown key `", "`") {
        Some(name) if !what.contains("did you mean") => elsewhere(key, name),
        _ => String::new(),
    }
}

/// Path of a plan itself, in errors.
pub(super) const TOP_LEVEL: &str = "top level";

/// Returns what stands in `text` between `before` and `after`.
fn quoted_in<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    text.strip_prefix(before)?.split_once(after).map(|(name, _)| name)
}

/// Returns the description of the key with this path, such as `switch.ecn`.
fn find(path: &str) -> Option<&'static Key> {
    let mut parts = path.split('.').map(|part| part.split('[').next().unwrap_or(part));
    let first = parts.next()?;
    let known = |table: &'static Table, name: &str| table.keys.iter().find(|key| key.name == name);
    parts.try_fold(known(SCHEMA, first)?, |key, part| known(key.table?, part))
}

/// Returns the values of a key that is one of a few words.
fn values(key: &Key) -> String {
    let words: Vec<String> = key.words.iter().map(|word| format!("\"{}\"", word.name)).collect();
    if words.is_empty() { String::new() } else { format!("; it is one of {}", words.join(", ")) }
}

/// Returns the tables of a plan that have the key `name`, which does not exist at `path`. Losses are what many look for
/// in links.
fn elsewhere(path: &str, name: &str) -> String {
    if path.starts_with("link") && name.starts_with("loss") {
        return "; losses are faults: fault = [{ kind = \"drop\", probability = \"1%\" }]".to_owned();
    }
    let has = |table: &&Key| table.table.is_some_and(|table| table.keys.iter().any(|key| key.name == name));
    let tables: Vec<_> = SCHEMA.keys.iter().filter(has).map(|table| format!("`{}.{name}`", table.name)).collect();
    if tables.is_empty() || tables.len() > 3 { String::new() } else { format!("; there is {}", tables.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_words_keys_and_other_tables() {
        for (key, what, advice) in [
            ("switch", "the key `model` is missing", "; it is one of \"input-queued\", \"shared-buffer\""),
            ("switch", "the key `buffer` is missing", ""),
            (TOP_LEVEL, "the key `topology` is missing", ""),
            ("switch.pfc", "must be a table: it is true", "; its keys are `enabled`, `threshold`"),
            ("links.loss", "unknown key `loss`; the keys of this table are rate", "; losses are faults: fault = ["),
            ("senders", "unknown key `senders`; the keys of this table are name", "; there is `workload.senders`"),
            ("workload.sendrs", "unknown key `sendrs`; did you mean `senders`?", ""),
            ("fault[0].nowhere", "unknown key `nowhere`", ""),
        ] {
            let found = hint(key, what);
            assert!(if advice.is_empty() { found.is_empty() } else { found.starts_with(advice) }, "{key}: {found}");
        }
    }
}
