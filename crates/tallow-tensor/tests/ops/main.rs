//! The operations, through the public API: values and gradients against PyTorch and central differences, the faults
//! of candle that they avoid, wrong inputs, and independence of the number of threads.

mod activation;
mod arithmetic;
mod convolution;
mod dropout;
mod errors;
mod golden;
mod loss;
mod normalization;
mod pooling;
mod product;
mod repeatability;
mod shape;
mod traps;
