//! The environment in which the programs run: hosts, network conditions, user.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::cable::Cable;

/// Conditions under which the programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conditions {
    /// Loopback, as the user who runs the tests.
    Plain,
    /// As `Plain`, with 1 % of all packets lost and 5 % reordered.
    Lossy,
    /// As user `nobody` with 8 MB of locked memory, in two network namespaces joined by a veth pair with an MTU of 1500
    /// and the receive buffer sizes of most distributions.
    Confined,
}

impl Conditions {
    /// All conditions.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Lossy, Self::Confined];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Lossy => "lossy",
            Self::Confined => "confined",
        }
    }
}

/// Reason for which an environment could not be set up.
#[derive(Debug)]
pub struct PlaceError(String);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for PlaceError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A prepared environment. Dropping it removes everything that it created.
#[derive(Debug)]
pub struct Place {
    conditions: Conditions,
    /// Copies of the command and the libraries, readable by every user.
    programs: TempDir,
    /// Transport of reliable connections, if it differs from the default of the conditions.
    transport: Option<String>,
    /// Flags of `rnic run` from the command line.
    flags: Vec<String>,
    confinement: Option<Confinement>,
}

impl Place {
    /// Prepares `conditions` for the `rnic` command in `bin`, whose libraries are in `lib/rnic` beside it; `transport`
    /// replaces the default transport if it is given.
    ///
    /// # Errors
    /// When the command does not exist, or the system refuses an operation.
    pub fn prepare(
        conditions: Conditions,
        bin: &Path,
        transport: Option<String>,
        flags: Vec<String>,
    ) -> Result<Self, PlaceError> {
        let programs = TempDir::with_prefix("rnic-apps-")?;
        fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755))?;
        let missing = |path: &Path| PlaceError(format!("{} is not there: run `make build` first", path.display()));
        let command = bin.join("rnic");
        if !command.is_file() {
            return Err(missing(&command));
        }
        fs::copy(&command, programs.path().join("rnic"))?;
        let libraries = programs.path().join("lib/rnic");
        fs::create_dir_all(&libraries)?;
        let built = bin.join("lib/rnic");
        for name in ["libibverbs.so.1", "librnic-shim.so", "librnic_sockets.so"] {
            let from = built.join(name);
            fs::copy(&from, libraries.join(name)).map_err(|_| missing(&from))?;
        }
        std::os::unix::fs::symlink("libibverbs.so.1", libraries.join("librdmacm.so.1"))?;
        let confinement = if conditions == Conditions::Confined { Some(Confinement::make()?) } else { None };
        Ok(Self { conditions, programs, transport, flags, confinement })
    }

    /// Returns the conditions under which programs run in this environment.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Returns the server's address.
    pub fn host(&self) -> String {
        match &self.confinement {
            Some(_) => Cable::ADDRESSES[0].to_owned(),
            None => own_address(),
        }
    }

    /// Returns a directory that every user may use; it is removed with this environment.
    pub fn scratch(&self) -> &Path {
        self.programs.path()
    }

    /// Returns a command that runs under `rnic run` in this environment, for the server's side or the client's; with
    /// `sockets`, for a program with TCP sockets.
    pub fn command(&self, is_server: bool, sockets: bool) -> Command {
        let rnic = self.programs.path().join("rnic");
        let mut command = match &self.confinement {
            None => Command::new(rnic),
            Some(confinement) => {
                let mut command = confinement.cable.inside(if is_server { 0 } else { 1 });
                command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
                command.args(["prlimit", "--memlock=8388608:8388608"]).arg(rnic);
                command
            }
        };
        command.arg("run");
        let is_lossy = self.conditions == Conditions::Lossy;
        if sockets {
            command.arg("--sockets");
        }
        let own = (is_lossy && !sockets).then_some("irn");
        if let Some(transport) = self.transport.as_deref().or(own) {
            command.args(["--transport", transport]);
        }
        if is_lossy {
            command.args(["--loss", "1%", "--reorder", "5%", "--seed", "7"]);
        }
        command.args(&self.flags).arg("--").env("RNIC_LIBRARY_DIR", self.programs.path().join("lib/rnic"));
        command.env("HOME", self.programs.path());
        command
    }
}

/// Returns an address of this machine that is not loopback, as libfabric requires; loopback when there is no other.
fn own_address() -> String {
    let others = rnic_host::local_addresses().unwrap_or_default();
    let address = others.iter().find(|address| address.ip.is_ipv4() && !address.is_loopback);
    address.map_or_else(|| "127.0.0.1".to_owned(), |address| address.ip.to_string())
}

/// A virtual cable between two network namespaces, and small receive buffers while it exists.
#[derive(Debug)]
struct Confinement {
    cable: Cable,
    receive_buffer_max: String,
}

impl Confinement {
    fn make() -> Result<Self, PlaceError> {
        let receive_buffer_max = fs::read_to_string(RECEIVE_BUFFER_MAX)?;
        let confinement = Self { cable: Cable::create().map_err(PlaceError)?, receive_buffer_max };
        fs::write(RECEIVE_BUFFER_MAX, "212992")?;
        Ok(confinement)
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        let _ = fs::write(RECEIVE_BUFFER_MAX, self.receive_buffer_max.trim());
    }
}

const RECEIVE_BUFFER_MAX: &str = "/proc/sys/net/core/rmem_max";
