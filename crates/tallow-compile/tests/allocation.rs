//! A running step allocates none of its values.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

mod common;

use candle_core::Tensor;
use candle_nn::ModuleT;
use common::batch;
use tallow_compile::{Options, StepCompiler};
use tallow_nn::{ResNet, Stem};
use tallow_tensor::Params;
use tallow_tensor::ops::{self, CrossEntropyConfig};

/// The system's allocator, and a count of the bytes that it was asked for.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn values_of_a_step_are_allocated_once() {
    let params = Params::f32_cpu();
    let model = ResNet::resnet18(10, Stem::Cifar, params.builder()).unwrap();
    let (images, labels) = batch([4, 3, 32, 32], 10);
    let forward = |images: &Tensor, labels: &Tensor| {
        let outputs = model.forward_t(images, true)?;
        let loss = ops::cross_entropy(&outputs, labels, &CrossEntropyConfig::default())?;
        Ok((loss, outputs))
    };
    let mut steps = StepCompiler::new(Options::default()).unwrap();
    let mut run = || {
        let before = BYTES.load(Ordering::Relaxed);
        steps.run(&params, &images, &labels, forward).unwrap();
        BYTES.load(Ordering::Relaxed) - before
    };
    let first = run();
    // Threads take scratch memory as they come to need it.
    run();
    let later = run();
    // Lists of handles, the loss and the outputs; the values of the plan are a hundred megabytes.
    assert!(first > 50 << 20, "{first} bytes in the first step");
    assert!(later < 256 << 10, "{later} bytes in a later step");
}
