//! The result of a run.

use std::sync::Mutex;

use numpy::{Element, PyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rnic_fabric::record::Metric;
use rnic_fabric::{FlowRecord, Report};

use crate::recording::InMemory;

/// The result of a simulation.
#[pyclass(frozen)]
pub struct Result {
    report: Report,
    /// The time series; `None` without a recording, or after they have been moved to Python.
    series: Mutex<Option<InMemory>>,
}

impl Result {
    /// Creates the result of a run that recorded `series`.
    pub fn new(report: Report, series: Option<InMemory>) -> Self {
        Self { report, series: Mutex::new(series) }
    }
}

#[pymethods]
impl Result {
    /// The report as JSON.
    fn report_json(&self) -> String {
        self.report.to_json().to_string()
    }

    /// Hash of all events of the run.
    #[getter]
    fn trace_hash(&self) -> &str {
        &self.report.trace_hash
    }

    /// Invariants that the run violated; empty for a valid run.
    #[getter]
    fn violations(&self) -> Vec<String> {
        self.report.violations.clone()
    }

    /// Returns one array for each column of the table of flows.
    fn flows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let records = &self.report.records;
        let columns = PyDict::new(py);
        columns.set_item("id", column(py, records, |flow| flow.id))?;
        columns.set_item("src", column(py, records, |flow| flow.src))?;
        columns.set_item("dst", column(py, records, |flow| flow.dst))?;
        columns.set_item("bytes", column(py, records, |flow| flow.bytes))?;
        columns.set_item("start_us", column(py, records, |flow| flow.start.as_ps() as f64 / 1e6))?;
        columns.set_item("fct_us", column(py, records, |flow| flow.fct.as_us_f64()))?;
        columns.set_item("ideal_us", column(py, records, |flow| flow.ideal.as_us_f64()))?;
        columns.set_item("slowdown", column(py, records, FlowRecord::slowdown))?;
        columns.set_item("request", column(py, records, |flow| flow.request.map_or(-1, i64::from)))?;
        Ok(columns)
    }

    /// Moves the time series to Python: one array for each column, the objects (kind, name, flow), and the names and
    /// units of metrics. `None` without a recording, and when this was called before.
    fn take_series<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut series = self.series.lock().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let Some(InMemory { objects, time_ps, object, metric, value }) = series.take() else { return Ok(None) };
        let columns = PyDict::new(py);
        columns.set_item("time_ps", PyArray1::from_vec(py, time_ps))?;
        columns.set_item("object", PyArray1::from_vec(py, object))?;
        columns.set_item("metric", PyArray1::from_vec(py, metric))?;
        columns.set_item("value", PyArray1::from_vec(py, value))?;
        let objects: Vec<_> =
            objects.into_iter().map(|object| (object.kind.name(), object.name, object.flow)).collect();
        columns.set_item("objects", objects)?;
        let metrics: Vec<_> = Metric::ALL.iter().map(|metric| (metric.name(), metric.unit())).collect();
        columns.set_item("metrics", metrics)?;
        Ok(Some(columns))
    }
}

fn column<'py, T: Element>(
    py: Python<'py>,
    records: &[FlowRecord],
    value: impl Fn(&FlowRecord) -> T,
) -> Bound<'py, PyArray1<T>> {
    PyArray1::from_vec(py, records.iter().map(value).collect())
}
