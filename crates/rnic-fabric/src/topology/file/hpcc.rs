//! HPCC's `topology.txt`, for ns-3 (<https://github.com/alibaba-edu/High-Precision-Congestion-Control>, and the
//! simulators derived from it).
//!
//! The first line has the numbers of nodes, switches and links, the second one the numbers of the switches, and each
//! following line a link: source, destination, rate, delay, error rate. As there, line ends are spaces, and what
//! follows the last link is not read. Hosts are numbered in the order of their numbers in the file, without gaps
//! (`host-0 ..`); the name of a switch has its number in the file: `switch-320`.

use rnic_base::{BitRate, Duration};

use super::{FileError, LinkPlan, Wiring, Word, words};
use crate::topology::wiring::{End, HOSTS_MAX, LINKS_MAX, SWITCHES_MAX};

pub(super) fn read(text: &str) -> Result<Wiring, FileError> {
    let mut words = Words::of(text);
    let nodes = words.count("the number of nodes", HOSTS_MAX + SWITCHES_MAX)?;
    let switches = words.count("the number of switches", SWITCHES_MAX)?;
    let links = words.count("the number of links", LINKS_MAX)?;

    let node_of = |word: &Word<'_>| {
        let number = word.number("the number of a node")? as usize;
        match number < nodes {
            true => Ok(number),
            false => Err(word.wrong(format!("there is no node {number}; the {nodes} nodes are numbered from 0"))),
        }
    };
    let mut is_switch = vec![false; nodes];
    for _ in 0..switches {
        let word = words.next("the number of a switch")?;
        if core::mem::replace(&mut is_switch[node_of(&word)?], true) {
            return Err(word.wrong(format!("the switch {} is listed twice; remove it", word.text)));
        }
    }
    let mut wiring = Wiring::default();
    let add = |(number, is_switch): (usize, &bool)| match is_switch {
        true => wiring.add_switch(format!("switch-{number}")),
        false => wiring.add_host(),
    };
    let ends: Vec<End> = is_switch.iter().enumerate().map(add).collect::<Result<_, _>>().map_err(FileError::Graph)?;
    for _ in 0..links {
        let source = words.next("the source of a link")?;
        let destination = words.next("the destination of a link")?;
        let (a, b) = (ends[node_of(&source)?], ends[node_of(&destination)?]);
        let rate = rate(&words.next("the rate of a link")?)?;
        let delay = delay(&words.next("the delay of a link")?)?;
        let errors = words.next("the error rate of a link")?;
        if !errors.text.bytes().all(|digit| matches!(digit, b'0' | b'.')) {
            let what = "the error rate is not 0; write 0, and a [[fault]] of the kind drop with this link in the plan";
            return Err(errors.wrong(what));
        }
        wiring.add_own_link(a, b, LinkPlan { rate, delay }).map_err(|what| source.wrong(what))?;
    }
    Ok(wiring)
}

/// The words of a file that are left.
struct Words<'t> {
    rest: Box<dyn Iterator<Item = Word<'t>> + 't>,
    last: Option<Word<'t>>,
}

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Self {
        Self { rest: Box::new(words(text)), last: None }
    }

    fn next(&mut self, what: &str) -> Result<Word<'t>, FileError> {
        match self.rest.next() {
            Some(word) => Ok(*self.last.insert(word)),
            None => {
                let what = format!("the file ends before {what}; is it cut off, or a number in the first line wrong?");
                Err(self.last.map_or_else(|| FileError::Graph(what.clone()), |word| word.wrong(what.clone())))
            }
        }
    }

    fn count(&mut self, what: &str, max: usize) -> Result<usize, FileError> {
        let word = self.next(what)?;
        let number = word.number(what)? as usize;
        if number > max {
            return Err(word.wrong(format!("{what} must be at most {max}")));
        }
        Ok(number)
    }
}

/// Reads a rate as ns-3 writes it: `100Gbps`, also `100Gb/s`.
fn rate(word: &Word<'_>) -> Result<BitRate, FileError> {
    let text = word.text.replace("b/s", "bps");
    Word { text: &text, ..*word }.rate()
}

/// Reads a delay as ns-3 writes it: `1000ns`, `0.001ms`; a number alone is in seconds.
fn delay(word: &Word<'_>) -> Result<Duration, FileError> {
    let is_bare = word.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = if is_bare { format!("{}s", word.text) } else { word.text.to_owned() };
    Word { text: &text, ..*word }.delay()
}
