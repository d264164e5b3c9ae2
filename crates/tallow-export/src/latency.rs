//! How long a run of a program takes.

use std::time::{Duration, Instant};

use candle_core::Tensor;

use crate::manifest::Latency;
use crate::{Result, Runner};

/// Runs before the clock starts.
const WARM_UP: usize = 3;
/// Timed runs, at least and at most; as many as fit into `TIME`.
const RUNS: [usize; 2] = [20, 200];
const TIME: Duration = Duration::from_millis(500);

/// Times runs of a program, one after the other: at least 20, at most 200 or as many as fit into half a second, after 3 that
/// aren't timed.
///
/// # Errors
/// Those of [`Runner::run`].
pub fn measure_latency(runner: &Runner, inputs: &[Tensor]) -> Result<Latency> {
    for _ in 0..WARM_UP {
        runner.run(inputs)?;
    }
    let start = Instant::now();
    let mut times = Vec::with_capacity(RUNS[1]);
    while times.len() < RUNS[0] || (times.len() < RUNS[1] && start.elapsed() < TIME) {
        let start = Instant::now();
        runner.run(inputs)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    // The nearest rank: the smallest time that this share of the runs doesn't exceed.
    let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    let batch = inputs
        .first()
        .and_then(|input| input.dims().first().copied());
    let threads = candle_core::utils::get_num_threads();
    Ok(Latency {
        batch: batch.unwrap_or(1),
        median_ms: rank(50),
        p99_ms: rank(99),
        limit_ms: None,
        runs: times.len(),
        how: format!(
            "wall clock of one run after another in one process, {WARM_UP} before them not counted, {threads} threads"
        ),
    })
}
