//! `rnic run`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use rnic_base::Duration;
use rnic_host::{VARIABLES, Variable};

use super::values::positive_time;

/// Arguments of `rnic run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Settings of the device.
    #[command(flatten)]
    pub settings: SettingFlags,

    /// Carry the program's TCP connections, too, where the program at the other end has this option: over the transport
    /// tonic-new-reno, unless `--transport` names another
    #[arg(long)]
    pub sockets: bool,

    /// Record the counters of the program's NICs and queue pairs, and of those of all processes that it starts, in
    /// FILE, in the form of a simulation's time series (Parquet)
    #[arg(long, value_name = "FILE", conflicts_with = "show")]
    pub record: Option<PathBuf>,

    /// Interval between the samples of a recording
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = positive_time, requires = "record")]
    pub record_interval: Duration,

    /// Do not run a program; print the variables in the form that `env` and shells accept
    #[arg(long)]
    pub show: bool,

    /// Program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    #[arg(required_unless_present = "show")]
    pub command: Vec<std::ffi::OsString>,
}

/// One option for each variable in [`VARIABLES`].
#[derive(Clone, Debug, Default)]
pub struct SettingFlags(Vec<(&'static Variable, String)>);

impl SettingFlags {
    /// Returns the settings that were given, as pairs of variable and value.
    pub fn given(&self) -> impl Iterator<Item = (&'static Variable, &str)> {
        self.0.iter().map(|(variable, value)| (*variable, value.as_str()))
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(VARIABLES.iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |variable: &Variable| {
            let values: Vec<&str> = matches.get_many::<String>(variable.option)?.map(String::as_str).collect();
            Some(values.join(","))
        };
        Ok(Self(VARIABLES.iter().filter_map(|variable| Some((variable, value(variable)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn option(variable: &'static Variable) -> Arg {
    let by_default = if variable.default.is_empty() { String::new() } else { format!(" [{}]", variable.default) };
    let arg = Arg::new(variable.option).long(variable.option).value_name(variable.value);
    let arg = arg.help(format!("{}{by_default}", variable.meaning));
    if variable.is_list() {
        return arg.action(ArgAction::Append);
    }
    if variable.option == "quiet" {
        // A value must follow `=`, because the next argument is the program.
        return arg.num_args(0..=1).require_equals(true).default_missing_value("on");
    }
    arg
}

const EXAMPLES: &str = "\
Runs PROGRAM with our libibverbs and librdmacm in place of the system's. The process becomes the program: its exit \
code, its signals (with --record, it waits for the program, and passes both on). Each option sets the variable of its \
name (--loss: RNIC_LOSS) for the program and everything that it starts; variables that are set already stay unless \
their option is given.

Examples:
  rnic run -- ib_write_bw                                on one side, and on the other:
  rnic run -- ib_write_bw 127.0.0.1
  rnic run --loss 1% --reorder 5% --seed 7 -- ib_send_lat 127.0.0.1
  rnic run --sockets --loss 1% -- iperf3 -s              and on the other side:
  rnic run --sockets --loss 1% -- iperf3 -c 127.0.0.1
  rnic run --record bw.parquet --loss 1% -- ib_write_bw 127.0.0.1
  rnic run -- mpirun -n 2 --mca pml ucx ./program
  rnic run --show                                        what it sets, for containers and batch systems";
