//! Interactive charts of time series: zoom, choice of quantity and of series.
//!
//! The charts are drawn by uPlot (`vendor/uplot`, MIT licence), which a page contains with its data: a page remains one
//! file, readable without network or server.

use core::fmt::Write;

use maud::{Markup, PreEscaped, Render, html};

/// Charts that share their time axis: a zoom in one applies to all.
#[derive(Clone, Debug, Default)]
pub struct Plots(pub Vec<Plot>);

/// An interactive chart, which shows one quantity at a time.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title of the chart.
    pub title: String,
    /// Explanation of how to read the chart; may be empty.
    pub caption: String,
    /// Label of the time axis, with its unit.
    pub x: String,
    /// Times of all samples, in increasing order.
    pub times: Vec<f64>,
    /// The quantities among which a reader chooses; the first one is shown first.
    pub quantities: Vec<Quantity>,
    /// Number of series, the first of each quantity, that are shown first; `None` for the five highest.
    pub shown: Option<usize>,
}

/// A quantity with one series for each object.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Name of the quantity.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
    /// Description, one sentence.
    pub about: String,
    /// Series, at least one.
    pub series: Vec<TimeSeries>,
}

/// Values over time.
#[derive(Clone, Debug)]
pub struct TimeSeries {
    /// Name of the object.
    pub name: String,
    /// Index of the first value among the times.
    pub first: usize,
    /// Values at consecutive times; NaN where there is none.
    pub values: Vec<f32>,
}

impl Render for Plots {
    fn render(&self) -> Markup {
        html! {
            @if !self.0.is_empty() {
                style { (PreEscaped(UPLOT_STYLE)) }
                div.figures { @for plot in &self.0 { (plot) } }
                script { (PreEscaped(UPLOT)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

impl Render for Plot {
    fn render(&self) -> Markup {
        html! {
            figure.full.plot {
                figcaption {
                    strong { (self.title) }
                    @if !self.caption.is_empty() { p { (self.caption) } }
                }
                noscript { p { "This chart is interactive and requires scripts." } }
                script type="application/json" { (PreEscaped(self.data())) }
            }
        }
    }
}

impl Plot {
    /// Returns the data of the chart as JSON.
    fn data(&self) -> String {
        let mut json = String::from("{\"x\":");
        write_text(&mut json, &self.x);
        json += ",\"times\":";
        write_numbers(&mut json, &self.times);
        json += ",\"quantities\":[";
        for (index, quantity) in self.quantities.iter().enumerate() {
            json += if index == 0 { "{" } else { ",{" };
            for (key, text) in [("name", &quantity.name), ("unit", &quantity.unit), ("about", &quantity.about)] {
                let _ = write!(json, "\"{key}\":");
                write_text(&mut json, text);
                json.push(',');
            }
            json += "\"series\":[";
            for (index, series) in quantity.series.iter().enumerate() {
                json += if index == 0 { "[" } else { ",[" };
                write_text(&mut json, &series.name);
                let _ = write!(json, ",{},", series.first);
                let values: Vec<f64> = series.values.iter().map(|value| f64::from(*value)).collect();
                write_numbers(&mut json, &values);
                json.push(']');
            }
            json += "]}";
        }
        json.push(']');
        if let Some(shown) = self.shown {
            let _ = write!(json, ",\"shown\":{shown}");
        }
        json.push('}');
        json
    }
}

/// Appends `text` as a JSON string that cannot end the surrounding element.
fn write_text(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            '<' | '>' | '&' | '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(letter));
            }
            letter => json.push(letter),
        }
    }
    json.push('"');
}

/// Appends a JSON list of numbers with five significant digits; null for NaN.
fn write_numbers(json: &mut String, numbers: &[f64]) {
    json.push('[');
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        if number.is_finite() {
            let _ = write!(json, "{}", rounded(*number));
        } else {
            json.push_str("null");
        }
    }
    json.push(']');
}

/// Returns `number` with five significant digits, and whole numbers as they are.
fn rounded(number: f64) -> f64 {
    if number == 0.0 || number.fract() == 0.0 {
        return number;
    }
    let scale = 10f64.powi(4 - number.abs().log10().floor() as i32);
    (number * scale).round() / scale
}

const UPLOT: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../vendor/uplot/uPlot.min.css");
const SCRIPT: &str = include_str!("plot.js");

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let series = |name: &str, first, values: &[f32]| TimeSeries { name: name.into(), first, values: values.into() };
        Plot {
            title: "Links".into(),
            caption: String::new(),
            x: "us".into(),
            times: vec![0.5, 1.0, 123_456_789.0],
            quantities: vec![Quantity {
                name: "use".into(),
                unit: "share".into(),
                about: "How much.".into(),
                series: vec![series("a>b", 0, &[0.0, 0.123_456, 1.0]), series("</script>\"", 1, &[f32::NAN, 2e9])],
            }],
            shown: None,
        }
    }

    #[test]
    fn data_is_json_that_cannot_end_its_element() {
        let expected = concat!(
            r#"{"x":"us","times":[0.5,1,123456789],"quantities":[{"name":"use","unit":"share","about":"How much.","#,
            r#""series":[["a\u003eb",0,[0,0.12346,1]],["\u003c/script\u003e\"",1,[null,2000000000]]]}]}"#
        );
        assert_eq!(plot().data(), expected);
        let two = Plot { shown: Some(2), ..plot() }.data();
        assert_eq!(two, format!(r#"{},"shown":2}}"#, expected.strip_suffix('}').expect("an object")));
    }

    #[test]
    fn a_page_contains_the_library_once_and_only_with_plots() {
        let page = Plots(vec![plot(), plot()]).render().into_string();
        assert_eq!(page.matches("var uPlot=").count(), 1);
        assert_eq!(page.matches("application/json").count(), 2);
        assert_eq!(Plots::default().render().into_string(), "");
        for outside in ["src=", "<link", "@import", "fetch("] {
            assert!(!page.contains(outside), "the page refers to {outside}");
        }
    }
}
