//! A recording as columns in memory.

use rnic_fabric::record::{Batch, Object, RecordError, Recording};

/// A recording in memory, by columns.
#[derive(Default)]
pub struct InMemory {
    /// Objects, by index.
    pub objects: Vec<Object>,
    /// Time of each sample in picoseconds.
    pub time_ps: Vec<u64>,
    /// Index of the object.
    pub object: Vec<u32>,
    /// Index of the metric.
    pub metric: Vec<u8>,
    /// Values.
    pub value: Vec<f64>,
}

impl Recording for InMemory {
    fn write(&mut self, objects: &[Object], batch: Batch) -> Result<(), RecordError> {
        self.objects.extend_from_slice(&objects[self.objects.len()..]);
        self.time_ps.extend(batch.samples().map(|sample| sample.at.as_ps()));
        self.object.extend(batch.samples().map(|sample| sample.object));
        self.metric.extend(batch.samples().map(|sample| sample.metric as u8));
        self.value.extend(batch.samples().map(|sample| sample.value));
        Ok(())
    }

    fn finish(&mut self, _: &[Object]) -> Result<(), RecordError> {
        Ok(())
    }
}
