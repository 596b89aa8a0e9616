//! Re-runs figures of papers on the fabric and compares the results with the papers.
//!
//! ```text
//! CRATE    rnic-reproduce (amber: change with a test of what a check computes, or of what a report shows)
//! Purpose  turns experiments and sweeps into runs, these into samples, and these into verdicts, intervals and reports
//! May use  rnic-base, rnic-wire, rnic-program, rnic-tonic, rnic-policy, rnic-transports, rnic-fae, rnic-falcon,
//!          rnic-engine, rnic-fabric, rnic-page
//! Must not name a paper or a transport (experiments/, trials do); change a number between a run and the report
//! Add here a shape of check, a kind of plot, a quantity that is computed without a run, a trial (line in TRIALS)
//! Not here what a simulation does (rnic-fabric), numbers and bands (experiments/), arguments (rnic-cli)
//! Tested by tests/, on small experiments: every shape of check, every error line, cache, report
//! ```
//!
//! Processing of an experiment: [`Catalogue`] reads the folders; [`Work`] builds the list of runs, each once however
//! many experiments need it; [`pool`] or another machine executes them; [`judge`] computes rows with verdicts from the
//! samples.
//!
//! [`sensitivity`] judges rows again with other values of the parameters that a paper leaves open.
//!
//! Plans of one's own: [`sweep`] varies keys of a plan over several seeds, [`run_set`] is what its runs have found, and
//! [`compare`] says in what two of these differ.

#![forbid(unsafe_code)]

pub mod axis;
pub mod catalogue;
pub mod compare;
pub mod estimate;
pub mod experiment;
pub mod files;
pub mod input;
pub mod judge;
mod label;
pub mod machine;
pub mod origin;
pub mod pool;
pub mod quantity;
pub mod report;
pub mod run;
pub mod run_set;
pub mod sensitivity;
pub mod store;
pub mod sweep;
pub mod traces;
pub mod trial;
pub mod work;

pub use catalogue::{Catalogue, CatalogueError};
pub use experiment::Experiment;
pub use files::{FileTable, Files, PlanFolder};
pub use judge::{Row, Verdict};
pub use origin::Origin;
pub use report::Report;
pub use run::{RunSpec, Sample, Task};
pub use work::{Size, Work};

/// Fingerprint of the sources that the result of a run depends on, computed when this crate was built.
pub const SOURCES: &str = env!("RNIC_SOURCES");
