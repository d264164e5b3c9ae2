//! [`Interrupt`]: Ctrl-C ends a training between two steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::{Error, Hook, HookContext, Result};

/// Ends the training after the current step when the process is interrupted (Ctrl-C, `SIGINT`): hooks that write at the end
/// of `fit` do so, and a resume goes on from there. A second Ctrl-C kills the process at once, as it would without this hook.
///
/// Outside of `fit` an interrupt does what it always did. A file is written by [`CheckpointFolder`](super::CheckpointFolder),
/// [`Checkpointing`](crate::Checkpointing) or [`RunFolder`](super::RunFolder).
///
/// ```
/// use tallow_train::hooks::Interrupt;
///
/// let hook = Interrupt::new();
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Interrupt {
    watching: Option<Watch>,
}

impl Interrupt {
    /// A hook that watches for interrupts during `fit`.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Hook for Interrupt {
    fn on_fit_begin(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        // The former watch of a training that failed ends before the new one begins.
        self.watching = None;
        self.watching = Some(Watch::begin()?);
        Ok(())
    }

    fn on_step_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        if self.watching.as_ref().is_some_and(Watch::interrupted) {
            context.request_stop();
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, context: &mut HookContext<'_>) -> Result<()> {
        self.on_step_end(context)
    }

    fn on_fit_end(&mut self, _context: &mut HookContext<'_>) -> Result<()> {
        self.watching = None;
        Ok(())
    }
}

/// What the process does at an interrupt. The handlers stay for good, since the system's own can't be put back; the flags
/// say what they do.
struct Handlers {
    /// Set by an interrupt.
    interrupted: Arc<AtomicBool>,
    /// Whether the next interrupt ends the process.
    kills: Arc<AtomicBool>,
    /// How many trainings are being watched.
    watches: Mutex<usize>,
}

fn handlers() -> Result<&'static Handlers> {
    static HANDLERS: OnceLock<std::io::Result<Handlers>> = OnceLock::new();
    let install = || {
        let interrupted = Arc::new(AtomicBool::new(false));
        let kills = Arc::new(AtomicBool::new(true));
        // In this order: the first interrupt must find the flag that it sets still unset.
        flag::register_conditional_default(SIGINT, kills.clone())?;
        flag::register(SIGINT, interrupted.clone())?;
        flag::register(SIGINT, kills.clone())?;
        Ok(Handlers {
            interrupted,
            kills,
            watches: Mutex::new(0),
        })
    };
    let handlers = HANDLERS.get_or_init(install).as_ref();
    handlers.map_err(|error| Error::hook(format!("can't watch for interrupts (SIGINT): {error}")))
}

/// A training during which the first interrupt is only noted.
struct Watch(&'static Handlers);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.interrupted()).finish()
    }
}

impl Watch {
    fn begin() -> Result<Self> {
        let handlers = handlers()?;
        let mut watches = handlers
            .watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *watches == 0 {
            handlers.interrupted.store(false, Ordering::SeqCst);
            handlers.kills.store(false, Ordering::SeqCst);
        }
        *watches += 1;
        Ok(Self(handlers))
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = self
            .0
            .watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *watches -= 1;
        if *watches == 0 {
            self.0.kills.store(true, Ordering::SeqCst);
        }
    }
}
