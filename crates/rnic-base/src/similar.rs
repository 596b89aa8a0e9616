//! Suggestions for mistyped names, for all errors about unknown ones.

use strsim::damerau_levenshtein;

/// Returns `; did you mean ...?` with the most similar of `names`, or nothing when none is similar: when more than a
/// third of the letters would have to change.
pub fn hint<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let word = word.to_lowercase();
    let scored = names.into_iter().map(|name| (damerau_levenshtein(&word, &name.to_lowercase()), name));
    match scored.min_by_key(|(distance, _)| *distance) {
        Some((distance, name)) if distance <= word.chars().count().max(3) / 3 => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["roce-gbn", "irn", "falcon", "delay", "irn-default"];
        for (word, meant) in [("facon", "falcon"), ("IRN", "irn"), ("dealy", "delay"), ("irn-defalt", "irn-default")] {
            assert_eq!(hint(word, names), format!("; did you mean `{meant}`?"));
        }
        assert_eq!((hint("quic", names), hint("", names)), (String::new(), String::new()));
        assert_eq!(hint("irn", []), "");
    }
}
