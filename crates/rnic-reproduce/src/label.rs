//! Labels of plan values for tables and figures.

/// Returns the label of a value.
pub(crate) fn label_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
