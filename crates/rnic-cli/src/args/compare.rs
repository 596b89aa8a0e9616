//! `rnic compare`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `rnic compare`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Folder that `rnic sim --out` or `rnic sweep --out` wrote, of this build or of another
    #[arg(value_name = "A")]
    pub a: PathBuf,

    /// Folder to compare it with
    #[arg(value_name = "B")]
    pub b: PathBuf,

    /// Number of the report to compare; may be given several times [default: the usual ones; with --json, all]
    #[arg(long = "field", value_name = "FIELD")]
    pub fields: Vec<String>,

    /// Write compare.html, with the distributions and the time series over each other, to DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  rnic sim incast --seeds 5 --out out/irn
  rnic sim incast --seeds 5 --out out/gbn --set 'transport={name=\"roce-gbn\"}'
  rnic compare out/irn out/gbn --out out/irn-gbn

A difference is marked with * when it is significant at 95 %, all rows considered together (Student's test, paired \
by seeds where both have the same, corrected after Holm). With one seed there is no judgement.";
