//! Threads for the parts of a simulated network.
//!
//! Uses Rayon: its workers spin for a while before they sleep, which suits the short time from one simulation window
//! to the next.

use std::ops::ControlFlow;

use rayon::ThreadPoolBuilder;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rnic_fabric::simulation::{Part, PartRunner};
use rnic_fabric::{Progress, Report, Simulation};

use crate::failure::Failure;

/// A [`PartRunner`] that runs parts on the threads of the current Rayon pool.
struct Pool;

impl PartRunner for Pool {
    fn run(&mut self, parts: &mut [Part]) {
        parts.par_iter_mut().with_max_len(1).for_each(Part::run);
    }
}

/// Runs `simulation` to the end, with one thread for each of its parts.
///
/// # Errors
/// When the system cannot create the threads.
pub fn run(
    simulation: &mut Simulation,
    progress: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
) -> Result<Report, Failure> {
    let threads = simulation.part_count();
    if threads == 1 {
        return Ok(simulation.run(progress));
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("rnic-sim-{index}")).build();
    let pool = pool.map_err(|error| {
        Failure::input(format!("--threads {threads}: cannot start the threads: {error}; use fewer"))
    })?;
    simulation.set_runner(Box::new(Pool));
    Ok(pool.install(|| simulation.run(progress)))
}
