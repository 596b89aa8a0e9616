//! Writes the file of the law, to the path that is given or to `my-law.rnicp`: `cargo run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let path = std::env::args().nth(1).unwrap_or_else(|| "my-law.rnicp".to_owned());
    match write(&path) {
        Ok(()) => {
            println!("{path}: written");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Checks the law as `rnic program check` does, and writes its file.
fn write(path: &str) -> Result<(), String> {
    let text = rnic_transports::laws::to_file(&my_law::Law).map_err(|reason| reason.to_string())?;
    std::fs::write(path, text).map_err(|reason| format!("{path}: {reason}"))
}
