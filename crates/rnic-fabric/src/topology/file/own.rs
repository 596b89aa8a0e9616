//! OpenRNIC's own format: lines of words, written by hand.
//!
//! `host NAME...` and `switch NAME...` declare nodes, `link A B [RATE] [DELAY]` links. A name may contain a list of
//! numbers in brackets, `h[0-7]` or `leaf[0,2]`, and stands for several names then; a link between two such names links
//! each node of the first to each node of the second, in this order. Two links between the same switches are two links.
//! Hosts have the numbers of their declarations; ports are numbered in the order of links. `#` starts a comment.

use std::collections::BTreeMap;

use super::{Defaults, FileError, LinkPlan, Wiring, Word, similar, words_of_line};
use crate::topology::wiring::{End, HOSTS_MAX, LINKS_MAX};

pub(super) fn read(text: &str, defaults: &Defaults) -> Result<Wiring, FileError> {
    let mut file = File { wiring: Wiring::default(), nodes: BTreeMap::new(), defaults };
    for line in (1..).zip(text.lines()) {
        let words: Vec<Word<'_>> = words_of_line(line).collect();
        let [first, rest @ ..] = &words[..] else { continue };
        match first.text {
            "host" => file.declare(first, rest, true)?,
            "switch" => file.declare(first, rest, false)?,
            "link" => file.link(first, rest)?,
            _ => {
                let hint = similar::hint(first.text, ["host", "switch", "link"]);
                let what = format!("`{}` starts no line; lines start with host, switch or link{hint}", first.shown());
                return Err(first.wrong(what));
            }
        }
    }
    Ok(file.wiring)
}

struct File<'d> {
    wiring: Wiring,
    nodes: BTreeMap<String, End>,
    defaults: &'d Defaults,
}

impl File<'_> {
    fn declare(&mut self, first: &Word<'_>, names: &[Word<'_>], is_host: bool) -> Result<(), FileError> {
        if names.is_empty() {
            return Err(first.wrong(format!("`{0}` has no name; write `{0} NAME`", first.text)));
        }
        for word in names {
            for name in expand(word)? {
                check_name(word, &name)?;
                if self.nodes.contains_key(&name) {
                    return Err(word.wrong(format!("`{name}` is declared twice; choose another name")));
                }
                let end = if is_host {
                    self.wiring.host_names.push(name.clone());
                    self.wiring.add_host()
                } else {
                    self.wiring.add_switch(name.clone())
                };
                self.nodes.insert(name, end.map_err(|what| word.wrong(what))?);
            }
        }
        Ok(())
    }

    fn link(&mut self, first: &Word<'_>, words: &[Word<'_>]) -> Result<(), FileError> {
        let [a_word, b_word, values @ ..] = words else {
            return Err(first.wrong("a link needs two nodes; write `link A B RATE DELAY`"));
        };
        let (rate, delay) = match values {
            [] => (None, None),
            [rate] if is_rate(rate) => (Some(rate.rate()?), None),
            [delay] => (None, Some(delay.delay()?)),
            [rate, delay] => (Some(rate.rate()?), Some(delay.delay()?)),
            [_, _, extra, ..] => {
                return Err(extra.wrong(format!("`{}` is too much; a link is `link A B RATE DELAY`", extra.shown())));
            }
        };
        let (a_all, b_all) = (self.find(a_word)?, self.find(b_word)?);
        if a_all.len() * b_all.len() > LINKS_MAX {
            return Err(first.wrong(format!("more than {LINKS_MAX} links; a network may have that many")));
        }
        for a in &a_all {
            for b in &b_all {
                let is_fabric = matches!((a, b), (End::Switch(_), End::Switch(_)));
                let default = if is_fabric { self.defaults.fabric } else { self.defaults.host };
                let missing = |what: &str, example: &str| {
                    let what = format!("no {what}; write one, such as {example}, or give links.{what} in the plan");
                    b_word.wrong(what)
                };
                let rate = rate.or(default.0).ok_or_else(|| missing("rate", "100Gbps"))?;
                let delay = delay.or(default.1).ok_or_else(|| missing("delay", "1us"))?;
                let added = self.wiring.add_own_link(*a, *b, LinkPlan { rate, delay });
                added.map_err(|what| b_word.wrong(what))?;
            }
        }
        Ok(())
    }

    fn find(&self, word: &Word<'_>) -> Result<Vec<End>, FileError> {
        let find = |name: String| {
            self.nodes.get(&name).copied().ok_or_else(|| {
                let hint = similar::hint(&name, self.nodes.keys().take(HINT_NAMES_MAX).map(String::as_str));
                let what = format!("`{}` is not declared above; write `host` or `switch` and its name", shown(&name));
                word.wrong(what + &hint)
            })
        };
        expand(word)?.into_iter().map(find).collect()
    }
}

fn is_rate(word: &Word<'_>) -> bool {
    word.text.ends_with("bps") || word.text.ends_with("bit/s")
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_BYTES_MAX).collect()
}

/// Rejects names that patterns of links could not name.
fn check_name(word: &Word<'_>, name: &str) -> Result<(), FileError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':');
    if name.len() > NAME_BYTES_MAX || name.is_empty() || !name.bytes().all(is_valid) {
        let what =
            format!("`{}` is no name; use 1 to {NAME_BYTES_MAX} letters, digits and characters of -_.:/", shown(name));
        return Err(word.wrong(what));
    }
    Ok(())
}

/// Returns the names for which a word stands: `leaf[0-2,7]` for four.
fn expand(word: &Word<'_>) -> Result<Vec<String>, FileError> {
    let Some((before, rest)) = word.text.split_once('[') else { return Ok(vec![word.text.to_owned()]) };
    let wrong = || {
        let what = format!("`{}` is not a name with one list of numbers, such as leaf[0-3] or leaf[0,2]", word.shown());
        word.wrong(what)
    };
    let (list, after) = rest.split_once(']').ok_or_else(wrong)?;
    if before.len() + after.len() > NAME_BYTES_MAX || after.contains(['[', ']']) {
        return Err(wrong());
    }
    let mut names = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last || (last - first) as usize >= HOSTS_MAX - names.len() {
            let what = format!("`{}` is not 1 to {HOSTS_MAX} names; write the smaller number first", word.shown());
            return Err(word.wrong(what));
        }
        names.extend((first..=last).map(|number| format!("{before}{number}{after}")));
    }
    Ok(names)
}

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Number of names among which a similar one is searched.
const HINT_NAMES_MAX: usize = 1_000;
