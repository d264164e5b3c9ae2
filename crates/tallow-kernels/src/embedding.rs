//! Rows of a table by number, PyTorch's `embedding`, and the gradient of the table.

use crate::error::{Error, Result, check_len, checked_product};
use crate::parallel::{for_each, grain, rows};

/// `y[i] = weight[ids[i]]` for `weight` of `[V, D]`, `ids` of `[n]` and `y` of `[n, D]`.
///
/// # Errors
/// [`Error::Index`] for a number that the table doesn't have, naming its place; [`Error::Length`]
/// for a slice of another length. Nothing is written then.
pub fn embedding(
    [vocabulary, width]: [usize; 2],
    ids: &[u32],
    weight: &[f32],
    y: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "embedding";
    check_len(
        KERNEL,
        "weight",
        weight,
        checked_product(KERNEL, &[vocabulary, width])?,
    )?;
    check_len(
        KERNEL,
        "y",
        y,
        checked_product(KERNEL, &[ids.len(), width])?,
    )?;
    check_ids(KERNEL, ids, vocabulary)?;
    if width == 0 {
        return Ok(());
    }
    for_each(
        ids.len(),
        grain(width),
        (ids, rows(y, width)),
        |_, (ids, y)| {
            for (&id, y) in ids.iter().zip(y.data.chunks_exact_mut(width)) {
                y.copy_from_slice(&weight[id as usize * width..][..width]);
            }
        },
    );
    Ok(())
}

/// `d_weight[v] = sum of dy[i] over the places with ids[i] = v`, in the order of the places; 0 where
/// `v` does not occur.
///
/// # Errors
/// As [`embedding`].
pub fn embedding_backward(
    [vocabulary, width]: [usize; 2],
    ids: &[u32],
    dy: &[f32],
    d_weight: &mut [f32],
) -> Result<()> {
    const KERNEL: &str = "embedding_backward";
    check_len(
        KERNEL,
        "d_weight",
        d_weight,
        checked_product(KERNEL, &[vocabulary, width])?,
    )?;
    check_len(
        KERNEL,
        "dy",
        dy,
        checked_product(KERNEL, &[ids.len(), width])?,
    )?;
    check_ids(KERNEL, ids, vocabulary)?;
    if width == 0 {
        return Ok(());
    }
    // Each leaf owns a range of the table and looks through all ids, so ranges are few.
    let range = grain(width).max(vocabulary.div_ceil(16));
    for_each(vocabulary, range, rows(d_weight, width), |first, table| {
        table.data.fill(0.0);
        let owned = table.data.len() / width;
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(width)) {
            let Some(row) = (id as usize).checked_sub(first).filter(|&row| row < owned) else {
                continue;
            };
            for (sum, &dy) in table.data[row * width..][..width].iter_mut().zip(dy) {
                *sum += dy;
            }
        }
    });
    Ok(())
}

fn check_ids(kernel: &'static str, ids: &[u32], vocabulary: usize) -> Result<()> {
    match ids
        .iter()
        .enumerate()
        .find(|&(_, &id)| id as usize >= vocabulary)
    {
        None => Ok(()),
        Some((row, &id)) => Err(Error::Index {
            kernel,
            row,
            value: id.into(),
            bound: vocabulary,
        }),
    }
}
