//! A key of a plan with several values.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A key of the plan, and the values that it takes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// Key of the plan, a dotted path.
    pub key: String,
    /// Values, as they are written in a plan.
    pub values: Vec<String>,
}

impl FromStr for Axis {
    type Err = String;

    /// Reads `KEY=VALUE,VALUE`; commas within quotes, brackets and braces are part of a value.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("expected KEY=VALUE,VALUE")?;
        let values: Vec<String> = split_values(values)?.into_iter().map(|value| value.trim().to_owned()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err("expected KEY=VALUE,VALUE, without empty values".to_owned());
        }
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                return Err(format!("the value {value} is given twice"));
            }
        }
        Ok(Self { key: key.trim().to_owned(), values })
    }
}

/// Splits at commas outside of quotes, brackets and braces.
fn split_values(text: &str) -> Result<Vec<&str>, String> {
    let (mut depth, mut quote, mut start, mut values) = (0usize, None, 0, Vec::new());
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.checked_sub(1).ok_or_else(|| format!("`{letter}` closes nothing"))?,
            (None, ',') if depth == 0 => {
                values.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || quote.is_some() {
        return Err("a quote, bracket or brace is not closed".to_owned());
    }
    values.push(&text[start..]);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_quotes_and_brackets_belong_to_a_value() {
        let axis: Axis = r#"transport={name="irn", rto_high="1ms"}, roce-gbn ,["a,b"]"#.parse().expect("it is valid");
        assert_eq!((axis.key.as_str(), axis.values.len()), ("transport", 3));
        assert_eq!(axis.values[..2], [r#"{name="irn", rto_high="1ms"}"#, "roce-gbn"]);
        for (text, reason) in [
            ("links.rate", "expected KEY=VALUE"),
            ("links.rate=", "without empty values"),
            ("=1", "without empty values"),
            ("a=1,,2", "without empty values"),
            ("a=1,2,1", "the value 1 is given twice"),
            ("a={b=1", "is not closed"),
            ("a=b]", "`]` closes nothing"),
        ] {
            let error = text.parse::<Axis>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
