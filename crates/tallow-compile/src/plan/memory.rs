//! Which values share memory: each gets one of a few slots for as long as it is read.

/// Where a value begins and ends, in steps, and how many floats it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) len: usize,
    pub(crate) written: usize,
    /// The last step that reads it; past the end for what must be there when the plan is done.
    pub(crate) last_read: usize,
    /// The value whose slot it takes over, one that dies as it is written.
    pub(crate) takes: Option<usize>,
}

/// The slot of each value, and how long each slot is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    pub(crate) of: Vec<usize>,
    pub(crate) lens: Vec<usize>,
}

/// Assigns slots to values in the order in which they are written.
///
/// A value gets the free slot that fits best. Where none is large enough the largest one grows, which costs only the
/// difference; one that is many times too large is left for a value that needs it.
pub(crate) fn assign(values: &[Life]) -> Slots {
    let mut slots = Slots::default();
    // Who holds each slot.
    let mut holder: Vec<Option<usize>> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if let Some(taken) = value.takes {
            let slot = slots.of[taken];
            holder[slot] = Some(index);
            slots.of.push(slot);
            continue;
        }
        let is_free = |slot: usize| {
            holder[slot].is_none_or(|held: usize| values[held].last_read < value.written)
        };
        let free: Vec<usize> = (0..holder.len()).filter(|&slot| is_free(slot)).collect();
        let slot = choose(&free, &slots.lens, value.len).unwrap_or_else(|| {
            holder.push(None);
            slots.lens.push(0);
            holder.len() - 1
        });
        slots.lens[slot] = slots.lens[slot].max(value.len);
        holder[slot] = Some(index);
        slots.of.push(slot);
    }
    slots
}

/// How many times too large a slot may be.
const WASTE: usize = 8;
/// Slots up to this many floats are given away without looking at waste.
const SMALL: usize = 16 * 1024;

fn choose(free: &[usize], lens: &[usize], len: usize) -> Option<usize> {
    let fits = |&&slot: &&usize| {
        let held = lens[slot];
        held >= len && (held <= SMALL || held <= len.saturating_mul(WASTE))
    };
    let best = free.iter().filter(fits).min_by_key(|&&slot| lens[slot]);
    let grown = || {
        let smaller = free.iter().filter(|&&slot| lens[slot] < len);
        // Growing a slot of a few floats saves nothing.
        smaller
            .max_by_key(|&&slot| lens[slot])
            .filter(|&&slot| lens[slot] * WASTE >= len)
    };
    best.or_else(grown).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn life(len: usize, written: usize, last_read: usize) -> Life {
        Life {
            len,
            written,
            last_read,
            takes: None,
        }
    }

    #[test]
    fn a_chain_needs_two_slots() {
        let chain: Vec<_> = (0..10).map(|step| life(100, step, step + 1)).collect();
        assert_eq!(assign(&chain).lens, [100, 100]);
    }

    #[test]
    fn a_slot_is_taken_over() {
        let mut chain: Vec<_> = (0..10).map(|step| life(100, step, step + 1)).collect();
        for (index, value) in chain.iter_mut().enumerate().skip(1) {
            value.takes = Some(index - 1);
        }
        assert_eq!(assign(&chain).lens, [100]);
    }

    proptest! {
        /// No value is overwritten before its last reader.
        #[test]
        fn values_that_live_together_lie_apart(
            sizes in prop::collection::vec((1usize..100_000, 0usize..20), 1..60),
        ) {
            let values: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(step, &(len, reads))| life(len, step, step + reads))
                .collect();
            let slots = assign(&values);
            for (a, first) in values.iter().enumerate() {
                prop_assert!(slots.lens[slots.of[a]] >= first.len);
                for (b, second) in values.iter().enumerate().skip(a + 1) {
                    let together = second.written <= first.last_read;
                    prop_assert!(!together || slots.of[a] != slots.of[b]);
                }
            }
        }
    }
}
