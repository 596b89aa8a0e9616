//! Keys of a plan's text as paths with dots: replaced values, and the lines in which keys are.

use toml::de::{DeTable, DeValue};

/// Sets `key`, a path with dots, to `value`. Missing tables are created; a transport that is given by its name alone
/// becomes a table with that name.
///
/// # Errors
/// When a component of the path is not a table.
pub fn insert(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    let (parents, last) = key.rsplit_once('.').map_or((None, key), |(parents, last)| (Some(parents), last));
    let mut target = table;
    for (depth, part) in parents.into_iter().flat_map(|parents| parents.split('.')).enumerate() {
        let next = target.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if depth == 0
            && part == "transport"
            && let Some(name) = next.as_str().map(str::to_owned)
        {
            *next = toml::Value::Table(toml::Table::from_iter([("name".to_owned(), name.into())]));
        }
        target = next.as_table_mut().ok_or_else(|| format!("`{part}` of `{key}` is not a table in the plan"))?;
    }
    target.insert(last.to_owned(), value);
    Ok(())
}

/// Returns the number of the line, from 1, in which `text` has `key`, a path such as `workload.senders` or
/// `fault[1].links`; `None` if it does not have it.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut offset = None;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(']')?.parse::<usize>().ok()?)),
            None => (part, None),
        };
        let (found, value) = table.iter().find(|(known, _)| known.get_ref() == name)?;
        let (mut value, mut at) = (value.get_ref(), found.span().start);
        if let (Some(index), DeValue::Array(list)) = (index, value) {
            let entry = list.get(index)?;
            (value, at) = (entry.get_ref(), entry.span().start);
        }
        offset = Some(at);
        match value {
            DeValue::Table(inner) => table = inner,
            _ if parts.peek().is_some() => return None,
            _ => {}
        }
    }
    Some(text[..offset?].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_keys_are_found_in_every_notation() {
        let text = concat!(
            "mtu = 1024\nlinks = { rate = \"1Gbps\" }\n\n",
            "[workload]\nkind = \"incast\"\n  senders = 3\n\n",
            "[switch.pfc]\nenabled = true\n",
            "[[fault]]\nkind = \"drop\"\n[[fault]]\nkind = \"down\"\nlinks = \"*\"\n",
        );
        for (key, line) in [
            ("mtu", 1),
            ("links.rate", 2),
            ("workload", 4),
            ("workload.senders", 6),
            ("switch.pfc.enabled", 9),
            ("fault[0].kind", 11),
            ("fault[1].links", 14),
        ] {
            assert_eq!(line_of(text, key), Some(line), "{key}");
        }
        for key in ["mut", "mtu.x", "workload.bytes", "fault[2].kind", "fault[0].links", "fault[x]", ""] {
            assert_eq!(line_of(text, key), None, "{key}");
        }
        assert_eq!(line_of("[", "x"), None);
    }

    #[test]
    fn values_are_inserted_at_paths() {
        let mut table: toml::Table = "transport = \"irn\"\n[links]\nrate = \"1Gbps\"\n".parse().expect("TOML");
        insert(&mut table, "transport.control", "dcqcn".into()).expect("a table by then");
        insert(&mut table, "switch.pfc.enabled", true.into()).expect("tables are created");
        assert_eq!(table["transport"]["name"].as_str(), Some("irn"));
        assert_eq!(table["switch"]["pfc"]["enabled"].as_bool(), Some(true));
        let error = insert(&mut table, "links.rate.x", 1.into()).expect_err("a text");
        assert_eq!(error, "`rate` of `links.rate.x` is not a table in the plan");
    }
}
