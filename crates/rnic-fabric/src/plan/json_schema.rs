//! The keys of a plan as JSON Schema, with which editors complete and check TOML files (taplo, VS Code's Even Better
//! TOML).

use serde_json::{Map, Value, json};

use super::raw::SCHEMA;
use super::schema::{Absent, Doc, Key, TABLES_BY_NAME, Table};

/// Returns the JSON Schema of plans (draft 7). It describes names and types; what is valid together is checked when a
/// plan is read.
pub fn json_schema() -> Value {
    let Value::Object(mut schema) = table(SCHEMA, false) else { unreachable!("a table is an object") };
    schema.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    schema.insert("title".into(), "OpenRNIC plan".into());
    Value::Object(schema)
}

/// Returns the schema of a table; `is_open` for one with further keys.
fn table(table: &Table, is_open: bool) -> Value {
    let keys: Map<String, Value> = table.keys.iter().map(|key| (key.name.to_owned(), described(key))).collect();
    let required: Vec<&str> =
        table.keys.iter().filter(|key| matches!(key.absent, Absent::Required)).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": text(table.about),
        "properties": keys,
        "required": required,
        "additionalProperties": is_open,
    })
}

/// Returns the schema of a group of traffic: the keys of a workload, and further ones.
fn group(key: &Key) -> Value {
    let known = |name: &str| SCHEMA.keys.iter().find(|key| key.name == name);
    let mut schema = SCHEMA.table("workload").map_or(Value::Null, |workload| table(workload, false));
    let own = key.table.into_iter().flat_map(|table| table.keys);
    for key in own {
        let key = known(key.name).unwrap_or(key);
        schema["properties"][key.name] = value(key);
    }
    schema
}

fn described(key: &Key) -> Value {
    let mut schema = value(key);
    let absent = match key.absent {
        Absent::Required => "Required.".to_owned(),
        Absent::Default(text) => format!("Default: `{text}`."),
        Absent::Depends(text) => format!("Default: {text}."),
    };
    let mut about = vec![text(key.about)];
    if !key.kinds.is_empty() {
        about.push(format!("For the kinds {}.", key.kinds.join(", ")));
    }
    about.push(absent);
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".into(), about.join(" ").into());
    }
    schema
}

fn value(key: &Key) -> Value {
    if key.name == "traffic" {
        return json!({ "type": "object", "additionalProperties": group(key) });
    }
    // Any option of a transport may stand beside the documented ones.
    let is_open = key.name == "transport";
    let one = match (key.table, key.words) {
        (Some(inner), _) if is_open => json!({ "anyOf": [{ "type": "string" }, table(inner, true)] }),
        (Some(inner), _) => table(inner, false),
        (None, []) => scalar(key.type_name),
        (None, words) => json!({ "type": "string", "enum": words.iter().map(|word| word.name).collect::<Vec<_>>() }),
    };
    match key.type_name {
        "list" => json!({ "type": "array", "items": one }),
        TABLES_BY_NAME => json!({ "type": "object", "additionalProperties": one }),
        _ => one,
    }
}

/// Returns the schema of a value that is no table. Quantities are texts with a unit, or plain numbers.
fn scalar(type_name: &str) -> Value {
    match type_name {
        "number" => json!({ "type": "integer" }),
        "true or false" => json!({ "type": "boolean" }),
        "text" => json!({ "type": "string" }),
        _ => json!({ "type": ["string", "integer", "number"] }),
    }
}

fn text(about: Doc) -> String {
    about.paragraphs().collect::<Vec<_>>().join(" ")
}
