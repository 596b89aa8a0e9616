//! A simulation whose recording a second thread writes, as in the `rnic` command.

use std::sync::mpsc::{SyncSender, sync_channel};

use rnic_fabric::Simulation;
use rnic_fabric::record::{Batch, Object, ParquetRecording, RecordError, Recording};

/// A recording that another thread writes.
struct InThread {
    batches: SyncSender<(Vec<Object>, Batch)>,
    /// Number of objects that the thread has.
    objects: usize,
}

impl Recording for InThread {
    fn write(&mut self, objects: &[Object], batch: Batch) -> Result<(), RecordError> {
        let new = objects[self.objects..].to_vec();
        self.objects = objects.len();
        self.batches.send((new, batch)).expect("the thread receives");
        Ok(())
    }

    fn finish(&mut self, _: &[Object]) -> Result<(), RecordError> {
        Ok(())
    }
}

/// Returns what `run` does with the simulation, when the file of its recording is complete.
pub fn recorded<T>(mut simulation: Simulation, run: impl FnOnce(Simulation) -> T) -> T {
    let (batches, waiting) = sync_channel(16);
    simulation.time_series().record_to(InThread { batches, objects: 0 });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut recording = ParquetRecording::new(std::io::sink()).expect("nothing is written");
            let mut objects = Vec::new();
            for (new, batch) in waiting {
                objects.extend(new);
                recording.write(&objects, batch).expect("nothing is written");
            }
            recording.finish(&objects).expect("nothing is written");
        });
        // The thread ends when `run` has dropped the simulation.
        run(simulation)
    })
}
