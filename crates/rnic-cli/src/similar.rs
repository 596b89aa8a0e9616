//! Suggestions for mistyped names.

use strsim::jaro_winkler;

/// Returns `; did you mean ...?` with the most similar of `names`, or nothing when none is similar.
pub fn hint<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    closest(word, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn closest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_lowercase();
    let scored = names.into_iter().map(|name| (jaro_winkler(&word, &name.to_lowercase()), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(score, _)| *score >= SIMILAR).map(|(_, name)| name)
}

/// Least similarity of a suggestion, by which unrelated names are left out.
const SIMILAR: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["roce-gbn", "irn", "falcon", "links.delay"];
        assert_eq!(hint("facon", names), "; did you mean `falcon`?");
        assert_eq!(hint("IRN", names), "; did you mean `irn`?");
        assert_eq!(hint("links.dealy", names), "; did you mean `links.delay`?");
        assert_eq!((hint("quic", names), hint("", names)), (String::new(), String::new()));
    }
}
