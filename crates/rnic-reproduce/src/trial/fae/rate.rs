//! The timing of batches.

use std::hint::black_box;
use std::time::Instant;

use rnic_base::{BitRate, RandomStreams, prefetch_all};
use rnic_fae::{Processor, ProcessorConfig, Program, StateLocation};

use super::datapath::Datapath;
use super::{BATCH_EVENTS, Load};

/// Returns millions of events per second in the median batch, in the best of the rounds after one that is not counted.
pub(super) fn of_engine<P: Program>(program: P, load: &Load, form: StateLocation, seed: u64) -> Result<f64, String> {
    let connections = load.connections;
    let config = ProcessorConfig { form, connections, line_rate: BitRate::gbps(200), mtu: 4_096 };
    let mut processor = Processor::new(program, &config).map_err(|error| error.to_string())?;
    let mut datapath = Datapath::new(connections, processor.first(), form, seed);
    let best = best_batch(load, || {
        datapath.make_events();
        let mut next = 0;
        let responses = &mut datapath.responses;
        let begin = Instant::now();
        processor.handle_all(black_box(&datapath.events), |response| {
            responses[next] = response;
            next += 1;
        });
        let elapsed = begin.elapsed().as_secs_f64();
        black_box(&datapath.responses);
        datapath.take_responses();
        elapsed
    });
    Ok(BATCH_EVENTS as f64 / best / 1e6)
}

/// Returns millions of states per second whose lines are prefetched and incremented by one, in the same batches and
/// rounds.
pub(super) fn of_memory(load: &Load, seed: u64) -> Result<f64, String> {
    let (connections, lines) = (load.connections as usize, load.state as usize / CACHE_LINE_BYTES);
    let mut random = RandomStreams::new(seed).stream("memory");
    let mut table =
        memmap2::MmapMut::map_anon((connections * lines * CACHE_LINE_BYTES).next_multiple_of(HUGE_PAGE_BYTES))
            .map_err(|error| format!("no memory for {connections} states: {error}"))?;
    // Failure is ignored: without huge pages it is slower, as the engine's table would be.
    #[cfg(target_os = "linux")]
    drop(table.advise(memmap2::Advice::HugePage));
    let table: &mut [[u64; 8]] = bytemuck::cast_slice_mut(&mut table);
    table.iter_mut().for_each(|line| line[0] = 1);
    let best = best_batch(load, || {
        let firsts: Vec<usize> = (0..BATCH_EVENTS).map(|_| random.below(connections as u64) as usize * lines).collect();
        let begin = Instant::now();
        for (index, first) in firsts.iter().copied().enumerate() {
            if let Some(later) = firsts.get(index + PREFETCH_DISTANCE).copied() {
                prefetch_all(&table[later..later + lines]);
            }
            table[first..first + lines].iter_mut().for_each(|line| line[0] += 1);
        }
        begin.elapsed().as_secs_f64()
    });
    black_box(table);
    Ok(BATCH_EVENTS as f64 / best / 1e6)
}

/// Returns the seconds of the median batch in the best of the rounds after one that is not counted; `batch` runs one
/// batch and returns its duration.
fn best_batch(load: &Load, mut batch: impl FnMut() -> f64) -> f64 {
    let mut best = f64::INFINITY;
    for round in 0..=load.rounds {
        // Every connection has an event before the counted rounds.
        let batches_min = if round == 0 { (load.connections as usize).div_ceil(BATCH_EVENTS) } else { 0 };
        let mut elapsed: Vec<f64> = (0..batches_min.max(load.batches as usize)).map(|_| batch()).collect();
        if round > 0 {
            best = best.min(median(&mut elapsed));
        }
    }
    best
}

fn median(elapsed: &mut [f64]) -> f64 {
    elapsed.sort_unstable_by(f64::total_cmp);
    elapsed[elapsed.len() / 2]
}

/// Size of a cache line in bytes.
const CACHE_LINE_BYTES: usize = 64;
/// Size of a huge page in bytes.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Prefetch distance in states: without a program, a larger distance than the engine's is best.
const PREFETCH_DISTANCE: usize = 16;
