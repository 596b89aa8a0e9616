//! Names of values in plans, as tables and figures have them.

/// How a value is called.
pub(crate) fn label_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
