//! The weights of a program by name: in memory of their own, or parts of a mapped file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use indexmap::IndexMap;
use tallow_compile::Weight;
use tallow_graph::TensorType;

use crate::Result;
use crate::mapping::Mapping;

/// The 32-bit floats of one weight, row-major. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Elements {
    Owned(Arc<[f32]>),
    /// A range of bytes that is aligned for floats.
    Mapped(Mapping, Range<usize>),
}

impl Elements {
    /// Those of a part of a mapped file; a copy if they don't lie as floats do in this machine's memory.
    pub(crate) fn mapped(mapping: &Mapping, range: Range<usize>) -> Self {
        let bytes = mapping.bytes(&range);
        let fits =
            cfg!(target_endian = "little") && bytemuck::try_cast_slice::<u8, f32>(bytes).is_ok();
        if fits {
            return Self::Mapped(mapping.clone(), range);
        }
        let floats = bytes.as_chunks::<4>().0.iter();
        Self::Owned(floats.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

impl AsRef<[f32]> for Elements {
    fn as_ref(&self) -> &[f32] {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(mapping, range) => {
                bytemuck::try_cast_slice(mapping.bytes(range)).unwrap_or(&[])
            }
        }
    }
}

/// Weights by name, each with its type, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weights(IndexMap<String, (TensorType, Elements)>);

impl Weights {
    pub(crate) fn insert(&mut self, name: String, ty: TensorType, elements: Elements) {
        self.0.insert(name, (ty, elements));
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &TensorType, &Elements)> {
        self.0
            .iter()
            .map(|(name, (ty, elements))| (name.as_str(), ty, elements))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Elements> {
        self.0.get(name).map(|(_, elements)| elements)
    }

    pub(crate) fn ty(&self, name: &str) -> Option<&TensorType> {
        self.0.get(name).map(|(ty, _)| ty)
    }

    pub(crate) fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&str) -> K) {
        self.0.sort_by_key(|name, _| key(name));
    }

    /// For a plan, which reads them where they lie.
    pub(crate) fn bound(&self) -> HashMap<String, Weight> {
        let named = self.iter();
        named
            .map(|(name, _, elements)| (name.to_string(), Arc::new(elements.clone()) as Weight))
            .collect()
    }

    /// Copies as tensors.
    pub(crate) fn tensors(&self) -> Result<Vec<(&str, Tensor)>> {
        let copy = |(name, ty, elements): (_, &TensorType, &Elements)| {
            let shape = ty.shape.as_slice();
            Ok((
                name,
                Tensor::from_slice(elements.as_ref(), shape, &Device::Cpu)?,
            ))
        };
        self.iter().map(copy).collect()
    }
}
