//! CPU compute kernels on plain f32 slices.
