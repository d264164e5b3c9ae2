//! Creation of parameters and buffers through candle's `VarBuilder`.

use std::cell::Cell;

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use super::{Entry, Kind, Params, init};
use crate::Error;

thread_local! {
    /// What the next `get` asks for. A `VarBuilder` can't be asked what it is made of, and has no place for such a
    /// hint, so [`buffer`] leaves it here for the length of one call.
    static WANTED: Cell<Kind> = const { Cell::new(Kind::Trainable) };
}

/// Gets or creates a buffer: state that the model itself changes, filled with `value` at first.
///
/// With a builder of [`Params`] it is registered as [`Kind::Buffer`]; with any other builder this is a plain
/// `get_with_hints`, so a layer that calls it works with candle's own `VarMap` and with weight files too.
///
/// # Errors
/// As `VarBuilder::get`: an unknown name, or another shape than the one that exists.
pub fn buffer(
    vb: &VarBuilder<'_>,
    shape: impl Into<Shape>,
    name: &str,
    value: f64,
) -> candle_core::Result<Tensor> {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            WANTED.set(Kind::Trainable);
        }
    }
    WANTED.set(Kind::Buffer);
    let _reset = Reset;
    vb.get_with_hints(shape, name, Init::Const(value))
}

/// What [`Params::builder`] hands to candle.
pub(super) struct Backend(pub(super) Params);

impl SimpleBackend for Backend {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        hint: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let kind = WANTED.get();
        let mut entries = self.0.lock();
        if let Some(entry) = entries.get(name) {
            check_same(entry, &shape, dtype, kind)?;
            return Ok(entry.var.as_tensor().clone());
        }
        let var = init::create(hint, &shape, dtype, device, self.0.seed(), name)?;
        let tensor = var.as_tensor().clone();
        entries.insert(
            name.to_string(),
            Entry {
                name: name.to_string(),
                var,
                kind,
                frozen: false,
            },
        );
        Ok(tensor)
    }

    fn get_unchecked(
        &self,
        name: &str,
        _dtype: DType,
        _device: &Device,
    ) -> candle_core::Result<Tensor> {
        match self.0.get(name) {
            Some(entry) => Ok(entry.var.as_tensor().clone()),
            None => Err(problem(
                name,
                "it does not exist and was asked for without a shape".to_string(),
                "ask with a shape to create it",
            )),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.lock().contains_key(name)
    }
}

fn check_same(entry: &Entry, shape: &Shape, dtype: DType, kind: Kind) -> candle_core::Result<()> {
    let var = &entry.var;
    if var.shape() != shape || var.dtype() != dtype {
        return Err(problem(
            &entry.name,
            format!(
                "asked for as {dtype:?} {:?}, it exists as {:?} {:?}",
                shape.dims(),
                var.dtype(),
                var.dims()
            ),
            "give each value its own name, or share it with the same shape and type",
        ));
    }
    if entry.kind != kind {
        return Err(problem(
            &entry.name,
            format!("asked for as {kind:?}, it exists as {:?}", entry.kind),
            "get buffers with params::buffer and parameters with the builder, everywhere",
        ));
    }
    Ok(())
}

fn problem(name: &str, problem: String, remedy: &'static str) -> candle_core::Error {
    Error::Parameter {
        name: name.to_string(),
        problem,
        remedy,
    }
    .into()
}
