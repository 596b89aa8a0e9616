//! `rnic plan`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `rnic plan`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// The action.
    #[command(subcommand)]
    pub action: PlanAction,
}

/// The actions of `rnic plan`.
#[derive(Subcommand, Clone, Debug)]
pub enum PlanAction {
    /// List the built-in plans
    List,

    /// Print a plan
    Show {
        /// Name of a built-in plan, or path of a TOML file
        #[arg(value_name = "PLAN")]
        plan: PathBuf,
    },

    /// Write a built-in plan to a file, as a start for one of your own
    New {
        /// File to write; it must not exist
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,

        /// Built-in plan to start from
        #[arg(long, value_name = "PLAN", default_value = "incast")]
        from: PathBuf,
    },

    /// Print the JSON Schema of plans, with which editors complete and check keys
    Schema,
}

const EXAMPLES: &str = r#"Examples:
  rnic plan list
  rnic plan show incast
  rnic plan new mine.toml --from irn-default
  rnic plan schema > plan.schema.json

Even Better TOML and taplo use the schema if a plan begins with this line:
  #:schema ./plan.schema.json"#;
