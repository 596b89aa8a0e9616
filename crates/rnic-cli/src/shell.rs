//! Formats commands for pasting into a shell.

/// Joins `words` into one line; words with characters other than those of names and paths are quoted.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_change_is_quoted() {
        let words = ["rnic", "a b", "it's", "links.rate=40Gbps", ""];
        assert_eq!(join(&words), r"rnic 'a b' 'it'\''s' links.rate=40Gbps ''");
    }
}
