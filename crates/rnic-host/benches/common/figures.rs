//! Results of several rounds, printed as a table.

/// Returns the number of rounds that the command line asks for, `default` unless it does; none when `cargo test`, which
/// builds benches too, runs one.
#[allow(dead_code, reason = "one bench has further arguments")]
pub fn rounds(default: u32) -> Option<u32> {
    let arguments: Vec<String> = std::env::args().collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    is_bench.then(|| arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(default))
}

/// Results by name, one value per round.
#[derive(Default)]
pub struct Figures(Vec<(String, Vec<f64>)>);

impl Figures {
    /// Adds the value of a round.
    pub fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    /// Returns the median over rounds of the result `name`.
    #[allow(dead_code, reason = "not every bench judges")]
    pub fn median(&self, name: &str) -> f64 {
        let (_, values) = self.0.iter().find(|(existing, _)| existing == name).expect("a figure that was added");
        let mut values = values.clone();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Prints one row per name: median, minimum, maximum.
    pub fn print(&mut self) {
        println!("{:<44} {:>9} {:>9} {:>9}", "", "median", "least", "most");
        for (name, values) in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name:<44} {:>9.2} {least:>9.2} {most:>9.2}", values[values.len() / 2]);
        }
    }
}
