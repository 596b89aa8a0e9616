//! The header block (card) in the module documentation of every crate root: purpose, permitted dependencies, and
//! which code belongs in the crate.

use std::collections::BTreeMap;

/// The six headings, in order, below the line `CRATE name (colour: note)`.
pub const HEADINGS: [&str; 6] = ["Purpose", "May use", "Must not", "Add here", "Not here", "Tested by"];

/// Colours: how much care a change to a crate needs.
pub const COLOURS: [&str; 3] = ["green", "amber", "red"];

const TITLE: &str = "CRATE";

/// A card, parsed from the documentation of a crate root.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Name of the crate.
    pub name: String,
    /// Text in parentheses after the name: a colour, then a note.
    pub colour: String,
    /// Line of each heading, from 1.
    pub lines: BTreeMap<&'static str, usize>,
    texts: BTreeMap<&'static str, String>,
}

impl Card {
    /// Reads the card from the `//!` lines of `source`; `None` when there is no `CRATE` line.
    pub fn read(source: &str) -> Option<Self> {
        let docs = source.lines().enumerate().map_while(|(index, line)| Some((index + 1, line.strip_prefix("//!")?)));
        let mut card: Option<Self> = None;
        let mut open: Option<&'static str> = None;
        for (number, line) in docs {
            let line = line.strip_prefix(' ').unwrap_or(line);
            if line.starts_with("```") && card.is_some() {
                break;
            }
            if let Some(title) = line.strip_prefix(TITLE) {
                card = Some(Self::titled(title, number));
            }
            let Some(card) = &mut card else { continue };
            if let Some(heading) = HEADINGS.iter().find(|heading| line.starts_with(**heading)) {
                card.lines.insert(heading, number);
                card.texts.insert(heading, line[heading.len()..].trim().to_owned());
                open = Some(heading);
            } else if line.starts_with(' ')
                && let Some(text) = open.and_then(|heading| card.texts.get_mut(heading))
            {
                text.push(' ');
                text.push_str(line.trim());
            }
        }
        card
    }

    fn titled(title: &str, number: usize) -> Self {
        let title = title.trim();
        let (name, colour) = title.split_once(' ').unwrap_or((title, ""));
        let colour = colour.trim().trim_start_matches('(').trim_end_matches(')');
        Self {
            name: name.to_owned(),
            colour: colour.to_owned(),
            lines: BTreeMap::from([(TITLE, number)]),
            texts: BTreeMap::new(),
        }
    }

    /// Returns the text under `heading`; empty when it is missing.
    pub fn text(&self, heading: &str) -> &str {
        self.texts.get(heading).map_or("", String::as_str)
    }

    /// Returns the colour without the note.
    pub fn colour_word(&self) -> &str {
        self.colour.split(':').next().unwrap_or_default().trim()
    }

    /// Returns the crates named under `May use`.
    pub fn may_use(&self) -> Vec<&str> {
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '-';
        self.text("May use").split(|c| !is_name_char(c)).filter(|word| word.starts_with("rnic-")).collect()
    }
}
