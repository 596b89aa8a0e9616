//! Circuits whose mutants are compared with one model, and those of their mutants that nothing notices.

use core::cell::Cell;
use core::ops::RangeInclusive;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use super::{Mutant, Mutants};
use crate::circuit::rtl_folder;
use crate::proof::{Verdict, compare_forms};
use crate::tools::{ToolError, write};

/// Variable with the numbers of mutants that are run instead of all, such as `12,40-52`, or `known`: those that are
/// said to live.
const WANTED: &str = "RNIC_MUTANTS";

/// Mutants that live for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Module in which they are.
    pub module: &'static str,
    /// Ends of the lines with the fault: each belongs to one mutant that lives.
    pub after: &'static [&'static str],
    /// Reason why they live.
    pub reason: &'static str,
    /// Folders with the module and all that it uses, and the module whose registers and outputs are proved to be equal
    /// in these: one proof for each. Without any, the reason is an argument.
    pub proofs: &'static [(&'static str, &'static [&'static str])],
}

impl Listed {
    /// Returns mutants without a proof.
    pub const fn new(module: &'static str, after: &'static [&'static str], reason: &'static str) -> Self {
        Self { module, after, reason, proofs: &[] }
    }

    /// Returns the same with proofs.
    #[must_use]
    pub const fn proved(self, proofs: &'static [(&'static str, &'static [&'static str])]) -> Self {
        Self { proofs, ..self }
    }

    fn has(&self, mutant: &Mutant) -> bool {
        self.module == mutant.module && self.after.iter().any(|end| mutant.after.ends_with(end))
    }
}

/// Circuits whose mutants are compared with one model.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name of the file in `rtl/mutants` with how many mutants there are.
    pub name: &'static str,
    /// Modules with mutants, named by their places in `rtl`.
    pub places: &'static [&'static str],
    /// Mutants that are the same circuit.
    pub same: &'static [Listed],
    /// Mutants that differ from the circuit in cases that the stimuli do not have.
    pub open: &'static [Listed],
}

