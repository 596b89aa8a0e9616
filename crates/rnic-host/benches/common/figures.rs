//! Figures of several rounds, as a table.

/// Figures by name, one value a round.
#[derive(Default)]
pub struct Figures(Vec<(String, Vec<f64>)>);

impl Figures {
    /// Adds the value of a round.
    pub fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    /// The median over rounds of a figure that was added.
    #[allow(dead_code, reason = "not every bench judges")]
    pub fn median(&self, name: &str) -> f64 {
        let (_, values) = self.0.iter().find(|(known, _)| known == name).expect("a figure that was added");
        let mut values = values.clone();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Prints a row a name: median, least, most.
    pub fn print(&mut self) {
        println!("{:<44} {:>9} {:>9} {:>9}", "", "median", "least", "most");
        for (name, values) in &mut self.0 {
            values.sort_by(f64::total_cmp);
            let (least, most) = (values[0], values[values.len() - 1]);
            println!("{name:<44} {:>9.2} {least:>9.2} {most:>9.2}", values[values.len() / 2]);
        }
    }
}
