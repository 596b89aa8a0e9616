//! Writes the program file, to the path that is given or to `my-transport.rnicp`: `cargo run`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "my-transport.rnicp".to_owned());
    std::fs::write(&path, rnic_transports::programs::to_file(&my_transport::Program)?)?;
    println!("{path}: written");
    Ok(())
}