impl Family {
    /// Returns all mutants.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn mutants(&self) -> Result<Mutants, ToolError> {
        Mutants::of(self.places)
    }

    fn listed(&self) -> impl Iterator<Item = &Listed> {
        self.same.iter().chain(self.open)
    }

    fn is_listed(&self, mutant: &Mutant) -> bool {
        self.listed().any(|listed| listed.has(mutant))
    }

    /// Compares mutants with the model: `is_noticed` says whether the one with a number, of a module, differs from it
    /// in so many cycles. Those that live after the shorter of two times and are not listed are run for the longer one.
    ///
    /// # Errors
    /// The mutants that live without being listed, or that are listed and do not live.
    pub fn run(
        &self,
        mutants: &Mutants,
        [short, long]: [u64; 2],
        is_noticed: impl Fn(usize, &str, u64) -> bool + Sync,
    ) -> Result<(), String> {
        let wanted = std::env::var(WANTED).ok();
        let all = || (1..=mutants.list.len()).collect();
        let numbers = wanted.as_ref().map_or_else(|| Ok(all()), |text| self.numbers(text, mutants))?;
        let alive = survivors(mutants, &numbers, |number, module| is_noticed(number, module, short));
        let (known, unknown): (Vec<usize>, Vec<usize>) =
            alive.iter().partition(|number| self.is_listed(&mutants.list[**number - 1]));
        eprintln!("{} mutants, {} live at first, {} are listed", numbers.len(), alive.len(), known.len());
        let alive = survivors(mutants, &unknown, |number, module| is_noticed(number, module, long));
        let alive: Vec<String> = alive.iter().map(|number| mutants.list[number - 1].to_string()).collect();
        if !alive.is_empty() {
            return Err(format!("{} mutants live:\n{}", alive.len(), alive.join("\n")));
        }
        let listed: usize = self.listed().map(|listed| listed.after.len()).sum();
        if wanted.is_none() && known.len() != listed {
            return Err(format!("{listed} are said to live, and {} do", known.len()));
        }
        Ok(())
    }

    /// Reads numbers of mutants.
    fn numbers(&self, text: &str, mutants: &Mutants) -> Result<Vec<usize>, String> {
        let all = 1..=mutants.list.len();
        if text == "known" {
            return Ok(all.filter(|number| self.is_listed(&mutants.list[number - 1])).collect());
        }
        let number = |text: &str| text.parse().ok().filter(|number| all.contains(number));
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: Option<RangeInclusive<usize>> = number(first).zip(number(last)).map(|(from, to)| from..=to);
            range.ok_or_else(|| format!("{WANTED} has numbers of mutants, not {part}"))
        };
        Ok(text.split(',').map(range).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Proves by yosys that mutants are the same circuit; returns those for which it finds no proof, and the number of
    /// proofs.
    ///
    /// # Errors
    /// When yosys fails.
    fn prove(&self, mutants: &Mutants) -> Result<(Vec<String>, usize), ToolError> {
        let (mut missing, mut count) = (Vec::new(), 0);
        for listed in self.same {
            for (number, mutant) in (1..).zip(&mutants.list).filter(|(_, mutant)| listed.has(mutant)) {
                for (top, folders) in listed.proofs {
                    let verdict = compare_forms(top, folders, &mutants.fixed(0), &mutants.fixed(number))?;
                    count += 1;
                    if verdict != Verdict::Equal {
                        missing.push(format!("{mutant} in {top} with {folders:?}"));
                    }
                }
            }
        }
        Ok((missing, count))
    }

    /// Proves all mutants that are listed with proofs.
    ///
    /// # Errors
    /// The mutants for which no proof is found, or yosys' failure.
    pub fn check_proofs(&self) -> Result<(), String> {
        let of = |error: ToolError| error.to_string();
        let (missing, count) = self.prove(&self.mutants().map_err(of)?).map_err(of)?;
        println!("{count} proofs");
        if missing.is_empty() { Ok(()) } else { Err(format!("no proof:\n{}", missing.join("\n"))) }
    }

    /// Checks that each end of a line that is listed belongs to one line, that at most 2 % of the other circuits are
    /// not noticed, and that the table is in its file.
    ///
    /// # Errors
    /// The first of these checks that fails.
    pub fn check_table(&self) -> Result<(), String> {
        let mutants = &self.mutants().map_err(|error| error.to_string())?;
        for Listed { module, after, reason, .. } in self.listed() {
            for end in *after {
                let is_it = |mutant: &&Mutant| mutant.module == *module && mutant.after.ends_with(end);
                // A line may be there several times, such as for each of several credit schemes.
                let lines: BTreeSet<&str> =
                    mutants.list.iter().filter(is_it).map(|mutant| mutant.after.as_str()).collect();
                if lines.len() != 1 {
                    return Err(format!("{} lines of {module} end with {end} ({reason})", lines.len()));
                }
            }
        }
        let count = |list: &[Listed]| list.iter().map(|listed| listed.after.len()).sum::<usize>();
        let (faults, open) = (mutants.list.len() - count(self.same), count(self.open));
        if 50 * open > faults {
            return Err(format!("{open} of {faults} faults are not noticed"));
        }
        let at = self.table_file();
        let text = std::fs::read_to_string(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        if text == self.table(mutants) { Ok(()) } else { Err(format!("{} has other numbers", at.display())) }
    }

    /// Writes the table into its file.
    ///
    /// # Errors
    /// When that fails.
    pub fn write_table(&self) -> Result<(), ToolError> {
        write(&self.table_file(), &self.table(&self.mutants()?))
    }

    /// Returns how many mutants each module has, how many of them are proved or argued to be the same circuit, and how
    /// many live without that.
    fn table(&self, mutants: &Mutants) -> String {
        let line = |place: &&str| {
            let module = module_of(place);
            let all = mutants.list.iter().filter(|mutant| mutant.module == module).count();
            let count = |list: &[Listed], has_proof: Option<bool>| -> usize {
                let of_module = list.iter().filter(|listed| listed.module == module);
                let counted = of_module.filter(|listed| has_proof.is_none_or(|it| it != listed.proofs.is_empty()));
                counted.map(|listed| listed.after.len()).sum()
            };
            let (proved, argued) = (count(self.same, Some(true)), count(self.same, Some(false)));
            let open = count(self.open, None);
            let noticed = all - proved - argued - open;
            format!(
                "  \"{module}\": {{ \"mutants\": {all}, \"noticed\": {noticed}, \"proved\": {proved}, \
                 \"argued\": {argued}, \"open\": {open} }}"
            )
        };
        format!("{{\n{}\n}}\n", self.places.iter().map(line).collect::<Vec<_>>().join(",\n"))
    }

    fn table_file(&self) -> PathBuf {
        rtl_folder().join("mutants").join(format!("{}.json", self.name))
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a comparison panics, whose message is not printed: it has noticed a mutant.
pub fn panics(comparison: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                print(info);
            }
        }));
    });
    IS_QUIET.set(true);
    // The comparison owns its models, or starts them: nothing is used after a panic.
    let is_panic = catch_unwind(AssertUnwindSafe(comparison)).is_err();
    IS_QUIET.set(false);
    is_panic
}

fn module_of(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

/// Returns which mutants are not noticed: two at a time.
fn survivors(mutants: &Mutants, numbers: &[usize], is_noticed: impl Fn(usize, &str) -> bool + Sync) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    let alive = Mutex::new(Vec::new());
    let work = || {
        while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mutant = &mutants.list[number - 1];
            if !is_noticed(*number, &mutant.module) {
                eprintln!("alive {number}: {mutant}");
                alive.lock().unwrap_or_else(PoisonError::into_inner).push(*number);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut alive = alive.into_inner().unwrap_or_else(PoisonError::into_inner);
    alive.sort_unstable();
    alive
}
