//! [`Schedule`]: which steps of a training are recorded, as `torch.profiler.schedule` says it.

use crate::{Error, Result};

/// Skips some steps, then repeats: waits, warms up, records.
///
/// Steps are counted by [`Profiler::step`](crate::Profiler::step), or by the trainer's hook. While warming up, the
/// profiler records and throws away: the first recorded steps of a process grow its buffers.
///
/// ```
/// use tallow_profile::{Phase, Schedule};
///
/// let schedule = Schedule { wait: 1, warmup: 1, active: 2, repeat: 1, skip_first: 1 };
/// let phases: Vec<Phase> = (0..6).map(|step| schedule.phase(step)).collect();
/// assert_eq!(
///     phases,
///     [Phase::Off, Phase::Off, Phase::Warmup, Phase::Active, Phase::Active, Phase::Off]
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Steps of each cycle that aren't recorded.
    pub wait: u64,
    /// Steps of each cycle that are recorded and thrown away.
    pub warmup: u64,
    /// Steps of each cycle that are recorded; at least 1.
    pub active: u64,
    /// How many cycles; 0 repeats them as long as the profiler lives.
    pub repeat: u64,
    /// Steps before the first cycle.
    pub skip_first: u64,
}

/// What a profiler does during a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing, at no cost.
    Off,
    /// Records and throws away.
    Warmup,
    /// Records.
    Active,
}

impl Schedule {
    /// Records every step.
    pub const ALWAYS: Self = Self {
        wait: 0,
        warmup: 0,
        active: u64::MAX,
        repeat: 1,
        skip_first: 0,
    };

    /// Waits, warms up and records once.
    pub fn once(wait: u64, warmup: u64, active: u64) -> Self {
        Self {
            wait,
            warmup,
            active,
            repeat: 1,
            skip_first: 0,
        }
    }

    /// What is done during step number `step`, counted from 0.
    pub fn phase(&self, step: u64) -> Phase {
        match self.place(step) {
            Some((_, phase)) => phase,
            None => Phase::Off,
        }
    }

    /// The cycle that a step belongs to, and what is done.
    pub(crate) fn place(&self, step: u64) -> Option<(u64, Phase)> {
        let step = step.checked_sub(self.skip_first)?;
        let idle = self.wait.saturating_add(self.warmup);
        let length = idle.saturating_add(self.active);
        let (cycle, within) = (step / length.max(1), step % length.max(1));
        if self.repeat > 0 && cycle >= self.repeat {
            return None;
        }
        let phase = match within {
            _ if within < self.wait => Phase::Off,
            _ if within < idle => Phase::Warmup,
            _ => Phase::Active,
        };
        Some((cycle, phase))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.active > 0 {
            return Ok(());
        }
        Err(Error::Setting {
            what: "the number of recorded steps of a schedule (`active`)",
            expected: "at least 1",
            found: "0".into(),
        })
    }
}
