//! Formats commands for pasting into a shell.

/// Joins `words` into one line; words that contain characters that are unusual in names and paths are quoted.
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
    fn words_with_shell_characters_are_quoted() {
        let words = ["rnic", "a b", "it's", "links.rate=40Gbps", ""];
        assert_eq!(join(&words), r"rnic 'a b' 'it'\''s' links.rate=40Gbps ''");
    }
}
