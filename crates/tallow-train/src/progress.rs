//! What a person sees of a training: a bar on a terminal, plain lines elsewhere, or nothing.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Hook, HookContext, Result};

/// How [`Trainer`](crate::Trainer) shows progress, always on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProgressDisplay {
    /// A bar if standard error is a terminal, otherwise lines.
    #[default]
    Auto,
    /// A bar over the epoch's batches, and a line for every finished epoch.
    Bar,
    /// A line for every finished epoch, and one every ten seconds in between.
    Lines,
    /// Nothing.
    Off,
}

const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl ProgressDisplay {
    pub(crate) fn hook(self) -> Option<Box<dyn Hook>> {
        match self {
            Self::Auto if std::io::stderr().is_terminal() => Self::Bar.hook(),
            Self::Auto => Self::Lines.hook(),
            Self::Bar => Some(Box::new(Bar {
                bar: ProgressBar::hidden(),
            })),
            Self::Lines => Some(Box::new(Lines {
                last: Instant::now(),
            })),
            Self::Off => None,
        }
    }
}

struct Bar {
    bar: ProgressBar,
}

impl Hook for Bar {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_epoch_begin(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.bar = ProgressBar::with_draw_target(context.batches(), ProgressDrawTarget::stderr());
        let style = "{prefix} {wide_bar} {pos}/{len}  {msg}  {eta}";
        self.bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_prefix(epoch(context));
        // Batches done before a resume don't count as speed.
        self.bar.set_position(context.batch());
        self.bar.reset_eta();
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.bar.set_message(step(context));
        self.bar.set_position(context.batch());
        Ok(())
    }

    fn on_evaluate_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.bar.set_message("evaluating");
        self.bar.tick();
        Ok(())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.bar.finish_and_clear();
        say(&finished_epoch(context));
        Ok(())
    }

    fn on_fit_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

struct Lines {
    last: Instant,
}

impl Hook for Lines {
    fn first_rank_only(&self) -> bool {
        true
    }

    fn on_fit_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.last = Instant::now();
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if self.last.elapsed() >= BETWEEN_LINES {
            self.last = Instant::now();
            let batches = context.batches().map_or(String::new(), |n| format!("/{n}"));
            let batch = context.batch();
            say(&format!(
                "{} batch {batch}{batches}  {}",
                epoch(context),
                step(context)
            ));
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.last = Instant::now();
        say(&finished_epoch(context));
        Ok(())
    }
}

/// Epochs are counted from 1 where people read them.
fn epoch(context: &HookContext<'_>) -> String {
    format!("epoch {}/{}", context.epoch() + 1, context.epochs())
}

fn step(context: &HookContext<'_>) -> String {
    let metrics = context.running().map_or(String::new(), |m| m.to_string());
    format!("{metrics}  lr {:.2e}", context.lr())
}

fn finished_epoch(context: &HookContext<'_>) -> String {
    let Some(record) = context.history().last() else {
        return epoch(context);
    };
    let evaluation = record.evaluation.as_ref();
    let evaluation = evaluation.map_or(String::new(), |m| format!("  |  evaluation {m}"));
    format!(
        "{}  train {}{evaluation}  ({:.1} s, {:.0} samples/s)",
        epoch(context),
        record.train,
        record.seconds,
        record.samples_per_second,
    )
}

/// A closed standard error is no reason to stop training.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
