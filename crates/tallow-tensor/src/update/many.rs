//! Many parameters at once: gathered, checked not to share memory, and handed to the kernels in one go.

use candle_core::{Error, Result, Tensor, Var};
use std::collections::HashSet;
use tallow_kernels::optimizer::{self as kernels, Job};

use super::{AdamWUpdate, LambUpdate, SgdUpdate, adamw, check, lamb_portable, sgd};
use crate::{inplace, trace};

/// One parameter of an update of many.
#[derive(Debug)]
pub struct Item<'a, U> {
    /// The parameter.
    pub parameter: &'a Var,
    /// Its gradient, alike in shape and type.
    pub grad: &'a Tensor,
    /// What the optimizer remembers of it, alike in shape and type; each a variable of its own.
    pub state: Vec<&'a Var>,
    /// The numbers of its update.
    pub update: U,
}

/// Parameters that are opened at once: each is opened inside the one before.
const OPEN_AT_ONCE: usize = 64;

/// [`adamw`] for every item, whose state is `exp_avg` and `exp_avg_sq`, to the same bits, in one parallel section.
///
/// # Errors
///
/// As [`adamw`]; items before the one at fault may be updated then.
pub fn adamw_all(items: &[Item<'_, AdamWUpdate>]) -> Result<()> {
    let _span = trace::update("adamw", || sizes(items), 2, 14);
    in_groups(
        items,
        |item| {
            let [m, v] = pair("adamw", item)?;
            adamw(item.parameter, item.grad, m, v, &item.update)
        },
        |items| fused(items, "adamw", AdamWUpdate::kernel, kernels::adamw_many),
    )
}

/// [`sgd`] for every item, whose state is the momentum buffer, or nothing without momentum, to the same bits, in one parallel
/// section.
///
/// # Errors
///
/// As [`sgd`]; items before the one at fault may be updated then.
pub fn sgd_all(items: &[Item<'_, SgdUpdate>]) -> Result<()> {
    let _span = trace::update("sgd", || sizes(items), 1, 7);
    in_groups(
        items,
        |item| {
            sgd(
                item.parameter,
                item.grad,
                item.state.first().copied(),
                &item.update,
            )
        },
        |items| {
            let step = |update: &SgdUpdate| kernels::SgdStep {
                config: update.kernel(),
                first: update.first,
            };
            fused(items, "sgd", step, kernels::sgd_many)
        },
    )
}

/// One LAMB update (You et al. 2020) for every item, whose state is `exp_avg` and `exp_avg_sq`, in one parallel section.
///
/// # Errors
///
/// As [`adamw_all`].
pub fn lamb_all(items: &[Item<'_, LambUpdate>]) -> Result<()> {
    let _span = trace::update("lamb", || sizes(items), 2, 20);
    in_groups(
        items,
        |item| {
            let [m, v] = pair("lamb", item)?;
            check("lamb", item.parameter, item.grad, &[m, v])?;
            lamb_portable(item.parameter, item.grad, m, v, &item.update)
        },
        |items| fused(items, "lamb", LambUpdate::kernel, kernels::lamb_many),
    )
}

/// How many tensors are updated, and how many elements.
fn sizes<U>(items: &[Item<'_, U>]) -> (usize, usize) {
    let elements = items.iter().map(|item| item.parameter.elem_count());
    (items.len(), elements.sum())
}

/// Calls `fused` for runs of items that the kernels can take, and `single` for the others.
fn in_groups<U>(
    items: &[Item<'_, U>],
    single: impl Fn(&Item<'_, U>) -> Result<()>,
    fused: impl Fn(&[Item<'_, U>]) -> Result<()>,
) -> Result<()> {
    for items in items.chunks(OPEN_AT_ONCE) {
        if items.iter().all(Item::is_supported) && own_memory(items) {
            fused(items)?;
        } else {
            items.iter().try_for_each(&single)?;
        }
    }
    Ok(())
}

impl<U> Item<'_, U> {
    fn is_supported(&self) -> bool {
        let vars = std::iter::once(&self.parameter).chain(&self.state);
        vars.into_iter().all(|var| inplace::is_supported(var)) && self.grad.device().is_cpu()
    }
}

/// Whether nothing that is written is open a second time, which would wait for itself.
fn own_memory<U>(items: &[Item<'_, U>]) -> bool {
    let mut written = HashSet::new();
    let mut vars = items
        .iter()
        .flat_map(|item| std::iter::once(item.parameter).chain(item.state.iter().copied()));
    vars.all(|var| written.insert(memory(var)))
        && items
            .iter()
            .all(|item| !written.contains(&memory(item.grad)))
}

/// What tells the memory of one tensor from that of another.
fn memory(tensor: &Tensor) -> usize {
    let (storage, _) = tensor.storage_and_layout();
    std::ptr::from_ref(&*storage) as usize
}

fn pair<'a, U>(name: &str, item: &Item<'a, U>) -> Result<[&'a Var; 2]> {
    item.state.as_slice().try_into().map_err(|_| {
        let found = item.state.len();
        Error::msg(format!(
            "{name}: an update needs two moments, found {found}"
        ))
    })
}

fn fused<U, C>(
    items: &[Item<'_, U>],
    name: &str,
    config: impl Fn(&U) -> C,
    kernel: impl Fn(&mut [Job<'_, C>]) -> tallow_kernels::Result<()>,
) -> Result<()> {
    for item in items {
        check(name, item.parameter, item.grad, &item.state)?;
    }
    let grads = items.iter().map(|item| item.grad.contiguous());
    let grads: Vec<Tensor> = grads.collect::<Result<_>>()?;
    let opened: Vec<Tensor> = items
        .iter()
        .flat_map(|item| std::iter::once(item.parameter).chain(item.state.iter().copied()))
        .map(|var| var.as_tensor().clone())
        .collect();
    inplace::read_all(&grads, |grads| {
        inplace::update_all(&opened, &mut |slices| {
            let mut slices = slices.iter_mut();
            let mut jobs = Vec::with_capacity(items.len());
            for (item, grad) in items.iter().zip(grads) {
                let mut next = || slices.next().map(|slice| &mut **slice).unwrap_or_default();
                let param = next();
                let mut state = [const { None::<&mut [f32]> }; 2];
                for (place, _) in state.iter_mut().zip(&item.state) {
                    *place = Some(next());
                }
                jobs.push(Job {
                    config: config(&item.update),
                    param,
                    grad,
                    state: state.map(Option::unwrap_or_default),
                });
            }
            kernel(&mut jobs).map_err(Error::wrap)
        })
    })?
}
