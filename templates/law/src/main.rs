//! Writes the file of the law, to the path that is given or to `my-law.rnicp`: `cargo run`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "my-law.rnicp".to_owned());
    std::fs::write(&path, rnic_transports::laws::to_file(&my_law::Law)?)?;
    println!("{path}: written");
    Ok(())
}
